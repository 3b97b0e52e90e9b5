//! `trunkline monitor poll`: the daemon that polls devices.

use std::io;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use trunkline_collector::poll::report::{Closed, ReportReceiver, queue};
use trunkline_collector::poll::{
    AnchoredClock, ArchiveWriter, Collector, Config, Report, Stop, WriteOptions,
};
use trunkline_counters::archive::{Error, Location};

use super::show::Output;
use crate::archive::counters_archive;
use crate::failure::{Failure, print, warn};
use crate::flags::monitor::Poll;

/// Change of the wall clock since the start above which a warning is printed.
const MAX_CLOCK_OFFSET: Duration = Duration::from_secs(2);
/// Interval between checks of the wall clock.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Polls until a signal arrives, or once with `--once`.
pub fn poll(flags: &Poll) -> Result<(), Failure> {
    let mut config = Config::read(&flags.config).map_err(Failure::input)?;
    let archive = archive(flags, config.archive.take())?;
    let keeping = WriteOptions { flush: config.flush, retention: config.retention };
    let time = AnchoredClock::start();
    let open = |archive| ArchiveWriter::open(archive, keeping, time).map_err(archive_failure);
    let writer = archive.as_ref().map(open).transpose()?;
    let (sink, reports) = queue();
    let mut output = Output::new(&config, writer.is_some(), flags);
    let (collector, stop) = Collector::new(config, time, sink);
    stop_on_signals(&stop)?;
    let once = flags.once;
    let polling = thread::Builder::new().name("poll".into()).spawn(move || collector.run(once));
    let polling = polling.map_err(Failure::run)?;
    let mut handler =
        ReportHandler { output: &mut output, stop, output_error: None, time, clock_checked_at: time.now() };
    let stored = match writer {
        Some(writer) => writer.run(&reports, |report| handler.handle(report), warn).map_err(Failure::run),
        None => {
            handle_until_closed(&reports, |report| handler.handle(report));
            Ok(())
        }
    };
    let output_error = handler.output_error.take();
    let polled = polling.join();
    stored?;
    match polled {
        Ok(done) => done.map_err(|e| Failure::run(format!("cannot poll: {e}")))?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
    match output_error {
        Some(failure) => Err(failure),
        None if once => output.finish(),
        None => Ok(()),
    }
}

/// Returns where to store readings, `None` to print rates. Without `--archive`, uses the archive of the configuration, else
/// the default one, except for `--once`.
fn archive(flags: &Poll, configured: Option<Location>) -> Result<Option<Location>, Failure> {
    if flags.no_archive {
        return Ok(None);
    }
    match flags.archive.archive.clone().or(configured) {
        None if flags.once => Ok(None),
        None => {
            let archive = counters_archive(&flags.archive, None)?;
            warn(&format!("storing readings in {archive}; --no-archive prints rates instead"));
            Ok(Some(archive))
        }
        archive => Ok(archive),
    }
}

/// Prints each report, and stops polling if standard output is closed.
struct ReportHandler<'a> {
    output: &'a mut Output,
    stop: Stop,
    output_error: Option<Failure>,
    time: AnchoredClock,
    clock_checked_at: trunkline_counters::counter::Timestamp,
}

impl ReportHandler<'_> {
    fn handle(&mut self, report: &Report) {
        let now = self.time.now();
        if now.duration_since(self.clock_checked_at) >= CLOCK_CHECK_INTERVAL {
            self.clock_checked_at = now;
            let off = self.time.offset();
            if off > MAX_CLOCK_OFFSET {
                warn(&format!(
                    "the wall clock was changed by {} s since the start; timestamps continue from the old clock",
                    off.as_secs()
                ));
            }
        }
        if let Report::FaultChanged { device, table, fault, .. } = report {
            let message = fault.as_ref().map_or("answers again".to_owned(), ToString::to_string);
            warn(&format!("{device}: {table}: {message}"));
        }
        if self.output_error.is_none()
            && let Some(text) = self.output.render(report)
            && let Err(failure) = print(&text)
        {
            self.output_error = Some(failure);
            self.stop.stop();
        }
    }
}

fn handle_until_closed(reports: &ReportReceiver, mut handle: impl FnMut(&Report)) {
    loop {
        match reports.receive(Duration::from_secs(3_600)) {
            Ok(Some(report)) => handle(&report),
            Ok(None) => {}
            Err(Closed) => return,
        }
    }
}

fn stop_on_signals(stop: &Stop) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::run(format!("cannot handle signals: {e}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let stop = stop.clone();
    let wait = move || {
        for _ in &mut signals {
            stop.stop();
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).map_err(failed)?;
    Ok(())
}

/// Converts an error of the archive: a wrong or busy archive is a usage error, anything else a failure of the system.
fn archive_failure(error: Error) -> Failure {
    match error {
        Error::InvalidAddress { .. }
        | Error::NotAnArchive { .. }
        | Error::VersionTooNew { .. }
        | Error::Locked { .. } => Failure::input(error),
        _ => Failure::run(error),
    }
}
