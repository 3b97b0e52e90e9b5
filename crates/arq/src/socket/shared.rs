//! The blocking socket in a [`SharedLoop`], and the calls of request and response, which do the least work.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use trunkline_io::SharedLoop;
use trunkline_io::shared_loop::{Call, Policy, Service, State};
use trunkline_units::{Instant, Span};

use super::core::{self, Core, MAX_TRANSMIT_DELAY};
use super::{Error, Settings};
use crate::{Buffer, ConnectionId, Options};

/// Time without a receiving thread after which the helper receives; and its longest sleep, by which output that a
/// thread in full flow leaves pending may be delayed.
const UNATTENDED: Span = Span::from_ms(1);
/// Maximum delay of the helper after a deadline.
const MAX_HELPER_SLACK: Span = Span::from_us(640);

/// A socket shared by threads.
pub(super) type Shared = SharedLoop<Core>;

/// Opens a socket with one handle and starts its helper thread.
pub(super) fn open(
    local: SocketAddr,
    accept: Option<&Options>,
    settings: &Settings,
) -> Result<Arc<Shared>, Error> {
    let (socket, clock, mut core) = core::open(local, accept, settings)?;
    core.handles = 1;
    let policy = Policy {
        callers_receive: true,
        unattended: UNATTENDED,
        check_interval: (MAX_TRANSMIT_DELAY, UNATTENDED),
        max_slack: MAX_HELPER_SLACK,
    };
    Ok(SharedLoop::start("arq", socket, clock, core, policy)?.0)
}

/// Releases a handle after `end` ends its use.
pub(super) fn release(shared: &Shared, end: impl FnOnce(&mut Core, Instant)) {
    shared.run(|core, now| {
        end(core, now);
        core.handles -= 1;
    });
}

/// Sends a message; immediately, if its frame is the only output.
#[inline]
pub(super) fn send(
    shared: &Shared,
    timeout: Option<Duration>,
    id: ConnectionId,
    channel: u16,
    bytes: &[u8],
) -> Result<(), Error> {
    let mut state = shared.lock();
    let attempt = |core: &mut Core, call: &mut Call<()>| core.send(call.now, id, channel, bytes);
    if state.service.in_full_flow {
        return shared.try_fast(state, Core::delays_messages, timeout, attempt);
    }
    let now = shared.time(&mut state);
    if !state.service.send_directly(now, shared.link(), id, channel, bytes) {
        return shared.retry(state, now, timeout, attempt);
    }
    // Nothing was due before, and no output is pending.
    shared.leave_without_output(state, now);
    Ok(())
}

/// Takes the next message of a channel into `message`, whose contents are replaced. Without a queued message it
/// reads the socket, and returns the message directly if it is the next to arrive.
#[inline]
pub(super) fn receive(
    shared: &Shared,
    timeout: Option<Duration>,
    id: ConnectionId,
    channel: u16,
    message: &mut Buffer,
) -> Result<(), Error> {
    let take = |core: &mut Core, call: &mut Call<()>, message: &mut Buffer| {
        core.take(call.now, id, channel, message)
    };
    let mut state = shared.lock();
    if timeout.is_none()
        && state.service.can_take_directly(id, channel)
        && let Some(mut buffers) = state.service.take_buffers(None)
    {
        let now = state.now();
        let received;
        (state, received) = shared.lead(state, now, &mut buffers, Span::MAX);
        let now = state.now();
        let core = &mut state.service;
        if received.is_ok() && core.take_directly(now, &buffers, id, channel, message) {
            core.buffers = Some(buffers);
            note_exchange(shared, &mut state);
            match state.service.may_transmit(now) {
                true => shared.leave(state, now),
                false => shared.leave_without_output(state, now),
            }
            return Ok(());
        }
        core.exchanges = 0;
        core.handle_received(now, shared.link(), buffers, received);
        message.clear();
        // Not on the fast path: no call before this one has set a deadline for what arrived.
        return shared.retry(state, now, None, |core, call| take(core, call, message));
    }
    message.clear();
    shared.try_fast(state, Core::delays_output, timeout, |core, call| take(core, call, message))
}

/// Connects the socket to a peer after a series of exchanges with it alone. A wakeup of a waiting thread, or
/// another peer, disconnects it; each time the required series is longer.
#[inline]
fn note_exchange(shared: &Shared, state: &mut State<Core>) {
    let core = &mut state.service;
    core.exchanges = core.exchanges.saturating_add(1);
    if core.exchanges == core.connects_at {
        // If connecting fails, retry less and less often.
        core.connects_at = core.connects_at.saturating_mul(2);
        if core.connect_socket(shared.link()) {
            // The helper must receive from other peers.
            shared.wake_helper(state);
        }
    }
}
