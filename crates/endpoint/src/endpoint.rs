//! The trait and its contract.

use trunkline_units::Instant;

use crate::{Peer, Port, Segment, Writable};

/// A protocol as a state machine.
///
/// # The contract
///
/// **Two calls.** [`handle`](Endpoint::handle) tells the machine something; [`poll`](Endpoint::poll) asks what it
/// has to say, one thing at a time, until it answers [`Output::Idle`]. [`drain`](crate::drain()) is that loop.
/// Calls come in any order: a second `handle` may come before the output of the first is drained.
///
/// **Time is an argument.** `now` never decreases from call to call; it may stand still. Timers run only in
/// `handle`; a `poll` later than the deadline just says the deadline again.
///
/// **Deadlines.** A driver that reaches the deadline of [`Idle`] gives [`Input::Wake`] and polls again. That
/// makes progress, and the next deadline is strictly later than the moment of waking. An early or needless wake
/// does nothing at all. A machine with nothing to come states no deadline. A driver may therefore wait as long
/// as the deadline says and no longer, and needs no other timer.
///
/// **Ports.** `poll` yields frames only for ports that `writable` has. A frame for another port waits inside the
/// machine and `Idle` says [`Reason::Port`]. Once yielded a frame is gone: the driver sends it or loses it.
///
/// **Bounds.** A frame or batch has at most [`MAX_BATCH`](crate::MAX_BATCH) bytes and
/// [`MAX_SEGMENTS`](crate::MAX_SEGMENTS) frames, in both directions; `buffer` has room for at least
/// [`MAX_BATCH`](crate::MAX_BATCH) bytes. Every queue inside a machine has a bound, and what happens when it is
/// full is written at the machine.
///
/// **Whose fault.** A bad frame is the peer's: it is counted and reported as an event, and `handle` returns `Ok`.
/// A bad command is the caller's: `handle` refuses it with a [`Refusal`](Endpoint::Refusal) and nothing has
/// changed. A call against this contract is a bug and may panic.
///
/// **Idle is cheap.** Polling an idle machine takes constant time and allocates nothing.
///
/// [`laws`](crate::laws) checks all of this; every machine's tests run it.
///
/// # Bulk
///
/// Events carry no bulk. A message that waits is taken by a command, into a buffer that the command borrows (hence
/// [`Command`](Endpoint::Command) has a lifetime); what is not taken closes the window. Transports share one
/// vocabulary: commands send, take, close; events readable, writable, closed.
///
/// # Media
///
/// What frames cross is a machine of the same shape with owned frames: [`Medium`](crate::Medium).
pub trait Endpoint: Send {
    /// What its user may ask. Borrows what the user lends it for the call.
    type Command<'a>;
    /// What it reports to its user.
    type Event;
    /// Why it refuses a command.
    type Refusal: std::fmt::Debug;

    /// Takes one input. Output waits for [`poll`](Endpoint::poll).
    ///
    /// # Errors
    /// For a command only: why it was refused.
    fn handle(&mut self, now: Instant, input: Input<'_, Self::Command<'_>>) -> Result<(), Self::Refusal>;

    /// The next output. A frame or batch to transmit has been written to the start of `buffer`.
    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Self::Event>;
}

/// What an endpoint is told.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a, C> {
    /// A frame arrived, or a batch of frames.
    Frame {
        /// Where.
        port: Port,
        /// From whom.
        peer: Peer,
        /// All of it.
        bytes: &'a [u8],
        /// If this is a batch, the length of its frames.
        segment: Option<Segment>,
    },
    /// Its user asks for something.
    Command(C),
    /// The deadline may have come.
    Wake,
}

/// What an endpoint says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<E> {
    /// Send what stands at the start of the buffer.
    Transmit(Transmit),
    /// Tell its user.
    Event(E),
    /// Nothing more now.
    Idle(Idle),
}

/// A frame or batch to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Through which port.
    pub port: Port,
    /// To whom.
    pub peer: Peer,
    /// Bytes at the start of the buffer.
    pub length: usize,
    /// If this is a batch, the length of its frames.
    pub segment: Option<Segment>,
}

/// The end of the output for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// When to wake it, if nothing comes before.
    pub deadline: Option<Instant>,
    /// What it waits for.
    pub reason: Reason,
}

/// What an idle endpoint waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A frame or a command.
    Input,
    /// Its deadline, before anything else.
    Time,
    /// This port: something waits to leave through it.
    Port(Port),
}
