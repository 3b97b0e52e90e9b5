//! Output of one line or JSON object per interval, for pipes and scripts.

use serde_json::{Value, json};
use trunkline_capture::Monitor;
use trunkline_capture::exchange::Times;
use trunkline_capture::name::{Class, Connection, Service, Station};
use trunkline_capture::table::{Row, Table};
use trunkline_units::Span;

use super::rank::{Sort, format_time_of_day, group_digits, rank_rows, with_prefix};
use super::session::{ClosedSample, Progress, Session};
use crate::failure::{Failure, print};
use crate::flags::Top;

/// Version of the JSON output.
const VERSION: u32 = 1;
/// Number of rows printed of each table.
const ROWS: usize = 20;

/// Prints samples until the source ends, the duration is over or a signal arrives.
pub fn watch(flags: &Top, session: &mut Session) -> Result<(), Failure> {
    loop {
        let progress = session.watch(Span::from_ms(100))?;
        if progress != Progress::Running {
            session.close_sample();
        }
        let samples = session.take_samples()?;
        for sample in &samples {
            print(&if flags.json { object(session, sample) } else { line(session, sample) })?;
        }
        if progress != Progress::Running {
            break;
        }
    }
    print(&if flags.json { end(session) } else { summary(session) })?;
    session.outcome()
}

fn line(session: &Session, ClosedSample { sample, total }: &ClosedSample) -> String {
    let (packets, bits) = session.monitor.load().rates(sample.shown);
    let mut line = format!(
        "{}  {:>10}  {:>10}  total {} packets, {}",
        format_time_of_day(sample.at_ns, 0),
        with_prefix(packets, "pkt/s"),
        with_prefix(bits, "b/s"),
        group_digits(total.packets),
        with_prefix(total.bytes as f64, "B"),
    );
    if let Some((_, dropped)) = session.kernel {
        line += &format!("  dropped {}", group_digits(dropped));
    }
    let tally = session.monitor.exchanges().total();
    if tally.messages > 0 {
        line += &format!(
            "  llc: {} messages, {} repeats, {} unanswered, {} late",
            tally.messages, tally.repeats, tally.unanswered, tally.late
        );
    }
    line + "\n"
}

fn summary(session: &Session) -> String {
    let monitor = &session.monitor;
    let mut text = String::new();
    text += &part("stations", monitor.stations());
    text += &part("services", monitor.services());
    text += &part("connections", monitor.connections());
    text
}

fn part<K: Ord + Copy + std::fmt::Display>(title: &str, table: &Table<K>) -> String {
    if table.is_empty() {
        return String::new();
    }
    let row = |name: &str, row: &Row| {
        format!(
            "{name:<50} {:>14} {:>12}\n",
            group_digits(row.total.packets),
            with_prefix(row.total.bytes as f64, "B")
        )
    };
    let mut text = format!("\n{title:<50} {:>14} {:>12}\n", "packets", "bytes");
    let all = rank_rows(table, Sort::Total);
    for ranked in all.iter().take(ROWS) {
        text += &row(&ranked.key.to_string(), ranked.row);
    }
    if all.len() > ROWS {
        text += &format!("and {} more\n", all.len() - ROWS);
    }
    if table.others().total.packets > 0 {
        text += &row("others", table.others());
    }
    text
}

fn object(session: &Session, ClosedSample { sample, total }: &ClosedSample) -> String {
    let (monitor, load) = (&session.monitor, session.monitor.load());
    let (packets_per_s, bits_per_s) = load.rates(sample.shown);
    let mut object = json!({
        "version": VERSION,
        "source": session.name(),
        "time_s": sample.at_ns as f64 / 1e9,
        "interval_s": load.interval_ns() as f64 / 1e9,
        "packets": sample.shown.packets,
        "bytes": sample.shown.bytes,
        "packets_per_s": packets_per_s,
        "bits_per_s": bits_per_s,
        "unfiltered": { "packets": sample.all.packets, "bytes": sample.all.bytes },
        "total": { "packets": total.packets, "bytes": total.bytes },
    });
    add_totals(&mut object, session, monitor);
    format!("{object}\n")
}

/// Adds the current totals to the object of a sample.
fn add_totals(object: &mut Value, session: &Session, monitor: &Monitor) {
    object["kernel"] = match session.kernel {
        Some((frames, dropped)) => json!({ "frames": frames, "dropped": dropped }),
        None => Value::Null,
    };
    object["stations"] = rows(monitor.stations(), Station::to_string);
    object["services"] = rows(monitor.services(), Service::to_string);
    object["connections"] = rows(monitor.connections(), Connection::to_string);
    let exchanges = monitor.exchanges();
    let tally = exchanges.total();
    object["priorities"] =
        exchanges.priorities().iter().map(|c| json!({ "packets": c.packets, "bytes": c.bytes })).collect();
    object["llc"] = json!({
        "messages": tally.messages, "repeats": tally.repeats, "most_tries": tally.most_tries,
        "unanswered": tally.unanswered, "late": tally.late, "answers": times(tally.answers),
        "strange": exchanges.strange(),
    });
    let ring = monitor.ring();
    object["token"] = json!({
        "passes": ring.passes(), "repeats": ring.repeats(), "replaced": ring.replaced(),
        "members": ring.members().iter().collect::<Vec<u8>>(), "rotation": times(ring.rotation()),
    });
}

fn times(times: Times) -> Value {
    let us = |ns: u64| ns as f64 / 1e3;
    json!({
        "count": times.count, "mean_us": times.mean_ns().map(us),
        "max_us": (times.count > 0).then(|| us(times.max_ns)),
    })
}

/// Returns the busiest rows of a table, and the sum of the others.
fn rows<K: Ord + Copy>(table: &Table<K>, name: fn(&K) -> String) -> Value {
    let all = rank_rows(table, Sort::Total);
    let row = |row: &Row| {
        let classes = Class::ALL.iter().zip(row.recent()).filter(|(_, count)| count.packets > 0);
        let classes: serde_json::Map<String, Value> =
            classes.map(|(class, count)| (class.name().into(), count.bytes.into())).collect();
        json!({
            "packets": row.total.packets, "bytes": row.total.bytes,
            "last": { "packets": row.last.packets, "bytes": row.last.bytes },
            "max": { "packets": row.max.packets, "bytes": row.max.bytes },
            "recent_bytes": classes,
        })
    };
    let named = all.iter().take(ROWS).map(|ranked| {
        let mut object = row(ranked.row);
        object["name"] = name(&ranked.key).into();
        object
    });
    json!({ "count": table.len(), "rows": named.collect::<Vec<_>>(), "others": row(table.others()) })
}

fn end(session: &Session) -> String {
    let mut object = json!({
        "version": VERSION, "source": session.name(), "end": true, "note": session.note,
        "total": { "packets": session.total.packets, "bytes": session.total.bytes },
    });
    add_totals(&mut object, session, &session.monitor);
    format!("{object}\n")
}
