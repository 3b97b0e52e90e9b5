//! `trunkline llc copy`: copies files to a station's file service.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::json;
use trunkline_io::Clock;
use trunkline_llc::socket::{Error, Sap};
use trunkline_llc::wire::{ALL, CommandStatus};
use trunkline_llc::{Address, Outcome};
use trunkline_run::StopFlag;
use trunkline_units::{Instant, Rate, Size, Span};

use super::copy_protocol::{self, DIGEST, NAME, PIECE, Request, Response};
use super::{CHECKED_OWN, FILES, VERSION, address, attach_own, file_store, pause, stopped};
use crate::commands::pool;
use crate::failure::{Failure, print};
use crate::flags::llc::Copy;

/// Time to wait for a reply before a request is repeated.
const RESPONSE_TIMEOUT: Span = Span::from_s(1);
/// Time for a station to open its SAPs.
const START_TIME: Span = Span::from_s(2);
/// Pause between attempts to reach a silent station.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The result of a copied file.
struct Copied {
    name: String,
    size: u64,
    /// Octets that an earlier copy had transferred.
    resumed: u64,
    took: Span,
}

/// Copies the files in order.
pub fn copy(flags: &Copy, stop: &StopFlag) -> Result<(), Failure> {
    let Some((to, files)) = flags.arguments.split_last().filter(|(_, files)| !files.is_empty()) else {
        return Err(Failure::input("expected one or more files, then the station"));
    };
    let to = address(to, FILES)?;
    if to.station == ALL || to.sap & 1 == 1 {
        return Err(Failure::input("the destination must be one station and SAP"));
    }
    // Open all files before the first is sent.
    let files = files.iter().map(|path| open(Path::new(path))).collect::<Result<Vec<_>, _>>()?;
    let station = attach_own(&flags.local, stop)?;
    let sap = station.open(CHECKED_OWN, &copy_protocol::options(flags.priority))?;
    let clock = Clock::start();
    // Copy numbers that differ from those of an earlier program of this station.
    let first = clock.epoch_ns() as u32;
    let (mut copied, mut refused, mut error) = (Vec::new(), Vec::new(), None);
    for (at, (name, mut file)) in files.into_iter().enumerate() {
        let number = first.wrapping_add(at as u32);
        let mut sender =
            Sender { sap: &sap, to, clock, stop, timeout: flags.timeout, number, message: Vec::new() };
        match sender.copy(&name, &mut file, flags.force) {
            Ok(done) => {
                if !flags.json {
                    print(&done.text())?;
                }
                copied.push(done);
            }
            Err(CopyError::Refused(why)) => refused.push((name, why)),
            Err(CopyError::Failed(failure)) => {
                error = Some(failure);
                break;
            }
        }
    }
    // Report earlier refusals together with the error that ended the copy.
    let error = match (error, refused.is_empty()) {
        (error, true) => error,
        (Some(Failure::Run(why)), false) => {
            Some(Failure::run(format!("{}; {why}", refusal(to.station, &refused))))
        }
        (error, false) => error.or_else(|| Some(Failure::run(refusal(to.station, &refused)))),
    };
    if flags.json {
        let one = |c: &Copied| json!({ "name": c.name, "octets": c.size, "resumed_from": c.resumed, "took_s": c.took.as_s() });
        let whole = json!({
            "version": VERSION, "tool": "copy", "network": flags.local.network.to_string(), "station": to.station,
            "sap": to.sap, "copied": copied.iter().map(one).collect::<Vec<_>>(),
            "refused": refused.iter().map(|(name, why)| json!({ "name": name, "why": why })).collect::<Vec<_>>(), "partial": error.is_some(),
        });
        print(&format!("{whole:#}\n"))?;
    }
    error.map_or(Ok(()), Err)
}

/// The reason why a file was not copied.
enum CopyError {
    /// The station refuses this file; others may be accepted.
    Refused(String),
    /// No file can be copied.
    Failed(Failure),
}

impl From<Failure> for CopyError {
    fn from(failure: Failure) -> CopyError {
        CopyError::Failed(failure)
    }
}

/// Describes the refused files in one line.
fn refusal(station: u8, refused: &[(String, String)]) -> String {
    let each: Vec<String> = refused.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    format!("station {station} refuses {}", each.join("; "))
}

/// Opens a file; returns it with its base name.
fn open(path: &Path) -> Result<(String, File), Failure> {
    let invalid = |reason: &dyn std::fmt::Display| Failure::input(format!("{}: {reason}", path.display()));
    let name = path.file_name().ok_or_else(|| invalid(&"the path has no file name"))?;
    let name = name.to_str().ok_or_else(|| invalid(&"the name is not UTF-8"))?;
    if name.len() > NAME {
        return Err(invalid(&format!("the name is longer than {NAME} octets")));
    }
    let file = File::open(path).map_err(|e| invalid(&e))?;
    let metadata = file.metadata().map_err(|e| invalid(&e))?;
    if metadata.is_file() { Ok((name.into(), file)) } else { Err(invalid(&"not a regular file")) }
}

impl Copied {
    fn text(&self) -> String {
        let Copied { name, size, resumed, took } = self;
        let sent = Size::from_bytes(size - resumed);
        let resumed = if *resumed > 0 {
            format!(", {} already received", Size::from_bytes(*resumed))
        } else {
            String::new()
        };
        format!("{name}: {}{resumed}, {took}, {}\n", Size::from_bytes(*size), Rate::of(sent, *took))
    }
}

/// The sender of one file.
struct Sender<'a> {
    sap: &'a Sap,
    to: Address,
    clock: Clock,
    stop: &'a StopFlag,
    timeout: Span,
    number: u32,
    /// The last received message.
    message: Vec<u8>,
}

/// The next step that the station requests.
enum NextStep {
    /// Send from this offset.
    SendFrom(u64),
    /// The file is complete.
    Done,
    /// Offer the file again.
    Offer,
}

impl Sender<'_> {
    fn copy(&mut self, name: &str, file: &mut File, force: bool) -> Result<Copied, CopyError> {
        let io_error = |e: io::Error| Failure::run(format!("{name}: {e}"));
        let begun = self.clock.now();
        let size = file.metadata().map_err(io_error)?.len();
        let digest: [u8; DIGEST] = file_store::digest(file).map_err(io_error)?;
        let offer = Request::Offer { copy: self.number, force, size, digest, name };
        let bar = pool::progress_bar(size, "{msg} [{bar:40}] {bytes} of {total_bytes}, {eta} left");
        bar.set_message(name.to_owned());
        let mut resumed = None;
        let mut piece = vec![0; PIECE];
        let mut step = NextStep::Offer;
        loop {
            step = match step {
                NextStep::Done => break,
                NextStep::Offer => self.request(offer)?,
                NextStep::SendFrom(offset) => {
                    resumed.get_or_insert(offset.min(size));
                    let at = file.seek(SeekFrom::Start(offset.min(size))).map_err(io_error)?;
                    self.send(file, name, at..size, &mut piece, &bar)?
                }
            };
        }
        bar.finish_and_clear();
        let took = self.clock.now().since(begun);
        Ok(Copied { name: name.into(), size, resumed: resumed.unwrap_or(size), took })
    }

    /// Sends the octets from the file's current position, then asks whether the file is complete.
    fn send(
        &mut self,
        file: &mut File,
        name: &str,
        rest: Range<u64>,
        piece: &mut [u8],
        bar: &ProgressBar,
    ) -> Result<NextStep, CopyError> {
        let mut at = rest.start;
        while at < rest.end {
            let most = (rest.end - at).min(piece.len() as u64) as usize;
            let got = file.read(&mut piece[..most]).map_err(|e| Failure::run(format!("{name}: {e}")))?;
            if got == 0 {
                return Err(Failure::run(format!("{name}: the file was truncated during the copy")).into());
            }
            self.deliver(Request::Data { copy: self.number, at, bytes: &piece[..got] })?;
            at += got as u64;
            bar.set_position(at);
            if self.sap.readable() > 0
                && let Some(step) = self.answer(Instant::ZERO)?
            {
                return Ok(step);
            }
        }
        self.request(Request::End { copy: self.number })
    }

    /// Repeats a request until the station replies.
    fn request(&mut self, request: Request<'_>) -> Result<NextStep, CopyError> {
        let end = self.clock.now() + self.timeout;
        loop {
            self.deliver(request)?;
            if let Some(step) = self.answer(self.clock.now() + RESPONSE_TIMEOUT)? {
                return Ok(step);
            }
            if self.clock.now() >= end {
                return Err(self.silent().into());
            }
        }
    }

    /// Returns the station's reply, if one arrives in time.
    fn answer(&mut self, until: Instant) -> Result<Option<NextStep>, CopyError> {
        loop {
            let left = until.since(self.clock.now()).min(Span::from_ms(50));
            match self.sap.receive_within(&mut self.message, Some(left.into())) {
                Ok(received) if received.from == self.to => {}
                Ok(_) => continue,
                Err(Error::TimedOut) if self.stop.is_requested() => return Err(self.resumable().into()),
                Err(Error::TimedOut) if self.clock.now() >= until => return Ok(None),
                Err(Error::TimedOut) => continue,
                Err(e) => return Err(CopyError::Failed(e.into())),
            }
            return match Response::read(&self.message) {
                Some(Response::From { copy, at }) if copy == self.number => Ok(Some(NextStep::SendFrom(at))),
                Some(Response::Done { copy }) if copy == self.number => Ok(Some(NextStep::Done)),
                Some(Response::Unknown { copy }) if copy == self.number => Ok(Some(NextStep::Offer)),
                Some(Response::Refused { copy, why }) if copy == self.number => {
                    Err(CopyError::Refused(why.to_string()))
                }
                _ => continue,
            };
        }
    }

    /// Sends a message, repeated until it is acknowledged.
    fn deliver(&self, request: Request<'_>) -> Result<(), Failure> {
        let message = request.encode();
        let begun = self.clock.now();
        let end = begun + self.timeout;
        loop {
            if self.stop.is_requested() {
                return Err(self.resumable());
            }
            // A station that has just started may not have opened its file service yet.
            let closed = match self.sap.exchange(self.to, &message)?.outcome {
                Outcome::Done => return Ok(()),
                outcome => outcome == Outcome::Refused(CommandStatus::Unimplemented),
            };
            if self.clock.now() >= if closed { end.min(begun + START_TIME) } else { end } {
                return Err(match closed {
                    true => Failure::run(format!(
                        "station {} accepts no files: start it with `trunkline llc serve --into DIR`",
                        self.to.station
                    )),
                    false => self.silent(),
                });
            }
            pause(RETRY_INTERVAL);
        }
    }

    fn silent(&self) -> Failure {
        Failure::run(format!("station {} does not answer; repeat the command to resume", self.to.station))
    }

    fn resumable(&self) -> Failure {
        let Failure::Run(stopped) = stopped() else { return stopped() };
        Failure::run(format!("{stopped}; repeat the command to resume"))
    }
}
