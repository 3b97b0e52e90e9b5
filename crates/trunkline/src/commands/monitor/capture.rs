//! `trunkline monitor capture`: packets counted by flow.
//!
//! Each interval appends one response to one table: the octets and packets of each flow in both directions since the start
//! of the capture. A new flow gets a reading of 0 at the end of the previous interval, so that its first interval counts.

use std::path::Path;
use std::time::Duration;

use trunkline_capture::flow::Flows;
use trunkline_capture::monitor::Limits;
use trunkline_capture::table::Count;
use trunkline_counters::archive::writer::FlushStats;
use trunkline_counters::archive::{
    Direction, Error, Location, Object, SeriesName, SeriesSpec, TableId, TableSpec, Writer,
};
use trunkline_counters::counter::{Answer, RawValue, Response, Timestamp, ValueKind};
use trunkline_units::Span;

use crate::archive::counters_archive;
use crate::failure::{Failure, print};
use crate::flags::Top;
use crate::flags::monitor::Capture;
use crate::top::session::{ClosedSample, Progress, Session};

/// Counts flows until the source ends, the duration is over or a signal arrives.
pub fn capture(flags: &Capture) -> Result<(), Failure> {
    let limits =
        Limits { flows: flags.flows as usize, stations: 0, services: 0, connections: 0, ..Limits::default() };
    let archive = counters_archive(&flags.archive, None)?;
    let options = Top {
        source: flags.source.clone(),
        filter: flags.filter_flag.iter().chain(&flags.filter).cloned().collect(),
        interval: flags.interval,
        timeout: Span::from_s(1),
        duration: flags.duration,
        buffer: flags.buffer,
        ..Top::default()
    };
    let mut session = Session::open(&options, limits, flags.by)?;
    let mut table = FlowTable::new(flags, session.name(), &archive)?;
    loop {
        let progress = session.watch(Span::from_ms(100))?;
        let seen = Timestamp(session.monitor.load().now_ns() as i64);
        let mut samples = session.take_samples()?;
        table.write(&samples, session.monitor.flows(), Timestamp::MAX)?;
        if progress == Progress::Running {
            continue;
        }
        // The last interval ends with the last packet.
        session.close_sample();
        samples = session.take_samples()?;
        table.writer.reset_backoff();
        table.write(&samples, session.monitor.flows(), seen)?;
        break;
    }
    let flows = session.monitor.flows();
    print(&format!(
        "{} packets, {} octets in {} flows; {} packets of other flows: {}\n",
        session.total.packets,
        session.total.bytes,
        flows.flows().len(),
        flows.others().packets,
        archive
    ))?;
    if let Some((_, dropped)) = session.kernel.filter(|(_, dropped)| *dropped > 0) {
        eprintln!("warning: {dropped} packets were dropped because the buffer was full: increase --buffer");
    }
    session.outcome()
}

/// The table of flows in an archive.
struct FlowTable {
    writer: Writer,
    spec: TableSpec,
    table: TableId,
    /// Number of flows that have series.
    known_flows: usize,
    started_at: Timestamp,
    /// Time and values of the last response.
    last: Option<(Timestamp, Vec<Option<RawValue>>)>,
    /// Whether the archive was unreachable, or another process wrote it, at the last attempt.
    is_unreachable: bool,
}

impl FlowTable {
    fn new(flags: &Capture, source: &str, archive: &Location) -> Result<FlowTable, Failure> {
        let stem = |name: &str| Path::new(name).file_stem().map(|s| s.to_string_lossy().into_owned());
        let device = match &flags.device {
            Some(device) => device.clone(),
            None if Path::new(&flags.source).exists() => stem(&flags.source).unwrap_or_default(),
            None => {
                std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
            }
        };
        let source = Path::new(source).file_name().map_or(source.into(), |name| name.to_string_lossy());
        let spec = TableSpec {
            device,
            name: format!("flows {source}"),
            period: flags.interval.into(),
            refresh: Some(Duration::ZERO),
            series: ["octets", "packets"].map(|quantity| series_spec("other", None, quantity)).into(),
        };
        let mut writer = Writer::open(archive)?;
        let table = writer.open_table(&spec)?.table;
        Ok(FlowTable {
            writer,
            spec,
            table,
            known_flows: 0,
            started_at: Timestamp(0),
            last: None,
            is_unreachable: false,
        })
    }

    /// Appends closed samples. No sample ends after `seen`.
    fn write(&mut self, samples: &[ClosedSample], flows: &Flows, seen: Timestamp) -> Result<(), Failure> {
        let Some(first) = samples.first() else { return Ok(()) };
        let begin = Timestamp(first.sample.at_ns as i64);
        if self.last.is_none() {
            self.started_at = begin;
            self.append(begin, vec![Some(RawValue(0)); 2]).map_err(|error| self.append_failure(error))?;
        }
        match self.add_new_flows(flows) {
            // Counters continue: the next response includes the packets in between.
            Err(error) if self.note_if_unreachable(&error) && seen == Timestamp::MAX => return Ok(()),
            done => done.map_err(|error| self.append_failure(error))?,
        }
        let values = flow_values(flows);
        // Of several samples only the total is known, unless only the first has packets.
        let is_idle = samples[1..].iter().all(|closed| closed.sample.shown == Count::default());
        for closed in if is_idle { samples } else { &samples[samples.len() - 1..] } {
            let end = Timestamp(closed.sample.at_ns as i64).saturating_add(self.spec.period).min(seen);
            let after =
                self.last.as_ref().map_or(end, |(last, _)| last.saturating_add(Duration::from_nanos(1)));
            match self.append(end.max(after), values.clone()) {
                // The buffer is full; continue as above.
                Err(error) if self.note_if_unreachable(&error) && seen == Timestamp::MAX => return Ok(()),
                done => done.map_err(|error| self.append_failure(error))?,
            }
            // Flush each response, so that responses accumulate only while the archive is unreachable.
            match self.writer.flush().map(warn_about_damage) {
                Err(error) if self.note_if_unreachable(&error) && seen == Timestamp::MAX => {}
                done => {
                    done?;
                    self.is_unreachable = false;
                }
            }
        }
        Ok(())
    }

    /// Whether an error is temporary; prints the first in a row.
    fn note_if_unreachable(&mut self, error: &Error) -> bool {
        let is_lost = matches!(error, Error::Disconnected { .. } | Error::Locked { .. });
        if is_lost && !self.is_unreachable {
            eprintln!("warning: {}", trunkline_report::sanitize(&error.to_string()));
        }
        self.is_unreachable |= is_lost;
        is_lost
    }

    /// Adds the series of new flows, with a reading of 0.
    fn add_new_flows(&mut self, flows: &Flows) -> Result<(), Error> {
        let new = &flows.flows()[self.known_flows..];
        if new.is_empty() {
            return Ok(());
        }
        let before = self.spec.series.len();
        for flow in new {
            let name = flow.name.to_string();
            for direction in [Direction::Out, Direction::In] {
                self.spec.series.extend(
                    ["octets", "packets"].map(|quantity| series_spec(&name, Some(direction), quantity)),
                );
            }
        }
        let made = self.writer.open_table(&self.spec).and_then(|_| self.append_zero_reading());
        if made.is_err() {
            self.spec.series.truncate(before);
        }
        made?;
        self.known_flows = flows.flows().len();
        Ok(())
    }

    /// Appends a reading of 0 for new series right after the last response.
    fn append_zero_reading(&mut self) -> Result<(), Error> {
        let Some((last, mut values)) = self.last.clone() else { return Ok(()) };
        values.resize(self.spec.series.len(), Some(RawValue(0)));
        self.append(last.saturating_add(Duration::from_nanos(1)), values)
    }

    fn append(&mut self, at: Timestamp, values: Vec<Option<RawValue>>) -> Result<(), Error> {
        // A later capture into the same table starts from 0, like a device after a restart.
        let uptime = at.duration_since(self.started_at).as_millis() / 10;
        let answer = Answer { answered_at: at, uptime: Some(uptime as u32), values: values.clone() };
        let response = Response { due_at: at, requested_at: at, answer: Some(answer) };
        match self.writer.append(self.table, &response) {
            Err(Error::BufferFull { .. }) => {
                warn_about_damage(self.writer.flush()?);
                self.writer.append(self.table, &response)?;
            }
            appended => drop(appended?),
        }
        self.last = Some((at, values));
        Ok(())
    }

    fn append_failure(&self, error: Error) -> Failure {
        match error {
            Error::OutOfOrder(_) => Failure::input(format!(
                "the archive already has flows of `{}` of that time or later",
                self.spec.device
            )),
            error => error.into(),
        }
    }
}

/// Prints a warning for each chunk that a flush has lost.
fn warn_about_damage(flushed: FlushStats) {
    for damage in flushed.damage {
        eprintln!("warning: {}", trunkline_report::sanitize(&damage.to_string()));
    }
}

fn flow_values(flows: &Flows) -> Vec<Option<RawValue>> {
    let each = flows.flows().iter().flat_map(|flow| [flow.out, flow.back]);
    [flows.others()]
        .into_iter()
        .chain(each)
        .flat_map(|c| [c.bytes, c.packets])
        .map(|n| Some(RawValue(n)))
        .collect()
}

fn series_spec(flow: &str, direction: Option<Direction>, quantity: &str) -> SeriesSpec {
    let name = SeriesName { object: Object::Flow(flow.into()), direction, quantity: quantity.into() };
    SeriesSpec {
        name: name.to_string(),
        kind: ValueKind::Counter64,
        unit: quantity.into(),
        ceiling: None,
        discontinuity: None,
    }
}
