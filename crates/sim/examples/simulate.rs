//! Simulates an experiment and prints the results of each connection. Shows how to use the simulator as a library.
//!
//! `cargo run --release -p trunkline-sim --example simulate -- experiments/table-18.ns [OPTION=VALUE]…`

use std::path::Path;
use std::process::ExitCode;

use trunkline_experiment::{Source, apply_override, parse};
use trunkline_run::{Backend as _, NoProgress, RunOptions, StopFlag};
use trunkline_sim::Sim;
use trunkline_units::Seed;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(file) = arguments.next() else {
        eprintln!("usage: simulate FILE [OPTION=VALUE]…");
        return ExitCode::from(2);
    };
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(e) => {
            eprintln!("{file}: {e}");
            return ExitCode::from(2);
        }
    };
    let folder = Path::new(&file).parent().map(Path::to_owned).unwrap_or_default();
    let Some(mut plan) = parse(&Source { name: &file, text: &text, folder: Some(&folder) }).plan else {
        eprintln!("{file}: not a valid experiment; run `trunkline check {file}` for the errors");
        return ExitCode::from(2);
    };
    for (option, value) in
        arguments.filter_map(|a| a.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())))
    {
        if let Err(e) = apply_override(&mut plan, &option, &value) {
            eprintln!("{e}");
            return ExitCode::from(2);
        }
    }
    let options = RunOptions {
        seed: Seed::default(),
        text: text.clone(),
        started_at: String::new(),
        folder: folder.clone(),
        out: std::env::temp_dir(),
        stop: StopFlag::default(),
    };
    let record = Sim::default().run(&plan, &options, &mut NoProgress);
    for c in &record.connections {
        let segments = c.counters.get("data_segments_sent").copied().unwrap_or_default();
        println!(
            "{}: {} messages sent, {} received, {:.0} b/s, {segments} data segments",
            c.name, c.messages_sent, c.messages_received, c.received_bps
        );
    }
    println!("{:?}", record.environment);
    ExitCode::SUCCESS
}
