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
    ends: (usize, PipeReader),
    tells: (usize, PipeReader),
    status: Option<(usize, Status)>,
}

impl Control {
    /// Registers signals and status requests with `face`.
    pub fn of(face: &mut impl SocketDriver, status: Option<SocketAddrV4>) -> Result<Control, Failure> {
        let failed = |e: io::Error| Failure::run(format!("cannot listen for signals: {e}"));
        let mut signals = |signals: &[i32]| {
            let (reader, writer) = io::pipe()?;
            for signal in signals {
                signal_hook::low_level::pipe::register(*signal, writer.try_clone()?)?;
            }
            Ok((face.watch(&reader)?, reader))
        };
        let ends = signals(&[SIGINT, SIGTERM]).map_err(failed)?;
        let tells = signals(&[SIGUSR1]).map_err(failed)?;
        let open = |at| {
            let status = Status::open(at).map_err(|cause| {
                let error = SocketError { step: Step::Bind, address: at.into(), cause };
                Failure::input(format!("--status {at}: {error}"))
            })?;
            Ok::<_, Failure>((face.watch(status.waker()).map_err(Failure::run)?, status))
        };
        Ok(Control { ends, tells, status: status.map(open).transpose()? })
    }

    /// Handles requests and signals; returns whether the daemon should end.
    pub fn serve(&mut self, ready: Ready, face: &mut impl SocketDriver) -> Result<bool, Failure> {
        while let Some(line) = face.next_warning() {
            // Ignore write errors on standard error.
            let _ = writeln!(io::stderr(), "trunkline: {line}");
        }
        if ready.watched(self.ends.0) {
            return Ok(true);
        }
        if ready.watched(self.tells.0) {
            // Several signals count as one.
            let _ = self.tells.1.read(&mut [0; 64])?;
            print(&page(face, Page::Text))?;
        }
        if let Some((number, status)) = &mut self.status
            && ready.watched(*number)
        {
            status.answer(|kind| page(face, kind));
        }
        Ok(false)
    }
}

fn page(face: &impl SocketDriver, kind: Page) -> String {
    let mut figures = Metrics::default();
    face.collect_metrics(&mut figures);
    match kind {
        Page::Metrics => figures.prometheus(),
        Page::Text => format!("{}\n{}", face.local_addresses(), figures.text()),
    }
}
