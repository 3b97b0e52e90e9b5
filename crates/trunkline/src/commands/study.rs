//! `trunkline study`: what a simulation must be told.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};
use trunkline_live::environment;
use trunkline_live::study::{self, Cost, HostStudy, LEFT_OUT, Line, Point};
use trunkline_units::Span;

use crate::failure::{Failure, say};
use crate::flags::StudySubject;

/// What the measured host is called in the line to paste.
const NAME: &str = "this";

/// Does what was said.
pub fn study(subject: &StudySubject) -> Result<(), Failure> {
    let StudySubject::Host { seconds, json } = subject;
    let study = measure(*seconds)?;
    say(&if *json { as_json(&study) } else { table(&study) })
}

/// With a progress bar on a terminal, without on a pipe.
fn measure(budget: Span) -> Result<HostStudy, Failure> {
    let bar =
        if io::stderr().is_terminal() { ProgressBar::new(budget.as_ns()) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("host [{bar:40}] {elapsed}") {
        bar.set_style(style.progress_chars("━╸ "));
    }
    let study = study::host(budget, |passed| bar.set_position(passed.as_ns().min(budget.as_ns())));
    bar.finish_and_clear();
    study.map_err(Failure::run)
}

fn as_json(study: &HostStudy) -> String {
    let json = serde_json::json!({
        "host": study,
        "line": study.host_line(NAME),
        "left_out": LEFT_OUT,
        "environment": environment::describe(),
    });
    format!("{json:#}\n")
}

fn table(study: &HostStudy) -> String {
    let HostStudy { messages, rounds, send, receive, .. } = study;
    let mut text = format!(
        "UDP over the loopback, one message a system call: {messages} messages in {rounds} rounds.\n\
         Processor time of a message, ns: median ± half the distance of the quartiles.\n\n\
         {:>9}  {:>12}  {:>8}  {:>12}  {:>8}\n",
        "bytes", "send", "line", "receive", "line"
    );
    for Point { size_bytes, send: sent, receive: received } in &study.points {
        let line = |line: &Line| line.cost_ns(*size_bytes as f64);
        let (sent, received) = (cost(*sent), cost(*received));
        text += &format!(
            "{size_bytes:>9}  {sent:>12}  {:>8.0}  {received:>12}  {:>8.0}\n",
            line(send),
            line(receive)
        );
    }
    let row = |what: &str, figure: fn(&Line) -> String| {
        format!("{what:>9}  {:>12}  {:>8}  {:>12}\n", figure(send), "", figure(receive))
    };
    text += "\n";
    text += &row("a packet", |line| format!("{:.0}", line.packet_ns));
    text += &row("a byte", |line| format!("{:.3}", line.byte_ns));
    text += &row("line off", |line| format!("{:.1} %", line.residual * 100.0));
    text += &format!("\nNot in it: {}.\n", LEFT_OUT.join(";\n  "));
    text + &format!("The mean of sending and receiving, to paste:\n\n{}\n", study.host_line(NAME))
}

fn cost(cost: Cost) -> String {
    format!("{:.0} ± {:.0}", cost.median_ns, cost.spread_ns)
}
