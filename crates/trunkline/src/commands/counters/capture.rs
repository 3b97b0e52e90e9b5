//! `trunkline monitor capture`: packets accounted by flow.
//!
//! A period is a response of one table: what each flow has passed since the capture began, out and in, octets and packets.
//! A flow that is new gets a reading of 0 at the end of the period before, so that its first period counts.

use std::path::Path;
use std::time::Duration;

use trunkline_capture::flow::{By, Flows};
use trunkline_capture::monitor::Limits;
use trunkline_capture::table::Count;
use trunkline_counters::archive::writer::Flushed;
use trunkline_counters::archive::{Direction, Error, Object, Place, SeriesSpec, TableId, TableSpec, Writer};
use trunkline_counters::counter::{Answer, Kind, Moment, Raw, Response};
use trunkline_units::Span;

use super::{failed, writer};
use crate::failure::{Failure, say};
use crate::flags::Top;
use crate::flags::counters::{By as ByFlag, Capture};
use crate::top::session::{Did, Session, Told};

/// Watches until the source ends, the time is over or a signal comes.
pub fn capture(flags: &Capture) -> Result<(), Failure> {
    let limits =
        Limits { flows: flags.flows as usize, stations: 0, services: 0, connections: 0, ..Limits::default() };
    let by = match flags.by {
        ByFlag::Ports => By::Ports,
        ByFlag::Service => By::Service,
        ByFlag::Stations => By::Stations,
    };
    let mut session = Session::open_with(&watched(flags), limits, by)?;
    let mut book = Book::new(flags, session.name())?;
    loop {
        let did = session.watch(Span::from_ms(100))?;
        let seen = Moment(session.monitor.load().now_ns() as i64);
        let mut told = session.tell()?;
        book.write(&told, session.monitor.flows(), Moment::LAST)?;
        if did == Did::Watched {
            continue;
        }
        // The last period ends with what was seen last.
        session.close();
        told = session.tell()?;
        book.writer.press();
        book.write(&told, session.monitor.flows(), seen)?;
        break;
    }
    let flows = session.monitor.flows();
    say(&format!(
        "{} packets, {} octets in {} flows; {} packets of others: {}\n",
        session.total.packets,
        session.total.bytes,
        flows.flows().len(),
        flows.others().packets,
        flags.archive
    ))?;
    if let Some((_, dropped)) = session.kernel.filter(|(_, dropped)| *dropped > 0) {
        eprintln!("warning: {dropped} packets were lost for want of room: give more with --buffer");
    }
    match (&session.note, session.has_ended()) {
        (Some(note), true) => Err(Failure::run(format!("{}: {note}", session.name()))),
        _ => Ok(()),
    }
}

/// What a session is asked for.
fn watched(flags: &Capture) -> Top {
    Top {
        source: flags.source.clone(),
        filter: flags.filter.split_whitespace().map(str::to_owned).collect(),
        interval: flags.every,
        llc_udp: None,
        deadline: None,
        patience: Span::from_s(1),
        events: 0,
        plain: true,
        json: false,
        record: None,
        graph: None,
        write: None,
        duration: flags.duration,
        buffer: flags.buffer,
    }
}

/// The table of flows in the archive.
struct Book {
    writer: Writer,
    spec: TableSpec,
    table: TableId,
    /// Flows that have series.
    known: usize,
    began: Moment,
    /// The last response.
    last: Option<(Moment, Vec<Option<Raw>>)>,
    /// Whether the archive was out of reach the last time.
    away: bool,
}

impl Book {
    fn new(flags: &Capture, source: &str) -> Result<Book, Failure> {
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
            period: Duration::from_nanos(flags.every.as_ns()),
            refresh: Some(Duration::ZERO),
            series: ["octets", "packets"].map(|quantity| series("other", None, quantity)).into(),
        };
        let mut writer = writer(&flags.archive)?;
        let table = writer.table(&spec).map_err(failed)?.table;
        Ok(Book { writer, spec, table, known: 0, began: Moment(0), last: None, away: false })
    }

    /// Writes the samples that have ended; none ends after `seen`.
    fn write(&mut self, told: &[Told], flows: &Flows, seen: Moment) -> Result<(), Failure> {
        let Some(first) = told.first() else { return Ok(()) };
        let begin = Moment(first.sample.at_ns as i64);
        if self.last.is_none() {
            self.began = begin;
            self.append(begin, vec![Some(Raw(0)); 2]).map_err(|error| self.refused(error))?;
        }
        match self.admit(flows) {
            // Flows count on: the next response has what passed in between.
            Err(error) if self.is_away(&error) && seen == Moment::LAST => return Ok(()),
            done => done.map_err(|error| self.refused(error))?,
        }
        let values = values(flows);
        // What passed in several samples is known together only, but where all that passed did so in the first.
        let idle = told[1..].iter().all(|told| told.sample.shown == Count::default());
        for told in if idle { told } else { &told[told.len() - 1..] } {
            let end = Moment(told.sample.at_ns as i64).after(self.spec.period).min(seen);
            let after = self.last.as_ref().map_or(end, |(last, _)| last.after(Duration::from_nanos(1)));
            match self.append(end.max(after), values.clone()) {
                // No more can wait: as above.
                Err(error) if self.is_away(&error) && seen == Moment::LAST => return Ok(()),
                done => done.map_err(|error| self.refused(error))?,
            }
            // However many there are, few wait; more while an archive is out of reach.
            match self.writer.flush().map(told_of) {
                Err(error) if self.is_away(&error) && seen == Moment::LAST => {}
                done => {
                    done.map_err(failed)?;
                    self.away = false;
                }
            }
        }
        Ok(())
    }

    /// Whether an error will pass; tells it once.
    fn is_away(&mut self, error: &Error) -> bool {
        let is = matches!(error, Error::Lost { .. });
        if is && !self.away {
            eprintln!("warning: {}", trunkline_report::plain(&error.to_string()));
        }
        self.away |= is;
        is
    }

    /// Gives flows that are new their series, and a reading of 0.
    fn admit(&mut self, flows: &Flows) -> Result<(), Error> {
        let new = &flows.flows()[self.known..];
        if new.is_empty() {
            return Ok(());
        }
        let before = self.spec.series.len();
        for flow in new {
            let name = flow.name.to_string();
            for direction in [Direction::Out, Direction::In] {
                self.spec
                    .series
                    .extend(["octets", "packets"].map(|quantity| series(&name, Some(direction), quantity)));
            }
        }
        let made = self.writer.table(&self.spec).and_then(|_| self.begin());
        if made.is_err() {
            self.spec.series.truncate(before);
        }
        made?;
        self.known = flows.flows().len();
        Ok(())
    }

    /// A reading of 0 of what is new, right after the last response.
    fn begin(&mut self) -> Result<(), Error> {
        let Some((last, mut values)) = self.last.clone() else { return Ok(()) };
        values.resize(self.spec.series.len(), Some(Raw(0)));
        self.append(last.after(Duration::from_nanos(1)), values)
    }

    fn append(&mut self, at: Moment, values: Vec<Option<Raw>>) -> Result<(), Error> {
        // Another capture into the same table counts from 0 again: a restart.
        let uptime = at.since(self.began).as_millis() / 10;
        let answer = Answer { answered: at, uptime: Some(uptime as u32), values: values.clone() };
        let response = Response { due: at, asked: at, answer: Some(answer) };
        match self.writer.append(self.table, &response) {
            Err(Error::Unflushed { .. }) => {
                told_of(self.writer.flush()?);
                self.writer.append(self.table, &response)?;
            }
            appended => drop(appended?),
        }
        self.last = Some((at, values));
        Ok(())
    }

    fn refused(&self, error: Error) -> Failure {
        match error {
            Error::Disorder(_) => Failure::input(format!(
                "the archive has flows of `{}` of that time or later already",
                self.spec.device
            )),
            error => failed(error),
        }
    }
}

/// Tells what a flush has lost.
fn told_of(flushed: Flushed) {
    for damage in flushed.damage {
        eprintln!("warning: {}", trunkline_report::plain(&damage.to_string()));
    }
}

fn values(flows: &Flows) -> Vec<Option<Raw>> {
    let each = flows.flows().iter().flat_map(|flow| [flow.out, flow.back]);
    [flows.others()]
        .into_iter()
        .chain(each)
        .flat_map(|c| [c.bytes, c.packets])
        .map(|n| Some(Raw(n)))
        .collect()
}

fn series(flow: &str, direction: Option<Direction>, quantity: &str) -> SeriesSpec {
    let place = Place { object: Object::Flow(flow.into()), direction, quantity: quantity.into() };
    SeriesSpec {
        name: place.to_string(),
        kind: Kind::Counter64,
        unit: quantity.into(),
        ceiling: None,
        mark: None,
    }
}
