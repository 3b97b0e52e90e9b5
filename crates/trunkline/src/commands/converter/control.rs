//! Signals and the status page, in the daemon's event loop.

use std::io::{self, PipeReader, Read, Write};
use std::net::SocketAddrV4;

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use trunkline_bundle::socket::{Metrics, SocketDriver};
use trunkline_io::SocketError;
use trunkline_io::ports::Ready;
use trunkline_io::socket::Step;

use super::status::{Page, Status};
use crate::failure::{Failure, print};

/// External requests to a daemon, with the tokens under which its socket watches them.
pub struct Control {
    stop: (usize, PipeReader),
    print: (usize, PipeReader),
    status: Option<(usize, Status)>,
}

impl Control {
    /// Registers signals and status requests with `socket`.
    pub fn new(socket: &mut impl SocketDriver, status: Option<SocketAddrV4>) -> Result<Control, Failure> {
        let failed = |e: io::Error| Failure::run(format!("cannot handle signals: {e}"));
        let mut signals = |signals: &[i32]| {
            let (reader, writer) = io::pipe()?;
            for signal in signals {
                signal_hook::low_level::pipe::register(*signal, writer.try_clone()?)?;
            }
            Ok((socket.watch(&reader)?, reader))
        };
        let stop = signals(&[SIGINT, SIGTERM]).map_err(failed)?;
        let print = signals(&[SIGUSR1]).map_err(failed)?;
        let open = |at| {
            let status = Status::open(at).map_err(|cause| {
                let error = SocketError { step: Step::Bind, address: at.into(), cause };
                Failure::input(format!("--status {at}: {error}"))
            })?;
            Ok::<_, Failure>((socket.watch(status.waker()).map_err(Failure::run)?, status))
        };
        Ok(Control { stop, print, status: status.map(open).transpose()? })
    }

    /// Handles requests and signals; returns whether the daemon should end.
    pub fn serve(&mut self, ready: Ready, socket: &mut impl SocketDriver) -> Result<bool, Failure> {
        while let Some(line) = socket.next_warning() {
            // Ignore write errors on standard error.
            let _ = writeln!(io::stderr(), "trunkline: {line}");
        }
        if ready.watched(self.stop.0) {
            return Ok(true);
        }
        if ready.watched(self.print.0) {
            // Several signals count as one.
            let _ = self.print.1.read(&mut [0; 64])?;
            print(&page(socket, Page::Text))?;
        }
        if let Some((number, status)) = &mut self.status
            && ready.watched(*number)
        {
            status.answer(|kind| page(socket, kind));
        }
        Ok(false)
    }
}

fn page(socket: &impl SocketDriver, kind: Page) -> String {
    let mut figures = Metrics::default();
    socket.collect_metrics(&mut figures);
    match kind {
        Page::Metrics => figures.prometheus(),
        Page::Text => format!("{}\n{}", socket.local_addresses(), figures.text()),
    }
}
