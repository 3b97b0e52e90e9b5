//! Patterns of traffic: which messages are sent, and when.

use serde::{Deserialize, Serialize};

use crate::Variable;

/// A burst: `SIZE:COUNT`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// Bytes of a message, drawn per message.
    pub size_bytes: Variable,
    /// Messages of a burst, drawn per burst, at least 1.
    pub count: Variable,
}

/// Which messages are sent, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// As fast as it goes.
    Full {
        /// Bytes of a message.
        size_bytes: Variable,
    },
    /// A burst every period. A late burst is queued: lateness never adds up (1996 `cbr`, 1999 `burstq`).
    Cbr {
        /// What a burst is.
        burst: Burst,
        /// Seconds from burst to burst.
        period_s: Variable,
    },
    /// A burst every period; a burst whose next period has begun is skipped (1999 `burst`).
    Burst {
        /// What a burst is.
        burst: Burst,
        /// Seconds from burst to burst.
        period_s: Variable,
    },
    /// A burst, then a uniformly distributed period.
    Random {
        /// What a burst is.
        burst: Burst,
        /// Shortest period, seconds.
        min_period_s: Variable,
        /// Longest period, seconds.
        max_period_s: Variable,
    },
    /// Messages of a Poisson process.
    Poisson {
        /// Bytes of a message.
        size_bytes: Variable,
        /// Messages a second, drawn once.
        rate_per_s: Variable,
    },
    /// One rate after another, each held; evenly spaced messages.
    Stairs {
        /// Bytes of a message.
        size_bytes: Variable,
        /// Goodput rates, bits per second, each drawn once.
        rates_bps: Vec<Variable>,
        /// How long each is held, seconds, drawn once.
        hold_s: Variable,
    },
    /// One request in flight; the answer ends the round trip and the next begins.
    Request {
        /// Bytes of a request.
        request_bytes: Variable,
        /// Bytes of an answer.
        response_bytes: Variable,
    },
    /// A file, disk to disk.
    File {
        /// As the experiment names it; relative to the experiment's folder.
        path: String,
        /// Bytes of a message.
        size_bytes: Variable,
    },
    /// An application model of NetSpec 3 with the parameters it was given (`name → value`).
    Application {
        /// Which.
        model: Application,
        /// Its parameters.
        parameters: Vec<(String, Variable)>,
    },
}

/// The application models of NetSpec 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Application {
    /// File transfer sessions.
    Ftp,
    /// Keystrokes.
    Telnet,
    /// Constant-rate voice.
    Voice,
    /// MPEG video.
    Mpeg,
    /// Video conference.
    Videoconference,
    /// Web pages.
    Www,
}
