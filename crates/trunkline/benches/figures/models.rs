//! Application models live: how many seeds follow each law; and many sessions at once: how late their messages are.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use trunkline_traffic::application::{Application, Definition, MODELS, Unit};

use crate::Outcome;
use crate::contest::{self, Figure, Row, Target, Tool};
use crate::options::Options;
use crate::ours;
use crate::peers::Peers;

/// Connections of one run.
const BATCH: usize = 25;
/// Settings with which a short run has many values of the rare and of the correlated parameters.
const SETTINGS: &[(&str, &str)] =
    &[("mpeg", "frameRate = 200, gop = 6"), ("videoconference", "frameRate = 200, correlation = 0.5")];
/// Sessions of `sessions`.
const SESSIONS: usize = 1_000;

/// Every model, each seed a connection of [`BATCH`] in a run at a low load: the seeds of 100 that follow each law at 1 %, at the
/// sender and, where the receiver compares, as they arrive. The row of a model is its worst law; all laws are printed.
pub fn models(options: &Options, _: &Peers, _: bool) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for definition in MODELS.iter().filter(|definition| options.wants_model(definition.name)) {
        let variants =
            definition.choice.map_or(vec![None], |c| c.variants.iter().map(|v| Some(v.name)).collect());
        for variant in variants {
            let name = [Some(definition.name), variant].into_iter().flatten().collect::<Vec<_>>().join(" ");
            let passes = passes(definition, variant, options)?;
            for (law, [passed, of, fewest]) in &passes {
                eprintln!(
                    "models live: {name}: {law}: {passed} of {of} seeds, each at least {fewest} values"
                );
            }
            if passes.is_empty() {
                eprintln!("models live: {name}: no parameter is drawn from a law");
                continue;
            }
            let share = |[passed, of, _]: &[u64; 3]| 100.0 * *passed as f64 / *of as f64;
            let worst = passes.values().map(share).fold(100.0, f64::min);
            let figures = [Figure("seeds that follow, worst law, %", 0, Target::Between(90.0, 100.0))];
            let tools = [Tool { name: "trunkline", every: 1, run: Box::new(move |_| Ok(vec![Some(worst)])) }];
            rows.extend(contest::hold(&format!("model {name}, live"), &figures, &tools, 1)?);
        }
    }
    Ok(rows)
}

/// Returns for each law and end how many seeds pass, of how many, and the fewest values of one.
fn passes(
    definition: &Definition,
    variant: Option<&str>,
    options: &Options,
) -> Outcome<BTreeMap<String, [u64; 3]>> {
    let mut passes: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    let mut seeds = 0;
    while seeds < options.model_seeds {
        let batch = BATCH.min(options.model_seeds - seeds);
        let mut text = String::from("experiment \"models\" { parallel {\n");
        for index in 0..batch {
            let protocol =
                if definition.needs_stream || definition.max_outstanding > 0 { "tcp" } else { "udp" };
            let test = test(definition, variant);
            let seconds = options.model_seconds;
            let _ = writeln!(
                text,
                "connection c{index} {{ xmt = a; rcv = b; protocol = {protocol}; test = {test}; duration = {seconds} s; }}"
            );
        }
        text.push_str("} }\n");
        let record = ours::experiment(&text, seeds + 1, &[])?;
        for connection in record["connections"].as_array().into_iter().flatten() {
            for (end, fits) in [("sent", "/asked/variables"), ("received", "/asked/received")] {
                for fit in connection.pointer(fits).and_then(Value::as_array).into_iter().flatten() {
                    let (Some(p), Some(law)) = (fit["p_value"].as_f64(), fit["name"].as_str()) else {
                        continue;
                    };
                    let samples = fit["samples"].as_u64().unwrap_or(0);
                    let entry = passes.entry(format!("{end} {law}")).or_insert([0, 0, u64::MAX]);
                    *entry = [entry[0] + u64::from(p >= 0.01), entry[1] + 1, entry[2].min(samples)];
                }
            }
        }
        seeds += batch;
    }
    Ok(passes)
}

/// Returns the test of a model whose times have means of at most 50 ms, so that a short run has many of them, but of at least 5 ms,
/// so that a machine is in time; sessions have few items. Times keep the form of their law; sizes are at most a packet.
fn test(definition: &Definition, variant: Option<&str>) -> String {
    let mut options = Vec::new();
    options.extend(
        definition.choice.zip(variant).map(|(choice, variant)| format!("{} = {variant}", choice.name)),
    );
    let application = Application::named(definition.name).expect("a model");
    for (parameter, (name, value)) in definition.parameters.iter().zip(application.defaults(variant)) {
        let mean = trunkline_traffic::Law::new(value.clone(), 0.0).ok().and_then(|law| law.mean());
        let is_long = parameter.unit == Unit::Seconds && mean.is_some_and(|mean| mean > 0.05);
        // A time after the phase of a sensor must stay within its period.
        if is_long && !value_is_constant(&value) && parameter.name != "jitter" {
            options.push(format!("{name} = exponential(50 ms)"));
        }
        if parameter.unit == Unit::Count && !parameter.is_constant && mean.is_some_and(|mean| mean > 8.0) {
            options.push(format!("{name} = exponential(4)"));
        }
        let is_drawn = !value_is_constant(&value);
        if parameter.unit == Unit::Bytes
            && !parameter.is_constant
            && (!is_drawn || mean.is_some_and(|mean| mean > 1_400.0))
        {
            options.push(format!("{name} = uniform(100 B, 1300 B)"));
        }
    }
    options.extend(
        SETTINGS.iter().filter(|(model, _)| *model == definition.name).map(|(_, text)| (*text).to_owned()),
    );
    format!("{} ({})", definition.name, options.join(", "))
}

fn value_is_constant(value: &trunkline_traffic::Variable) -> bool {
    matches!(value, trunkline_traffic::Variable::Constant(_))
}

/// 1,000 sessions at once: remote login, file transfers, conversations and web pages over several connections. The lateness of
/// messages after their due time; p99 of the connection whose p99 is largest.
pub fn sessions(options: &Options, _: &Peers, _: bool) -> Outcome<Vec<Row>> {
    let text = many_sessions(options.seconds);
    let figures = [
        Figure("messages later than 1 ms, %", 2, Target::Below(1.0)),
        Figure("lateness of messages, p50 of the worst connection, µs", 1, Target::None),
        Figure("lateness of messages, p99 of the worst connection, µs", 0, Target::None),
        Figure("messages a second", 0, Target::None),
        Figure("sessions at the end of a run", 0, Target::Between(0.9 * SESSIONS as f64, f64::INFINITY)),
    ];
    let run = move |round: usize| {
        let record = ours::experiment(&text, round + 1, &[])?;
        let connections = record["connections"].as_array().cloned().unwrap_or_default();
        let late = |share: &str| {
            let values = connections.iter().filter_map(|c| c.pointer(&format!("/late_us/{share}"))?.as_f64());
            values.fold(0.0, f64::max)
        };
        let later: f64 = connections.iter().map(|c| later_than(c, 1_000.0)).sum();
        let sum = |path: &str| connections.iter().filter_map(|c| c.pointer(path)?.as_f64()).sum::<f64>();
        let per_second = sum("/messages_sent") / record["duration_s"].as_f64().unwrap_or(1.0);
        let single = connections.iter().filter(|c| c.pointer("/counters/sessions").is_none()).count();
        let sessions = sum("/counters/sessions") + single as f64;
        let later = 100.0 * later / sum("/late_us/count");
        Ok(vec![Some(later), Some(late("p50")), Some(late("p99")), Some(per_second), Some(sessions)])
    };
    let tools = [Tool { name: "trunkline", every: 1, run: Box::new(run) }];
    contest::hold(&format!("{SESSIONS} sessions"), &figures, &tools, options.rounds)
}

/// Returns how many messages of a connection left later than `us` after they were due.
fn later_than(connection: &Value, us: f64) -> f64 {
    let late = &connection["late_us"];
    let points = late["curve"].as_array().into_iter().flatten();
    let points = points.filter_map(|point| Some((point.get(0)?.as_f64()?, point.get(1)?.as_f64()?)));
    let in_time = points.filter(|(_, value)| *value <= us).map(|(share, _)| share).fold(0.0, f64::max);
    late["count"].as_f64().unwrap_or(0.0) * (1.0 - in_time)
}

/// Sessions that begin in the first tenth of a second and last longer than the run: 4 connections of 200 logins, 4 of 40 file
/// transfers, 20 conversations and 20 users of the web.
fn many_sessions(seconds: u64) -> String {
    let mut text = String::from("experiment \"sessions\" { parallel {\n");
    let mut connection = |count: usize, protocol: &str, test: &str| {
        for _ in 0..count {
            let _ = writeln!(
                text,
                "connection {{ xmt = a; rcv = b; protocol = {protocol}; test = {test}; duration = {seconds} s; }}"
            );
        }
    };
    connection(4, "tcp", "telnet (sessionInterarrival = 500 us, nOfItems = 100000, maxSessions = 200)");
    connection(
        4,
        "tcp",
        "ftp (sessionInterarrival = 2500 us, nOfItems = 100000, maxSessions = 40, \
         itemSize = truncated(pareto(1.1, 2 kB), 2 kB, 1 MB))",
    );
    connection(20, "udp", "voice");
    connection(20, "tcp", "www (reading = exponential(500 ms))");
    text.push_str("} }\n");
    text
}
