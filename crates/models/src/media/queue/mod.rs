//! Queue disciplines: which frame of a port's queue is sent next, and which are dropped or marked.
//!
//! The line of a [`Link`](crate::media::Link) computes the departures of its FIFO queue with tail drop when frames arrive. Every other
//! discipline, a shaper, a policer, a rate that changes and a link that replays a trace need an explicit queue: the line then
//! uses a `PortQueue`, which keeps frames in a [`Discipline`] until their transmission begins.
//!
//! | module | contents |
//! | --- | --- |
//! | [`fifo`] | frames in order of arrival, with their times |
//! | [`drop_tail`] | FIFO with tail drop |
//! | [`codel`] | CoDel (RFC 8289) |
//! | [`fq_codel`] | FQ-CoDel (RFC 8290) |
//! | [`red`] | RED (Floyd and Jacobson 1993), gentle |
//! | [`pie`] | PIE (RFC 8033) |
//! | [`dual_pi2`] | DualPI2 (RFC 9332) |
//! | [`priority`] | strict priority by DSCP |
//! | [`drr`] | deficit round robin (Shreedhar and Varghese 1995) by flow, or weighted by DSCP |
//! | [`token_bucket`] | shaper and policer |
//! | [`opportunities`], [`rate_steps`] | when a link that replays a trace sends |
//! | [`changes`] | changes of a link at given times |
//! | `port` | the queue and the transmitter of a port |
//!
//! The limit of the queue belongs to the port ([`Bound`](trunkline_endpoint::Bound)), not to the discipline, which only says
//! which frame must make room.

pub mod changes;
pub mod codel;
pub mod drop_tail;
pub mod drr;
pub mod dual_pi2;
pub mod fifo;
pub mod fq_codel;
pub mod opportunities;
pub mod pie;
pub(crate) mod port;
pub mod priority;
pub mod rate_steps;
pub mod red;
pub mod token_bucket;

use trunkline_endpoint::Frame;
use trunkline_units::{Instant, Rate, Span, Stream};

pub use changes::LinkChange;
pub use codel::CoDelOptions;
pub use drr::DrrOptions;
pub use dual_pi2::DualPi2Options;
pub use fifo::Queued;
pub use fq_codel::FqCoDelOptions;
pub use opportunities::Opportunities;
pub use pie::PieOptions;
pub use port::QueueCounters;
pub use rate_steps::RateSteps;
pub use red::RedOptions;
pub use token_bucket::TokenRate;

/// What a discipline did to frames besides queueing them.
#[derive(Clone, Debug)]
pub struct Actions<F> {
    /// Frames that it dropped although there was room.
    pub dropped: Vec<F>,
    /// Number of frames that it marked with [`Ecn::Ce`](trunkline_endpoint::Ecn::Ce).
    pub marked: u64,
}

impl<F> Default for Actions<F> {
    fn default() -> Self {
        Actions { dropped: Vec::new(), marked: 0 }
    }
}

impl<F: Frame> Actions<F> {
    /// Marks a frame if it is capable of ECN; returns whether it is.
    fn try_mark(&mut self, frame: &mut F) -> bool {
        let is_capable = frame.ecn().is_capable();
        if is_capable {
            frame.mark_ce();
            self.marked += 1;
        }
        is_capable
    }
}

/// A queue discipline as a state machine: it opens nothing, has no timer, and takes the time as an argument, which never
/// goes back.
///
/// For an arriving frame the port calls [`admit`](Discipline::admit), then [`evict`](Discipline::evict) as long as the
/// frame does not fit, then [`enqueue`](Discipline::enqueue). When the transmitter is free it calls
/// [`dequeue`](Discipline::dequeue). Every frame that was enqueued leaves by `evict`, by `dequeue`, or in
/// [`Actions::dropped`].
pub trait Discipline<F: Frame> {
    /// Decides about a frame that arrives, before it is known whether it fits; may mark it. Returns false to drop it.
    fn admit(&mut self, _now: Instant, _frame: &mut F, _actions: &mut Actions<F>) -> bool {
        true
    }

    /// Removes a frame to make room for `arriving`; `None`: `arriving` is to be dropped.
    fn evict(&mut self, _arriving: &F) -> Option<F> {
        None
    }

    /// Queues a frame.
    fn enqueue(&mut self, now: Instant, frame: F);

    /// Removes the frame that is sent next. `None`: nothing is left.
    fn dequeue(&mut self, now: Instant, actions: &mut Actions<F>) -> Option<Queued<F>>;

    /// Returns the number of queued frames.
    fn frames(&self) -> u64;
}

/// A discipline with its parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum DisciplineOptions {
    /// FIFO with tail drop.
    #[default]
    DropTail,
    /// Random early detection.
    Red(RedOptions),
    /// CoDel.
    CoDel(CoDelOptions),
    /// FQ-CoDel.
    FqCoDel(FqCoDelOptions),
    /// PIE.
    Pie(PieOptions),
    /// DualPI2.
    DualPi2(DualPi2Options),
    /// Strict priority by DSCP.
    Priority,
    /// Deficit round robin.
    Drr(DrrOptions),
}

/// When a link that replays a trace sends.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceOptions {
    /// Opportunities to send a number of bytes.
    Opportunities(Opportunities),
    /// A rate over time.
    Rate(RateSteps),
}

/// Options of the explicit queue of a port.
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// The discipline.
    pub discipline: DisciplineOptions,
    /// Rate and burst that the frames keep, beside the rate of the line.
    pub shaper: Option<TokenRate>,
    /// Rate and burst above which arriving frames are dropped.
    pub policer: Option<TokenRate>,
    /// The trace that replaces the rate of the line.
    pub trace: Option<TraceOptions>,
    /// Changes in order of time.
    pub changes: Vec<LinkChange>,
    /// Random numbers of the discipline.
    pub stream: Stream,
}

/// A discipline of any kind. Dispatch by enum keeps it cloneable.
#[derive(Clone, Debug)]
pub(crate) enum AnyDiscipline<F> {
    DropTail(drop_tail::DropTail<F>),
    Red(red::Red<F>),
    CoDel(codel::CoDel<F>),
    FqCoDel(fq_codel::FqCoDel<F>),
    Pie(pie::Pie<F>),
    DualPi2(dual_pi2::DualPi2<F>),
    Priority(priority::Priority<F>),
    Drr(drr::Drr<F>),
}

impl<F: Frame> AnyDiscipline<F> {
    /// Creates an empty queue. `rate` is that of the line.
    fn new(options: DisciplineOptions, rate: Rate, stream: Stream) -> Self {
        match options {
            DisciplineOptions::DropTail => AnyDiscipline::DropTail(drop_tail::DropTail::default()),
            DisciplineOptions::Red(options) => AnyDiscipline::Red(red::Red::new(options, rate, stream)),
            DisciplineOptions::CoDel(options) => AnyDiscipline::CoDel(codel::CoDel::new(options)),
            DisciplineOptions::FqCoDel(options) => {
                AnyDiscipline::FqCoDel(fq_codel::FqCoDel::new(options, stream))
            }
            DisciplineOptions::Pie(options) => AnyDiscipline::Pie(pie::Pie::new(options, stream)),
            DisciplineOptions::DualPi2(options) => AnyDiscipline::DualPi2(dual_pi2::DualPi2::new(options)),
            DisciplineOptions::Priority => AnyDiscipline::Priority(priority::Priority::default()),
            DisciplineOptions::Drr(options) => AnyDiscipline::Drr(drr::Drr::new(options)),
        }
    }
}

macro_rules! dispatch {
    ($self:expr, $discipline:ident => $call:expr) => {
        match $self {
            AnyDiscipline::DropTail($discipline) => $call,
            AnyDiscipline::Red($discipline) => $call,
            AnyDiscipline::CoDel($discipline) => $call,
            AnyDiscipline::FqCoDel($discipline) => $call,
            AnyDiscipline::Pie($discipline) => $call,
            AnyDiscipline::DualPi2($discipline) => $call,
            AnyDiscipline::Priority($discipline) => $call,
            AnyDiscipline::Drr($discipline) => $call,
        }
    };
}

impl<F: Frame> Discipline<F> for AnyDiscipline<F> {
    fn admit(&mut self, now: Instant, frame: &mut F, actions: &mut Actions<F>) -> bool {
        dispatch!(self, discipline => discipline.admit(now, frame, actions))
    }

    fn evict(&mut self, arriving: &F) -> Option<F> {
        dispatch!(self, discipline => discipline.evict(arriving))
    }

    fn enqueue(&mut self, now: Instant, frame: F) {
        dispatch!(self, discipline => discipline.enqueue(now, frame));
    }

    fn dequeue(&mut self, now: Instant, actions: &mut Actions<F>) -> Option<Queued<F>> {
        dispatch!(self, discipline => discipline.dequeue(now, actions))
    }

    fn frames(&self) -> u64 {
        dispatch!(self, discipline => discipline.frames())
    }
}

/// Returns the number of periods that end by `now`, and the end of the first one after it. For periodic updates without a
/// timer: nothing that they depend on changes between two calls. At most 100,000, which no controller distinguishes from more.
fn elapsed_periods(next: Instant, period: Span, now: Instant) -> (u64, Instant) {
    if now < next || period.is_zero() {
        return (0, next);
    }
    let periods = now.since(next).as_ps() / period.as_ps() + 1;
    (periods.min(100_000), next + period * periods)
}
