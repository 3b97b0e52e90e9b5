//! `trunkline monitor list`.

use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::json;
use trunkline_counters::archive::export;
use trunkline_report::sanitize;

use super::time::format_moment;
use super::{open_reader, patterns};
use crate::archive::counters_archive;
use crate::failure::{Failure, print};
use crate::flags::monitor::List;

/// Lists tables, or the series that match `--series`.
pub fn list(flags: &List) -> Result<(), Failure> {
    let archive = counters_archive(&flags.archive, flags.positional.as_ref())?;
    let reader = open_reader(&archive)?;
    let patterns = patterns(&flags.series);
    let (mut tables, mut count) = (0u64, 0u64);
    let mut printed = Ok(());
    if !flags.json && patterns.is_empty() {
        print(&row(["DEVICE", "TABLE", "SERIES", "EVERY", "FROM", "TO"]))?;
    }
    let _: ControlFlow<()> = reader.for_each_selected(&patterns, |table, series| {
        tables += 1;
        count += series.len() as u64;
        let mut text = String::new();
        if patterns.is_empty() {
            let extent = reader.time_range(table.id)?;
            let ends = [extent.map(|e| e.0), extent.map(|e| e.1)].map(|m| m.map(format_moment));
            if flags.json {
                let line = json!({
                    "device": table.device, "table": table.name, "series": series.len(),
                    "period_s": table.period.as_secs_f64(), "from": ends[0], "to": ends[1],
                });
                text = format!("{line}\n");
            } else {
                let [from, to] = ends.map(|end| end.unwrap_or_else(|| "–".into()));
                let (device, name) = (sanitize(&table.device), sanitize(&table.name));
                text = row([
                    &device,
                    &name,
                    &series.len().to_string(),
                    &format_period(table.period),
                    &from,
                    &to,
                ]);
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
                    sanitize(&format!("{}:{}  {kind}  {}", table.device, one.name, one.unit)) + "\n"
                };
            }
        }
        printed = print(&text);
        Ok(if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    printed?;
    if flags.json {
        return Ok(());
    }
    let bytes = reader.size_bytes()?;
    print(&format!("{tables} tables, {count} series, {bytes} bytes\n"))
}

fn row(fields: [&str; 6]) -> String {
    let [device, table, series, every, from, to] = fields;
    format!("{device:<24}  {table:<20}  {series:>7}  {every:>8}  {from:<30}  {to}\n")
}

fn format_period(period: Duration) -> String {
    format!(
        "{} s",
        export::format_seconds(period.as_nanos() as i128).trim_end_matches('0').trim_end_matches('.')
    )
}
