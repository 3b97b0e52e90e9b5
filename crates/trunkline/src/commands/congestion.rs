//! `trunkline reproduce congestion`: credits, explicit rates and admission on ATM, TCP controllers and queue disciplines, checked
//! and printed as tables.
//!
//! | part | what is checked |
//! | --- | --- |
//! | `credits` | tables 20 to 22 of the AAI report; what a window carries against its closed form |
//! | `rates` | explicit rates against the max–min shares, after ten round trips |
//! | `admission` | the loss at the highest load that each method admits |
//! | `controllers` | CUBIC and DCTCP against ns-3 |
//! | `queues` | the targets of queue disciplines |
//!
//! `curves` draws them.

mod controllers;
mod curves;
mod queues;

use std::path::Path;

use serde_json::{Value, json};
use trunkline_experiment::{Plan, Source, apply_overrides, parse};
use trunkline_models::atm::abr::Algorithm;
use trunkline_models::atm::abr::convergence::{self, Case, Outcome, TOLERANCE};
use trunkline_models::atm::abr::erica::TARGET_UTILIZATION;
use trunkline_models::atm::admission::Method;
use trunkline_models::atm::admission::onoff::{self, LINE, PROFILES, Profile};
use trunkline_models::atm::credits::{CreditOptions, window_share};
use trunkline_record::Record;
use trunkline_record::metric::metric;
use trunkline_reproduction::table::table;
use trunkline_run::StopFlag;
use trunkline_units::{Rate, Seed, Span};

use super::pool;
use super::report::{create_folder, write_atomically};
use super::reproduce::{compare, jobs};
use super::run::stop_on_signals;
use crate::failure::{Failure, print};
use crate::flags::Reproduce;

/// The name in place of a paper.
pub const NAME: &str = "congestion";
const PARTS: [&str; 5] = ["credits", "rates", "admission", "controllers", "queues"];
/// The name that draws curves instead of checking.
const CURVES: &str = "curves";
/// Version of the JSON.
const VERSION: u32 = 1;

/// Numbers of credits in the sweep; the report chose 319.
const CREDITS: [u64; 12] = [10, 20, 40, 80, 120, 160, 200, 240, 280, 319, 360, 420];
/// One stream from host C to host A of tables 20 to 22.
const SWEEP: &str = include_str!("../../../../experiments/credits.ns");
/// Propagation delay of host C's line, and the cells that OC-3c carries.
const DELAY: Span = Span::from_us(500);
const PAYLOAD: Rate = Rate::from_bps(149_760_000);
/// Messages of the sweep, in one packet of 192 cells.
const MESSAGE_BITS: f64 = 9_152.0 * 8.0;
const PACKET_BITS: f64 = 192.0 * 424.0;
/// Permitted deviation of the sweep from the closed form.
const SWEEP_TOLERANCE: f64 = 0.03;

/// Bursts of each simulation of admitted sources.
const BURSTS: u64 = 1_000_000;
const METHODS: [(&str, Method); 3] =
    [("peak", Method::Peak), ("equivalent", Method::Equivalent), ("measured", Method::Measured)];

/// The result of a part.
struct Part {
    text: String,
    json: Value,
    checks: Vec<Check>,
}

/// A property that must hold.
struct Check {
    text: String,
    passed: bool,
}

/// Runs the parts and prints them.
pub fn congestion(flags: &Reproduce) -> Result<(), Failure> {
    let wanted = flags.table.as_deref();
    if wanted == Some(CURVES) {
        return curves::draw(flags);
    }
    if let Some(name) = wanted.filter(|name| !PARTS.contains(name)) {
        let parts = [&PARTS[..], &[CURVES]].concat().join(", ");
        return Err(Failure::input(format!("unknown part `{name}` of congestion; the parts are: {parts}")));
    }
    let stop = stop_on_signals()?;
    let threads = pool::threads(flags.threads);
    flags.out.as_deref().map_or(Ok(()), create_folder)?;
    let (mut text, mut json, mut checks) = (String::new(), json!({ "version": VERSION }), Vec::new());
    for name in PARTS.into_iter().filter(|name| wanted.is_none_or(|wanted| wanted == *name)) {
        let part = match name {
            "credits" => credits(flags, threads, &stop)?,
            "rates" => rates(threads, &stop)?,
            "controllers" => controllers::controllers(threads, &stop)?,
            "queues" => queues::queues(threads, &stop)?,
            _ => admission(BURSTS, threads, &stop)?,
        };
        text += &part.text;
        json[name] = part.json;
        checks.extend(part.checks);
    }
    for check in &checks {
        text += &format!("{} {}\n", if check.passed { "yes" } else { "NO " }, check.text);
    }
    json["checks"] = checks.iter().map(|c| json!({ "text": c.text, "passed": c.passed })).collect();
    let json = serde_json::to_string_pretty(&json).expect("text keys only") + "\n";
    if let Some(out) = &flags.out {
        write_atomically(&out.join("congestion.json"), json.as_bytes())?;
        write_atomically(&out.join("congestion.txt"), text.as_bytes())?;
    }
    print(if flags.json { &json } else { &text })?;
    match checks.iter().filter(|check| !check.passed).count() {
        0 => Ok(()),
        failed => Err(Failure::run(format!("{failed} of {} checks failed", checks.len()))),
    }
}

/// Tables 20 to 22, and the throughput by credits.
fn credits(flags: &Reproduce, threads: usize, stop: &StopFlag) -> Result<Part, Failure> {
    let mut studies = Vec::new();
    for number in ["20", "21", "22"] {
        studies.extend(jobs(Some("aai"), Some(number), flags.seeds)?);
    }
    let compared = compare(&studies, threads, stop)?;
    let text = table(&compared);
    let ours = |table: &str, row: &str| {
        let found = compared.iter().find(|c| c.table == table && c.cell.row == row);
        found.and_then(|c| c.ours.mean).unwrap_or(f64::NAN)
    };
    let mut checks: Vec<Check> = compared
        .iter()
        .filter_map(|c| Some((c, c.is_within()?)))
        .map(|(c, passed)| Check { text: format!("table {}: {}", c.table, c.cell.row), passed })
        .collect();
    for (number, first, second) in [
        ("20", "C to A TCP, credits", "B to A TCP, credits"),
        ("21", "C to A UDP, credits", "B to A UDP, credits"),
    ] {
        let (x, y) = (ours(number, first), ours(number, second));
        let jain = (x + y) * (x + y) / (2.0 * (x * x + y * y));
        let text = format!("table {number}: Jain's index with credits {jain:.4}, at least 0.99");
        checks.push(Check { text, passed: jain >= 0.99 });
    }
    let gain = ours("21", "aggregate, credits") / ours("21", "aggregate, none");
    let text_of_gain =
        format!("table 21: credits raise the throughput {gain:.0} times, at least 9 as in the report");
    checks.push(Check { text: text_of_gain, passed: gain >= 9.0 });

    let tables: Vec<Value> = compared
        .iter()
        .map(|c| {
            json!({ "table": c.table, "row": c.cell.row, "paper": c.cell.paper, "mean": c.ours.mean,
                "within": c.is_within(), "limited_by": c.cell.limit })
        })
        .collect();
    let sweep = sweep(&CREDITS, threads, stop)?;
    checks.extend(sweep.checks);
    Ok(Part {
        text: text + "\n" + &sweep.text,
        json: json!({ "tables": tables, "sweep": sweep.json }),
        checks,
    })
}

/// The throughput of one stream by credits, and the closed form.
fn sweep(windows: &[u64], threads: usize, stop: &StopFlag) -> Result<Part, Failure> {
    let measured = pool::run_all("credits", windows.len(), threads, stop, |at| {
        Some(throughput(windows[at], stop).map_err(|error| format!("{} credits: {error}", windows[at])))
    });
    let mut text = String::from("credits  closed form, Mb/s  simulated, Mb/s  deviation\n");
    let (mut rows, mut checks) = (Vec::new(), Vec::new());
    for (&window, measured) in windows.iter().zip(measured) {
        let measured = finished(measured, stop)?;
        let expected = closed_form(window);
        let deviation = measured / expected - 1.0;
        let mark = if window == 319 { "  the report's choice" } else { "" };
        text += &format!(
            "{window:>7}  {expected:>17.1}  {measured:>15.1}  {:>+7.1} %{mark}\n",
            deviation * 100.0
        );
        rows.push(json!({ "credits": window, "closed_form_mbps": expected, "simulated_mbps": measured }));
        checks.push(Check {
            text: format!("{window} credits: within 3 % of the closed form"),
            passed: deviation.abs() <= SWEEP_TOLERANCE,
        });
    }
    Ok(Part { text: text + "\n", json: rows.into(), checks })
}

/// Returns the plan of an experiment with overrides.
fn plan(text: &str, changes: &[(&str, &str)]) -> Plan {
    let parsed = parse(&Source { name: NAME, text, folder: None });
    let mut plan = parsed.plan.expect("tests check every experiment");
    apply_overrides(&mut plan, changes.iter().copied()).expect("tests check every override");
    plan
}

fn simulate(plan: &Plan, stop: &StopFlag) -> Result<Record, String> {
    let nowhere = Path::new("");
    pool::simulate(plan, Seed::default(), nowhere, nowhere, stop)
}

/// Returns the result of a run in a pool.
fn finished<T>(result: Option<Result<T, String>>, stop: &StopFlag) -> Result<T, Failure> {
    match result {
        Some(Ok(result)) => Ok(result),
        Some(Err(error)) if !stop.is_requested() => Err(Failure::run(error)),
        _ => Err(Failure::run("stopped on request")),
    }
}

/// Returns the throughput of one stream with this many credits in closed form, in Mb/s.
fn closed_form(window: u64) -> f64 {
    let share = window_share(&CreditOptions::new(window, DELAY * 2), PAYLOAD, DELAY);
    share * PAYLOAD.as_bps() as f64 / 1e6 * MESSAGE_BITS / PACKET_BITS
}

/// Simulates one stream with this many credits; returns its throughput in Mb/s.
fn throughput(window: u64, stop: &StopFlag) -> Result<f64, String> {
    let window = window.to_string();
    let changes = [("c-s.credits", window.as_str()), ("a-s.credits", window.as_str())];
    let record = simulate(&plan(SWEEP, &changes), stop)?;
    metric(&record, "C-A", "received_bps").map(|bps| bps / 1e6).ok_or_else(|| "nothing was received".into())
}

/// Explicit rates against the max–min shares.
fn rates(threads: usize, stop: &StopFlag) -> Result<Part, Failure> {
    let cases: Vec<Case> = convergence::cases().collect();
    let erica = Algorithm::Erica { utilization: TARGET_UTILIZATION, interval: Span::from_ms(1) };
    let outcomes = pool::run_all("rates", cases.len(), threads, stop, |at| {
        Some((cases[at].run(Algorithm::Controllers), cases[at].run(erica)))
    });
    let outcomes: Option<Vec<(Outcome, Outcome)>> = outcomes.into_iter().collect();
    let outcomes = outcomes.ok_or_else(|| Failure::run("stopped on request"))?;
    let worst = |outcome: &Outcome| outcome.joined.max(outcome.changed);
    let mut text = String::from(
        "explicit rates: largest deviation from the max–min shares after 10 round trips, over 1, 10, 36 and 100 ms\n\
         sources  bottlenecks  controllers  settled after  ERICA, median\n",
    );
    let mut rows = Vec::new();
    for (chunk, outcomes) in cases.chunks(4).zip(outcomes.chunks(4)) {
        let deviation = outcomes.iter().map(|(ours, _)| worst(ours)).fold(0.0, f64::max);
        let settled = outcomes.iter().map(|(ours, _)| ours.settled_after).fold(0.0, f64::max);
        let mut others: Vec<f64> = outcomes.iter().map(|(_, erica)| worst(erica)).collect();
        others.sort_by(f64::total_cmp);
        let (Case { sources, bottlenecks, .. }, median) = (chunk[0], others[others.len() / 2]);
        text += &format!(
            "{sources:>7}  {bottlenecks:>11}  {:>9.4} %  {settled:>7.1} trips  {:>7.1} %\n",
            deviation * 100.0,
            median * 100.0
        );
        rows.push(json!({ "sources": sources, "bottlenecks": bottlenecks, "controllers": deviation,
            "settled_after_round_trips": settled, "erica_median": median }));
    }
    let near = outcomes.iter().filter(|(ours, _)| worst(ours) <= TOLERANCE).count();
    let text_of_check =
        format!("explicit rates: {near} of {} cases within 5 % after 10 round trips", cases.len());
    let checks = vec![Check { text: text_of_check, passed: near == cases.len() }];
    Ok(Part { text: text + "\n", json: rows.into(), checks })
}

/// Loss at the highest load that each method admits, in so many bursts of the sources.
fn admission(bursts: u64, threads: usize, stop: &StopFlag) -> Result<Part, Failure> {
    let runs: Vec<(&Profile, &str, Method)> = PROFILES
        .iter()
        .flat_map(|profile| METHODS.iter().map(move |(name, method)| (profile, *name, *method)))
        .collect();
    let outcomes = pool::run_all("admission", runs.len(), threads, stop, |at| {
        let (profile, _, method) = runs[at];
        Some(onoff::compare(&LINE, method, profile, bursts, Seed::default()))
    });
    let mut text = format!(
        "admission: connections until one is refused, on {} with a loss of at most {:.0e}\n\
         sources                             method      connections  carried  loss      promised\n",
        LINE.capacity, LINE.loss
    );
    let (mut rows, mut checks) = (Vec::new(), Vec::new());
    for ((profile, name, _), outcome) in runs.iter().zip(outcomes) {
        let outcome = outcome.ok_or_else(|| Failure::run("stopped on request"))?;
        let passed = outcome.loss <= LINE.loss;
        let mark = match (profile.is_promised, passed) {
            (true, true) => "yes",
            (true, false) => "NO",
            (false, true) => "-",
            (false, false) => "- above the target",
        };
        text += &format!(
            "{:<34}  {name:<10}  {:>11}  {:>5.1} %  {:<8.1e}  {mark}\n",
            profile.name,
            outcome.connections,
            outcome.utilization * 100.0,
            outcome.loss
        );
        rows.push(json!({ "sources": profile.name, "method": name, "connections": outcome.connections,
            "utilization": outcome.utilization, "loss": outcome.loss, "promised": profile.is_promised }));
        if profile.is_promised {
            let text = format!("admission, {name}: {}, loss below the target", profile.name);
            checks.push(Check { text, passed });
        }
    }
    Ok(Part { text: text + "\n", json: rows.into(), checks })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that all that a part promises holds; returns its lines from the first row, and the rows of its JSON.
    fn rows_of(part: &Part, promises: usize, heading: usize) -> Vec<(Vec<&str>, &Value)> {
        assert_eq!(part.checks.len(), promises);
        part.checks.iter().for_each(|check| assert!(check.passed, "{}", check.text));
        let json = part.json.as_array().expect("a list");
        let lines: Vec<&str> = part.text.trim_end().lines().skip(heading).collect();
        assert_eq!(lines.len(), json.len(), "{}", part.text);
        lines
            .into_iter()
            .map(|line| line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect())
            .zip(json)
            .collect()
    }

    #[test]
    fn few_credits_and_many_carry_as_much_as_in_closed_form() {
        let part = sweep(&[10, 319, 420], 1, &StopFlag::default()).expect("the runs succeed");
        let rows = rows_of(&part, 3, 1);
        let simulated: Vec<f64> =
            rows.iter().map(|(_, json)| json["simulated_mbps"].as_f64().expect("a number")).collect();
        // A window, what a round trip leaves of the line, and all of the line.
        for (simulated, expected) in simulated.iter().zip([3.7, 117.2, 134.6]) {
            assert!((simulated / expected - 1.0).abs() < 0.02, "{simulated} {expected}");
        }
        assert_eq!(rows[1].0[0], "319");
        assert_eq!(rows[1].0.last(), Some(&"the report's choice"), "{}", part.text);
        assert_eq!(rows[1].0[2], format!("{:.1}", simulated[1]));
    }

    #[test]
    fn a_table_of_admission_has_a_row_for_each_kind_of_source_and_method() {
        let part = admission(20_000, 1, &StopFlag::default()).expect("the runs succeed");
        let rows = rows_of(&part, 9, 2);
        assert_eq!(rows.len(), PROFILES.len() * METHODS.len());
        let promised = rows.iter().filter(|(words, _)| words.last() == Some(&"yes")).count();
        assert_eq!(promised, 9, "{}", part.text);
        let lies: Vec<_> =
            rows.iter().filter(|(words, _)| words.last() == Some(&"- above the target")).collect();
        assert_eq!(lies.len(), 1, "{}", part.text);
        assert_eq!(
            (&lies[0].1["sources"], &lies[0].1["method"]),
            (&json!("twice the declared mean"), &json!("equivalent"))
        );
    }
}
