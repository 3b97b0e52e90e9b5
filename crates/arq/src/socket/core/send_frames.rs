//! Sends frames on a socket, and keeps those for which its buffer has no room.

use std::io;
use std::net::SocketAddr;

use trunkline_endpoint::Segment;
use trunkline_io::probe::{Direction, Probe};
use trunkline_io::{Clock, Datagrams};

/// Frames that did not fit into the socket's send buffer.
pub struct UnsentFrames {
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
    pub segment: Option<Segment>,
}

/// Like [`send_frames`], observed by a probe if there is one.
#[inline(always)]
pub fn send_observed(
    probe: &mut Option<Box<dyn Probe>>,
    clock: Clock,
    socket: &Datagrams,
    to: &SocketAddr,
    bytes: &[u8],
    segment: Option<Segment>,
) -> Option<UnsentFrames> {
    let selected =
        probe.as_mut().and_then(|probe| probe.selects(Direction::Out, bytes, segment).then_some(probe));
    let Some(probe) = selected else { return send_frames(socket, to, bytes, segment) };
    let began = clock.now();
    let unsent = send_frames(socket, to, bytes, segment);
    if unsent.is_none() {
        probe.sent((began, clock.now()));
    }
    unsent
}

/// Sends frames; returns them if the socket's buffer is full. Other errors count as packet loss.
#[inline(always)]
pub fn send_frames(
    socket: &Datagrams,
    to: &SocketAddr,
    bytes: &[u8],
    segment: Option<Segment>,
) -> Option<UnsentFrames> {
    let Err(error) = socket.send(*to, bytes, segment) else { return None };
    keep_unsent(&error, to, bytes, segment)
}

#[cold]
fn keep_unsent(
    error: &io::Error,
    to: &SocketAddr,
    bytes: &[u8],
    segment: Option<Segment>,
) -> Option<UnsentFrames> {
    (error.kind() == io::ErrorKind::WouldBlock).then(|| UnsentFrames {
        to: *to,
        bytes: bytes.into(),
        segment,
    })
}
