//! The blocking socket: the endpoint in a [`SharedLoop`].

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use trunkline_io::SharedLoop;
use trunkline_io::shared_loop::{Call, Policy, Service, WaitError};
use trunkline_units::{Instant, Span};

use super::core::{self, Core, MAX_TRANSMIT_DELAY};
use super::link::{ReceiveBuffers, UdpLink};
use super::{Error, Settings};
use crate::{Buffer, ConnectionId, Options};

/// A message that a thread waits for: the next of a channel.
type Target = (ConnectionId, u16);

/// A socket shared by threads.
pub(super) type Shared = SharedLoop<Core>;

/// Time without a receiving thread after which the helper receives, and the maximum delay of output that a thread in
/// full flow leaves pending.
const UNATTENDED: Span = Span::from_ms(1);

const POLICY: Policy = Policy {
    callers_receive: true,
    unattended: UNATTENDED,
    check_interval: (MAX_TRANSMIT_DELAY, UNATTENDED),
    max_slack: Span::from_us(640),
    // The default timer slack of Linux threads. In request-response traffic the deadline after each response is slightly
    // earlier than the one after its request.
    timer_slack: Span::from_us(50),
};

/// Opens a socket with one handle.
pub(super) fn open(
    local: SocketAddr,
    accept: Option<&Options>,
    settings: &Settings,
) -> Result<Arc<Shared>, Error> {
    let (link, core) = core::open(local, accept, settings)?;
    Ok(SharedLoop::start("arq", link, settings.clock, core, POLICY)?.0)
}

/// Sends a message: immediately, if its frame is the only output.
#[inline]
pub(super) fn send(
    shared: &Shared,
    timeout: Option<Duration>,
    id: ConnectionId,
    channel: u16,
    bytes: &[u8],
) -> Result<(), Error> {
    shared.until(timeout, |core, link, call| {
        if core.delays_messages() {
            return core.send(call.recent(), id, channel, bytes);
        }
        let now = call.now();
        if !core.in_full_flow && core.send_directly(now, &link.socket, id, channel, bytes) {
            return Ok(());
        }
        core.send(now, id, channel, bytes)?;
        core.send_only_frame(now, &link.socket, id);
        Ok(())
    })
}

/// Takes the next message of a channel into `message`, whose contents are replaced. Without a queued message it reads the
/// socket, and returns the message directly if it is the next to arrive.
#[inline]
pub(super) fn receive(
    shared: &Shared,
    timeout: Option<Duration>,
    id: ConnectionId,
    channel: u16,
    message: &mut Buffer,
) -> Result<(), Error> {
    shared.until(timeout, |core, _, call| {
        if core.take_directly(message) {
            return Ok(());
        }
        if call.can_lead() && core.only_receives(id, channel) {
            call.set_target((id, channel));
            return Err(Error::NotYet);
        }
        message.clear();
        core.take(time_of_take(core, call), id, channel, message)
    })
}

/// Takes the next message of any channel.
#[inline]
pub(super) fn receive_any(
    shared: &Shared,
    timeout: Option<Duration>,
    id: ConnectionId,
    message: &mut Buffer,
) -> Result<u16, Error> {
    message.clear();
    shared.until(timeout, |core, _, call| core.take_any(time_of_take(core, call), id, message))
}

/// Returns the time of a call that takes a message: an earlier reading in full flow.
#[inline]
fn time_of_take(core: &Core, call: &mut Call<Target>) -> Instant {
    if core.delays_output() { call.recent() } else { call.now() }
}

impl From<WaitError> for Error {
    fn from(error: WaitError) -> Error {
        match error {
            WaitError::TimedOut => Error::TimedOut,
            WaitError::Interrupted => Error::Interrupted,
        }
    }
}

impl Service for Core {
    type Link = UdpLink;
    type Error = Error;
    type Target = Target;

    #[inline]
    fn must_wait(error: &Error) -> bool {
        matches!(error, Error::NotYet | Error::Full | Error::NotEnough(_))
    }

    #[inline]
    fn begin_receive(&mut self, target: Option<Target>) {
        self.await_message(target);
    }

    #[inline]
    fn handle_received(
        &mut self,
        now: Instant,
        link: &UdpLink,
        buffers: &Box<ReceiveBuffers>,
        received: io::Result<()>,
    ) {
        if received.is_err() || !self.receive_directly(now, &link.socket, buffers) {
            self.handle_receive_result(now, buffers, received);
        }
    }

    fn handle_second_socket(&mut self, now: Instant, socket: &UdpSocket) -> bool {
        self.receive_unconnected(now, socket)
    }

    #[inline]
    fn take_has_second_socket(&mut self) -> bool {
        self.take_has_connected()
    }

    #[inline]
    fn receives_first(&mut self, now: Instant) -> bool {
        Core::receives_first(self, now)
    }

    #[inline]
    fn transmit(&mut self, now: Instant, link: &UdpLink) {
        Core::transmit(self, now, &link.socket);
    }

    #[inline]
    fn has_output(&self) -> bool {
        self.has_pending_output()
    }

    #[inline]
    fn should_transmit(&mut self, call: &mut Call<Target>) -> bool {
        Core::should_transmit(self, call.now())
    }

    #[inline]
    fn defers_output(&self) -> bool {
        self.delays_output()
    }

    #[inline]
    fn is_in_full_flow(&self) -> bool {
        self.in_full_flow
    }

    #[inline]
    fn deadline(&self) -> Instant {
        self.deadline
    }

    #[inline]
    fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    fn can_receive(&self) -> bool {
        !self.has_failed()
    }

    fn is_over(&mut self, _now: Instant) -> bool {
        Core::is_over(self)
    }
}
