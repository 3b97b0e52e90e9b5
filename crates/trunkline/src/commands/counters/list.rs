//! `trunkline monitor list`.

use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::json;
use trunkline_counters::archive::flat;
use trunkline_report::plain;

use super::time::written;
use super::{existing, failed, patterns};
use crate::failure::{Failure, say};
use crate::flags::counters::List;

/// Lists tables, or the series that are named.
pub fn list(flags: &List) -> Result<(), Failure> {
    let reader = existing(&flags.archive)?;
    let patterns = patterns(&flags.series);
    let (mut tables, mut count) = (0u64, 0u64);
    let mut told = Ok(());
    if !flags.json && patterns.is_empty() {
        say(&row(["DEVICE", "TABLE", "SERIES", "EVERY", "FROM", "TO"]))?;
    }
    let _: ControlFlow<()> = reader
        .each_chosen(&patterns, |table, series| {
            tables += 1;
            count += series.len() as u64;
            let mut text = String::new();
            if patterns.is_empty() {
                let extent = reader.extent(table.id)?;
                let ends = [extent.map(|e| e.0), extent.map(|e| e.1)].map(|m| m.map(written));
                if flags.json {
                    let line = json!({
                        "device": table.device, "table": table.name, "series": series.len(),
                        "period_s": table.period.as_secs_f64(), "from": ends[0], "to": ends[1],
                    });
                    text = format!("{line}\n");
                } else {
                    let [from, to] = ends.map(|end| end.unwrap_or_else(|| "–".into()));
                    let (device, name) = (plain(&table.device), plain(&table.name));
                    text =
                        row([&device, &name, &series.len().to_string(), &length(table.period), &from, &to]);
                }
            } else {
                for one in series {
                    let kind = one.column.kind.name();
                    text += &if flags.json {
                        let line = json!({
                            "device": table.device, "table": table.name, "series": one.name, "kind": kind,
                            "unit": one.unit,
                        });
                        format!("{line}\n")
                    } else {
                        plain(&format!("{}:{}  {kind}  {}", table.device, one.name, one.unit)) + "\n"
                    };
                }
            }
            told = say(&text);
            Ok(if told.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })
        .map_err(failed)?;
    told?;
    if flags.json {
        return Ok(());
    }
    let bytes = reader.bytes().map_err(failed)?;
    say(&format!("{tables} tables, {count} series, {bytes} bytes\n"))
}

fn row(fields: [&str; 6]) -> String {
    let [device, table, series, every, from, to] = fields;
    format!("{device:<24}  {table:<20}  {series:>7}  {every:>8}  {from:<30}  {to}\n")
}

fn length(period: Duration) -> String {
    format!("{} s", flat::nine(period.as_nanos() as i128).trim_end_matches('0').trim_end_matches('.'))
}
