//! The [`Endpoint`] trait and its contract.

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
/// Events carry no bulk data. The user receives a message with a command, into a buffer that the command borrows
/// (hence the lifetime of [`Command`](Endpoint::Command)); messages that are not received close the window. Transports
/// use the same words: commands send, receive, close; events readable, writable, closed.
///
/// # Media
///
/// A medium that carries frames is a state machine of the same shape, with owned frames: [`Medium`](crate::Medium).
pub trait Endpoint: Send {
    /// A command of the user. It may borrow the user's buffers for the call.
    type Command<'a>;
    /// An event for the user.
    type Event;
    /// The reason why a command is refused.
    type Refusal: std::fmt::Debug;

    /// Handles one input. [`poll`](Endpoint::poll) returns the resulting output.
    ///
    /// # Errors
    /// For a command only: the reason of the refusal.
    fn handle(&mut self, now: Instant, input: Input<'_, Self::Command<'_>>) -> Result<(), Self::Refusal>;

    /// Returns the next output. A frame or batch to transmit is at the start of `buffer`.
    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Self::Event>;
}

/// An input of an endpoint.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a, C> {
    /// A frame arrived, or a batch of frames.
    Frame {
        /// The port on which it arrived.
        port: Port,
        /// Its sender.
        peer: Peer,
        /// The frame or the whole batch.
        bytes: &'a [u8],
        /// For a batch, the length of its frames.
        segment: Option<Segment>,
    },
    /// The user gives a command.
    Command(C),
    /// The deadline may have passed.
    Wake,
}

/// An output of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<E> {
    /// Send the frame or batch at the start of the buffer.
    Transmit(Transmit),
    /// Report this event to the user.
    Event(E),
    /// No further output now.
    Idle(Idle),
}

/// A frame or batch to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The port to send through.
    pub port: Port,
    /// Its destination.
    pub peer: Peer,
    /// Its length in bytes.
    pub length: usize,
    /// For a batch, the length of its frames.
    pub segment: Option<Segment>,
}

/// The end of the output for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// When to pass [`Input::Wake`], unless another input arrives earlier.
    pub deadline: Option<Instant>,
    /// What the endpoint waits for.
    pub reason: Reason,
}

/// What an idle endpoint waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A frame or a command.
    Input,
    /// The deadline.
    Time,
    /// This port becoming writable: a frame waits to be sent through it.
    Port(Port),
}
