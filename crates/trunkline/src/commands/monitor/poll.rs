//! `trunkline monitor poll`: the daemon that polls.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use trunkline_collector::poll::report::{Over, Reports, queue};
use trunkline_collector::poll::{Collector, Config, Keeper, Keeping, Report, Stop, Time};
use trunkline_counters::archive::Error;

use super::show::Show;
use crate::failure::{Failure, say};
use crate::flags::monitor::Poll;

/// By how much the wall clock may be elsewhere before that is told.
const OFF: Duration = Duration::from_secs(2);
/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(60);

/// Polls until it is ended.
pub fn poll(flags: &Poll) -> Result<(), Failure> {
    let mut config = Config::read(&flags.config).map_err(Failure::input)?;
    let archive = flags.archive.clone().or(config.archive.take());
    let keeping = Keeping { flush: config.flush, retention: config.retention };
    let time = Time::start();
    let opened = |archive| Keeper::open(archive, keeping, time).map_err(refused);
    let keeper = archive.as_ref().map(opened).transpose()?;
    let (sink, reports) = queue();
    let mut show = Show::new(&config, keeper.is_some(), flags);
    let (collector, stop) = Collector::new(config, time, sink);
    end_on_signals(&stop)?;
    let once = flags.once;
    let polling = thread::Builder::new().name("poll".into()).spawn(move || collector.run(once));
    let polling = polling.map_err(Failure::run)?;
    let mut watch = Watch { show: &mut show, stop, gone: None, time, looked: time.now() };
    let kept = match keeper {
        Some(keeper) => keeper.run(&reports, |report| watch.see(report), warn).map_err(Failure::run),
        None => {
            until_over(&reports, |report| watch.see(report));
            Ok(())
        }
    };
    let gone = watch.gone.take();
    let polled = polling.join();
    kept?;
    match polled {
        Ok(done) => done.map_err(|e| Failure::run(format!("cannot poll: {e}")))?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
    match gone {
        Some(failure) => Err(failure),
        None if once => show.end(),
        None => Ok(()),
    }
}

/// Shows reports as they come, and ends it all when nobody reads.
struct Watch<'a> {
    show: &'a mut Show,
    stop: Stop,
    gone: Option<Failure>,
    time: Time,
    looked: trunkline_counters::counter::Moment,
}

impl Watch<'_> {
    fn see(&mut self, report: &Report) {
        let now = self.time.now();
        if now.since(self.looked) >= LOOK {
            self.looked = now;
            let off = self.time.off();
            if off > OFF {
                warn(&format!(
                    "the wall clock was set by {} s since the start; times go on as they were",
                    off.as_secs()
                ));
            }
        }
        if let Report::Trouble { device, table, fault, .. } = report {
            let said = fault.as_ref().map_or("answers again".to_owned(), ToString::to_string);
            warn(&format!("{device}: {table}: {said}"));
        }
        if self.gone.is_none()
            && let Some(text) = self.show.see(report)
            && let Err(failure) = say(&text)
        {
            self.gone = Some(failure);
            self.stop.stop();
        }
    }
}

fn until_over(reports: &Reports, mut see: impl FnMut(&Report)) {
    loop {
        match reports.next(Duration::from_secs(3_600)) {
            Ok(Some(report)) => see(&report),
            Ok(None) => {}
            Err(Over) => return,
        }
    }
}

fn warn(line: &str) {
    let _ = writeln!(io::stderr(), "trunkline: {}", trunkline_report::plain(line));
}

fn end_on_signals(stop: &Stop) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::run(format!("cannot listen for signals: {e}"));
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

/// An archive that is something else or belongs to somebody else is the user's to change.
fn refused(error: Error) -> Failure {
    match error {
        Error::Address { .. } | Error::Foreign { .. } | Error::Newer { .. } | Error::Busy { .. } => {
            Failure::input(error)
        }
        _ => Failure::run(error),
    }
}
