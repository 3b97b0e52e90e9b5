//! `trunkline llc serve`: a station with the services that the other tools use.
//!
//! Each SAP has a thread. `test` and `load` use the same services in their own process.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;
use trunkline_io::Clock;
use trunkline_llc::api::Received;
use trunkline_llc::socket::{Error, Sap, StationSocket};
use trunkline_llc::{Address, Options};
use trunkline_run::StopFlag;

use super::copy_protocol;
use super::file_store::FileStore;
use super::{
    CHECKED_ECHO, CHECKED_SINK, COUNT, ECHO, FILES, GROUP, SERVING, SINK, VERSION, attach, settings,
    wait_for_ring,
};
use crate::failure::{Failure, print};
use crate::flags::llc::Serve;

/// Interval between checks for Ctrl-C.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum wait of a reply for queue space.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of senders that the sinks count; further ones are not counted.
const MAX_SENDERS: usize = 4096;

/// Serves until it is stopped.
pub fn serve(flags: &Serve, stop: &StopFlag) -> Result<(), Failure> {
    let settings = settings(&flags.local);
    let number = flags.local.station.unwrap_or(SERVING);
    let store = flags.into.as_ref().map(|folder| {
        FileStore::new(folder, flags.largest, flags.allow_force)
            .map_err(|e| Failure::input(format!("{}: {e}", folder.display())))
    });
    let store = store.transpose()?;
    let station = attach(&flags.local.network, number, &settings)?;
    let common = Common::open(&station)?;
    let options = Options { queue: 256, ..copy_protocol::options(0) };
    let files = store.map(|store| Ok::<_, Failure>((station.open(FILES, &options)?, store)));
    let mut files = files.transpose()?;
    wait_for_ring(&station, &settings, None, stop)?;
    print_event(flags.json, "serving", &format!("station {number} on {}", flags.local.network))?;
    thread::scope(|scope| {
        let common = scope.spawn(|| common.run(&|| stop.is_requested()));
        let files =
            files.as_mut().map(|(sap, store)| scope.spawn(|| serve_files(sap, store, stop, flags.json)));
        let served = files.map_or(Ok(()), |files| files.join().expect("the thread does not panic"));
        // An error of one service stops all.
        if served.is_err() {
            stop.request();
        }
        served.and(common.join().expect("the thread does not panic"))
    })
}

/// Returns whether to reply. Messages from a service of a station get no reply: two services would reply to each
/// other without end.
fn needs_reply(from: Address) -> bool {
    ![FILES, ECHO, CHECKED_ECHO, SINK, CHECKED_SINK, COUNT].contains(&from.sap)
}

fn print_event(as_json: bool, event: &str, what: &str) -> Result<(), Failure> {
    print(&match as_json {
        true => format!("{}\n", json!({ "version": VERSION, "event": event, "what": what })),
        false => format!("{event} {what}\n"),
    })
}

fn serve_files(sap: &Sap, store: &mut FileStore, stop: &StopFlag, as_json: bool) -> Result<(), Failure> {
    let clock = Clock::start();
    receive_until(sap, &|| stop.is_requested(), |received, message| {
        if !needs_reply(received.from) {
            return Ok(());
        }
        let reply = store.handle(clock.now(), received.from, message);
        if !reply.answer.is_empty() {
            // The client repeats its request.
            let _ = sap.send_with(received.from, &reply.answer, Some(received.priority), Some(REPLY_TIMEOUT));
        }
        let from = received.from.station;
        if let Some((name, size)) = reply.stored {
            print_event(as_json, "kept", &format!("{name}, {size} octets, from station {from}"))?;
        }
        if let Some(reason) = reply.refused {
            print_event(as_json, "refused", &format!("{reason} (from station {from})"))?;
        }
        Ok(())
    })
}

/// Handles the messages to `sap` until `done` returns true.
fn receive_until(
    sap: &Sap,
    done: &impl Fn() -> bool,
    mut handle: impl FnMut(Received, &[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut message = Vec::new();
    while !done() {
        match sap.receive_within(&mut message, Some(CHECK_INTERVAL)) {
            Ok(received) => handle(received, &message)?,
            Err(Error::TimedOut) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Runs `work` while the echo and sink services of stations of this process run.
pub fn with_services<T>(
    services: &[Common],
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let over = AtomicBool::new(false);
    let done = || over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let serving: Vec<_> = services.iter().map(|one| scope.spawn(move || one.run(&done))).collect();
        let worked = work();
        over.store(true, Ordering::Relaxed);
        let served = serving.into_iter().map(|one| one.join().expect("the thread does not panic"));
        served.collect::<Result<(), Failure>>().and(worked)
    })
}

/// The echo and sink services.
pub struct Common {
    echoes: [Sap; 2],
    sinks: [Sap; 2],
    count: Sap,
    counted: Mutex<Counted>,
}

/// Messages and octets by sender.
type Counted = BTreeMap<Address, (u64, u64)>;

impl Common {
    /// Opens the SAPs.
    pub fn open(station: &StationSocket) -> Result<Common, Failure> {
        let open = |sap: u8, options: &Options| station.open(sap, options);
        let echo = Options { groups: vec![GROUP], queue: 256, ..Options::default() };
        let sink = Options { queue: 4096, ..Options::default() };
        Ok(Common {
            echoes: [
                open(ECHO, &echo)?,
                open(CHECKED_ECHO, &Options { crc: true, groups: vec![], ..echo.clone() })?,
            ],
            sinks: [open(SINK, &sink)?, open(CHECKED_SINK, &Options { crc: true, ..sink.clone() })?],
            count: open(COUNT, &Options::acknowledged(7))?,
            counted: Mutex::default(),
        })
    }

    /// Serves until `done` returns true.
    pub fn run(&self, done: &(impl Fn() -> bool + Sync)) -> Result<(), Failure> {
        thread::scope(|scope| {
            let threads: Vec<_> = self
                .echoes
                .iter()
                .map(|sap| scope.spawn(|| self.echo(sap, done)))
                .chain(self.sinks.iter().map(|sap| scope.spawn(|| self.sink(sap, done))))
                .chain([scope.spawn(|| self.serve_counts(done))])
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("the thread does not panic"))
        })
    }

    fn echo(&self, sap: &Sap, done: &impl Fn() -> bool) -> Result<(), Failure> {
        receive_until(sap, done, |Received { from, priority, .. }, message| {
            if needs_reply(from) {
                let _ = sap.send_with(from, message, Some(priority), Some(REPLY_TIMEOUT));
            }
            Ok(())
        })
    }

    fn sink(&self, sap: &Sap, done: &impl Fn() -> bool) -> Result<(), Failure> {
        receive_until(sap, done, |received, message| {
            let mut counted = self.counted.lock().expect("no thread panics with it");
            if counted.len() < MAX_SENDERS || counted.contains_key(&received.from) {
                let (messages, octets) = counted.entry(received.from).or_default();
                (*messages, *octets) = (*messages + 1, *octets + message.len() as u64);
            }
            Ok(())
        })
    }

    /// Serves counts: returns the sender's counts and resets them.
    fn serve_counts(&self, done: &impl Fn() -> bool) -> Result<(), Failure> {
        receive_until(&self.count, done, |Received { from, .. }, message| {
            if let [sap] = *message
                && needs_reply(from)
            {
                let of = Address { sap, station: from.station };
                let counted = self.counted.lock().expect("no thread panics with it").remove(&of);
                let (messages, octets) = counted.unwrap_or_default();
                let answer = [messages.to_be_bytes(), octets.to_be_bytes()].concat();
                let _ = self.count.send_with(from, &answer, None, Some(REPLY_TIMEOUT));
            }
            Ok(())
        })
    }
}
