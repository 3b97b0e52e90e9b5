//! The trait and its contract.

use trunkline_units::Instant;

use crate::{Peer, Port, Segment, Writable};

/// A protocol as a state machine.
///
/// # The contract
///
/// **Two calls.** [`handle`](Endpoint::handle) gives the machine one input; [`poll`](Endpoint::poll) returns one
/// output at a time, until it returns [`Output::Idle`]. [`drain`](crate::drain()) is that loop. Calls may come in any
/// order: a second `handle` may precede the output of the first.
///
/// **Time is an argument.** `now` never decreases from call to call; it may stay equal. Timers run only in `handle`;
/// a `poll` after the deadline returns the same deadline again.
///
/// **Deadlines.** At the deadline of [`Idle`] a driver passes [`Input::Wake`] and polls again. That makes progress,
/// and the next deadline is strictly later than the time of the wakeup. An early or needless wakeup has no effect. A
/// machine without pending timers returns no deadline. A driver waits until the deadline and needs no other timer.
///
/// **Ports.** `poll` returns frames only for ports in `writable`. A frame for another port stays in the machine, and
/// `Idle` has [`Reason::Port`]. A returned frame is gone: the driver sends it or loses it.
///
/// **Bounds.** A frame or batch has at most [`MAX_BATCH`](crate::MAX_BATCH) bytes and
/// [`MAX_SEGMENTS`](crate::MAX_SEGMENTS) frames, in both directions; `buffer` has at least
/// [`MAX_BATCH`](crate::MAX_BATCH) bytes. Every queue inside a machine is bounded; the machine documents what happens
/// when one is full.
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

/// An input of an endpoint.
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
