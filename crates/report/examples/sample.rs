//! Writes reports of invented records for inspection: `cargo run -p trunkline-report --example sample -- DIR`.

#[path = "../tests/sample.rs"]
mod sample;

use std::path::Path;

fn main() -> std::io::Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "target".into());
    let (live, sim) = (sample::record("live"), sample::record("sim"));
    let partial = trunkline_record::Record {
        partial: true,
        problems: vec!["host a does not answer: connection refused".into()],
        ..live.clone()
    };
    let several = [live.clone(), sim];
    for (name, records) in [("one", &[live][..]), ("several", &several), ("partial", &[partial])] {
        println!("{}", trunkline_report::terminal(records, None));
        std::fs::write(Path::new(&dir).join(format!("{name}.html")), trunkline_report::html(records))?;
    }
    println!("{}", trunkline_report::terminal::comparison(&trunkline_report::compare(&several), Some(100)));
    Ok(())
}
