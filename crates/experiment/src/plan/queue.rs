//! Queue disciplines, traces and changes of links.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use trunkline_units::{Rate, Size, Span};

use super::{Amount, SourceRange};

/// A queue discipline with its parameters. The buffer of the node limits the queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// FIFO with tail drop.
    DropTail,
    /// Random early detection (Floyd and Jacobson 1993).
    Red {
        /// Average queue from which packets are dropped.
        min: Amount,
        /// Average queue at which the probability is `probability`; above `min`, in the same unit.
        max: Amount,
        /// Drop probability at `max`, 0 to 1.
        probability: f64,
        /// Weight of the current queue in the average, above 0, up to 1.
        weight: f64,
        /// Whether the probability rises to 1 between `max` and twice `max`, instead of at once.
        gentle: bool,
        /// Length of a typical packet, for the decay of the average while the queue is idle.
        packet: Size,
        /// Whether ECN-capable packets are marked instead of dropped.
        ecn: bool,
    },
    /// CoDel (RFC 8289).
    #[serde(rename = "codel")]
    CoDel(CoDel),
    /// FQ-CoDel (RFC 8290).
    FqCodel {
        /// CoDel in each queue.
        codel: CoDel,
        /// Number of queues that flows are hashed to.
        flows: u32,
        /// Bytes that a queue may send in a round.
        quantum: Size,
    },
    /// PIE (RFC 8033).
    Pie {
        /// Reference delay.
        target: Span,
        /// Interval of updates of the probability, at least 1 us.
        update: Span,
        /// Weight of the difference to the target, per second.
        alpha: f64,
        /// Weight of the change of the delay, per second.
        beta: f64,
        /// Duration of a burst that passes without drops.
        burst: Span,
        /// Whether ECN-capable packets are marked instead of dropped.
        ecn: bool,
        /// Highest probability at which they are marked, 0 to 1.
        max_ecn: f64,
    },
    /// DualPI2 (RFC 9332).
    #[serde(rename = "dualpi2")]
    DualPi2 {
        /// Target delay of the classic queue.
        target: Span,
        /// Interval of updates of the probability, at least 1 us.
        update: Span,
        /// Weight of the difference to the target, per second.
        alpha: f64,
        /// Weight of the change of the delay, per second.
        beta: f64,
        /// Coupling factor of the two queues.
        coupling: f64,
        /// Delay of the L4S queue at which marking begins.
        threshold: Span,
        /// Further delay at which every packet is marked.
        range: Span,
        /// Share of the classic queue while both are full, above 0, below 1.
        classic: f64,
    },
    /// Strict priority by DSCP.
    Priority,
    /// Deficit round robin (Shreedhar and Varghese 1995).
    Drr {
        /// Bytes that a class of weight 1 may send in a round.
        quantum: Size,
        /// Weights by DSCP; all others share a class of weight 1. Empty: each flow is a class of weight 1.
        weights: Vec<(u8, u32)>,
    },
}

impl Queue {
    /// Returns its name in the language.
    pub fn name(&self) -> &'static str {
        match self {
            Queue::DropTail => "droptail",
            Queue::Red { .. } => "red",
            Queue::CoDel(_) => "codel",
            Queue::FqCodel { .. } => "fq-codel",
            Queue::Pie { .. } => "pie",
            Queue::DualPi2 { .. } => "dualpi2",
            Queue::Priority => "priority",
            Queue::Drr { .. } => "drr",
        }
    }

    /// Returns whether it drops or marks packets although there is room. The others only order them.
    pub fn is_active(&self) -> bool {
        !matches!(self, Queue::DropTail | Queue::Priority | Queue::Drr { .. })
    }
}

/// Parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoDel {
    /// Acceptable standing delay.
    pub target: Span,
    /// Time that the delay may exceed the target.
    pub interval: Span,
    /// Whether ECN-capable packets are marked instead of dropped.
    pub ecn: bool,
    /// Sojourn time above which every ECN-capable packet is marked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ce_threshold: Option<Span>,
}

/// A rate and a burst, in bytes of IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRate {
    /// The rate.
    pub rate: Rate,
    /// The burst; at least the MTU of the link.
    pub burst: Size,
}

/// A trace that replaces the rate of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The path of its file in the experiment.
    pub file: String,
    /// What the file contains.
    pub points: TracePoints,
}

/// The content of a trace. Times count from the start of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TracePoints {
    /// Times at which 1,504 bytes may be sent, ascending; repeated with the last one as the period, which is not zero.
    Opportunities(Arc<[Span]>),
    /// The rate from each time on; times ascend, and not all rates are zero.
    Rates(Arc<[(Span, Rate)]>),
}

/// A change of a link during the run. What it does not name stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkChange {
    /// Time since the start of the run.
    pub at: Span,
    /// Name of the link.
    pub link: String,
    /// Line rate and rate of frames.
    pub rate: Option<Rate>,
    /// Propagation delay.
    pub delay: Option<Span>,
    /// Whether the link carries frames.
    pub up: Option<bool>,
    /// Share of frames that are lost.
    pub loss: Option<f64>,
    /// Share that is damaged.
    pub corrupt: Option<f64>,
    /// Share that is duplicated.
    pub duplicate: Option<f64>,
    /// Share that is delivered after the next.
    pub reorder: Option<f64>,
    /// Location in the text.
    #[serde(skip)]
    pub location: SourceRange,
}
