//! An interface, through the ring of its packet socket.

use std::io;

use trunkline_io::packet::{ETHERNET, Frame, LOOPBACK, Options, Ring, exists, truncate_to};
use trunkline_units::Span;

use super::{Looked, NoSource};
use crate::monitor::Monitor;
use crate::packet::{Captured, Link};
use crate::trace::SNAP;

/// Hardware types whose frames are IP packets: `ARPHRD_NONE`, `ARPHRD_PPP`, tunnels.
const BARE: [u16; 4] = [0xFFFE, 512, 768, 769];

/// An interface that is watched.
#[derive(Debug)]
pub struct Live {
    name: String,
    ring: Ring,
    link: Link,
    dropped: u64,
    seen: u64,
    taken: u64,
}

impl Live {
    /// Opens it, promiscuous, for what comes and what goes; of the loopback, where each frame is both, for what comes.
    ///
    /// # Errors
    /// [`NoSource`].
    pub fn open(name: &str, buffer: usize) -> Result<Live, NoSource> {
        let is_loopback = name == "lo";
        let options = Options {
            promiscuous: !is_loopback,
            outgoing: !is_loopback,
            filter: truncate_to(SNAP as u32),
            ..Options::default()
        };
        let ring = Ring::open(name, &options, buffer).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => NoSource::Forbidden(name.into()),
            _ => NoSource::Io { name: name.into(), error },
        })?;
        let link = match ring.socket().hardware() {
            ETHERNET | LOOPBACK => Link::Ethernet,
            other if BARE.contains(&other) => Link::Ip,
            other => {
                return Err(NoSource::Link { name: name.into(), what: format!("hardware type {other}") });
            }
        };
        Ok(Live { name: name.into(), ring, link, dropped: 0, seen: 0, taken: 0 })
    }

    /// Hands over the frames of a block.
    pub fn look(&mut self, monitor: &mut Monitor) -> Looked {
        let link = self.link;
        let count = self.ring.take(|Frame { bytes, original, at_ns, tag, .. }| {
            let original = u32::try_from(original).unwrap_or(u32::MAX);
            monitor.add(&Captured { link, at_ns, bytes, original, tag });
        });
        self.taken += count as u64;
        if count == 0 { Looked::None } else { Looked::Some }
    }

    /// Frames that the kernel had by the last [`counted`](Live::counted), did not drop, and that were not handed over.
    pub fn waiting(&self) -> u64 {
        (self.seen - self.dropped).saturating_sub(self.taken)
    }

    /// Waits for frames, at most `limit`; whether there are some. A frame may lie in the kernel for
    /// [`Ring::LAG`] longer.
    ///
    /// # Errors
    /// `ENETDOWN` once when the interface goes down or away, or what else the system says.
    pub fn wait(&self, limit: Span) -> io::Result<bool> {
        self.ring.socket().wait(limit)
    }

    /// Asks the kernel for its counters: frames it had, and those of them that it dropped, since the interface was opened.
    ///
    /// # Errors
    /// What the system says.
    pub fn counted(&mut self) -> io::Result<(u64, u64)> {
        let counted = self.ring.socket().take_counters()?;
        self.seen += counted.frames;
        self.dropped += counted.dropped;
        Ok((self.seen, self.dropped))
    }

    /// Whether the interface is still there, up or down.
    pub fn exists(&self) -> bool {
        exists(&self.name)
    }

    /// The interface.
    pub fn name(&self) -> &str {
        &self.name
    }
}
