//! A file, disk to disk. Its bytes are foreign, so every message carries a check over them.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use trunkline_experiment::plan::Protocol;
use trunkline_io::Pacer;
use trunkline_run::Ledger;
use trunkline_run::ends::SenderReport;
use trunkline_run::message::{HEADER, Header, Kind};
use trunkline_traffic::Source;
use trunkline_traffic::source::{Limit, Step};

use super::datagram::{self, Flight, PACKET_COST, Trials};
use super::stream::{self, Writer};
use super::{Bench, Broken, EndError, buffer_counter, file};
use crate::wire::Report;

/// Where a received file goes.
#[derive(Debug)]
pub(crate) struct Sink {
    file: File,
    path: PathBuf,
    end: u64,
}

impl Sink {
    /// Makes the file, and its folder.
    pub fn create(path: &Path) -> Result<Sink, EndError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(file("making", folder))?;
        }
        let made = File::create(path).map_err(file("making", path))?;
        Ok(Sink { file: made, path: path.to_owned(), end: 0 })
    }

    /// Adds bytes at the end.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), EndError> {
        self.write_at(self.end, bytes)
    }

    /// Puts bytes where they belong.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EndError> {
        self.file.write_all_at(bytes, offset).map_err(file("writing", &self.path))?;
        self.end = self.end.max(offset + bytes.len() as u64);
        Ok(())
    }

    /// Makes sure that it is on the disk: a transfer from disk to disk ends there.
    pub fn finish(self) -> Result<(), EndError> {
        self.file.sync_all().map_err(file("writing", &self.path))
    }
}

/// Over which transport a file goes.
enum Way {
    Stream(Box<Writer>),
    Datagrams(std::net::UdpSocket, Trials, Flight),
}

/// Sends a file.
pub(crate) fn send(mut bench: Bench, peer: SocketAddr, limit: Limit, path: &Path) -> Result<Report, Broken> {
    let mut from = File::open(path).map_err(file("opening", path))?;
    let (mut way, address) = match bench.spec.protocol {
        Protocol::Tcp { .. } => {
            let stream = stream::connect(&bench, peer)?;
            let address = stream.local_addr().map_err(super::io("asking for the address"))?;
            (Way::Stream(Box::new(Writer::new(stream, peer))), address)
        }
        _ => {
            let socket = datagram::open_sender(&bench, peer, true)?;
            let address = socket.local_addr().map_err(super::io("asking for the address"))?;
            let flight = Flight::new(&bench);
            (Way::Datagrams(socket, Trials::default(), flight), address)
        }
    };
    let start = bench.ready(address)?;
    let mut source = bench.source(start, limit, bench.largest())?;
    let mut ledger = Ledger::new(start);
    let result = copy(&mut bench, &mut from, path, &mut way, &mut source, &mut ledger);
    let mut report = SenderReport::whole(&ledger, &source);
    report.cpu = bench.cpu();
    let file_bytes = ledger.bytes() - ledger.messages() * HEADER as u64;
    report.counters.insert("file_bytes".into(), file_bytes as f64);
    match &mut way {
        Way::Stream(writer) => {
            writer.close();
            writer.add_to(&mut report);
        }
        Way::Datagrams(socket, trials, _) => {
            trials.add_to(&mut report);
            report.counters.extend([buffer_counter(socket, true)]);
        }
    }
    match result {
        Ok(()) => Ok(Report::Sender(Box::new(report))),
        Err(error) => Err(Broken { error, report: Some(Report::Sender(Box::new(report))) }),
    }
}

fn copy(
    bench: &mut Bench,
    from: &mut File,
    path: &Path,
    way: &mut Way,
    source: &mut Source,
    ledger: &mut Ledger,
) -> Result<(), EndError> {
    let control = bench.control.clone();
    let mut pacer = Pacer::new(bench.clock);
    let mut buffer = Vec::new();
    let mut sequence = 0;
    while !bench.control.stopped() {
        let now = bench.clock.now();
        let mut message = match source.next(now) {
            Step::Send(message) => message,
            Step::Wait(until) => {
                pacer.wait(until, control.stop_flag());
                continue;
            }
            Step::Done => break,
        };
        buffer.resize(message.size as usize, 0);
        let got = fill(from, &mut buffer[HEADER..]).map_err(file("reading", path))?;
        if got == 0 {
            break;
        }
        buffer.truncate(HEADER + got);
        message.size = buffer.len() as u32;
        let (front, body) = buffer.split_first_chunk_mut::<HEADER>().expect("a message has a header");
        let now = bench.clock.now();
        let header = Header { sequence, sent: now, length: message.size, response: 0, kind: Kind::Checked };
        header.encode_checked(bench.spec.token, body, front);
        let left = match way {
            Way::Stream(writer) => writer.write(bench, &buffer)?,
            Way::Datagrams(socket, trials, flight) => {
                while !flight.room(bench, socket, &mut trials.calls)? && !bench.control.stopped() {}
                flight.left(1, u64::from(message.size) + PACKET_COST);
                datagram::send_patiently(bench, trials, || socket.send(&buffer))?
            }
        };
        if !left {
            break;
        }
        sequence += 1;
        ledger.depart(&message, now);
        if let Way::Stream(writer) = way {
            writer.sample(ledger.start(), now);
        }
        bench.copy_ledger(ledger, now);
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn fill(from: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match from.read(&mut buffer[have..])? {
            0 => break,
            n => have += n,
        }
    }
    Ok(have)
}
