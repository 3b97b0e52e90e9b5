//! Patterns of traffic: how large messages are, and when they are due.

use serde::{Deserialize, Serialize};

use crate::application::Application;
use crate::{Recording, RecordingRequest, Variable};

/// A burst: messages that are due at the same instant. `SIZE:COUNT` in the language.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// Bytes of a message, drawn for each message.
    pub size_bytes: Variable,
    /// Messages of a burst, at least 1, drawn for each burst.
    pub count: Variable,
}

/// Sizes and times of messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// At full speed.
    Full {
        /// Bytes of a message.
        size_bytes: Variable,
    },
    /// A burst every period. Late bursts are sent as soon as possible, so lateness does not accumulate (`cbr` of NetSpec,
    /// 1996; `burstq` of NetSpec 3, 1999).
    Cbr {
        /// The bursts.
        burst: Burst,
        /// Seconds between bursts.
        period_s: Variable,
    },
    /// A burst every period. A burst is skipped if the next one is already due (`burst` of NetSpec 3, 1999).
    Burst {
        /// The bursts.
        burst: Burst,
        /// Seconds between bursts.
        period_s: Variable,
    },
    /// Bursts with uniformly distributed periods between them.
    Random {
        /// The bursts.
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
    /// Evenly spaced messages at one rate after the other.
    Stairs {
        /// Bytes of a message.
        size_bytes: Variable,
        /// Goodput rates, bits per second, each drawn once.
        rates_bps: Vec<Variable>,
        /// Seconds for which each rate is held, drawn once.
        hold_s: Variable,
    },
    /// Requests, one in flight: the next is sent when the response has arrived.
    Request {
        /// Bytes of a request.
        request_bytes: Variable,
        /// Bytes of a response.
        response_bytes: Variable,
    },
    /// A file, from disk to disk.
    File {
        /// The path in the experiment, relative to the experiment's folder.
        path: String,
        /// Bytes of a message.
        size_bytes: Variable,
    },
    /// Sizes and times of recorded messages.
    Replay {
        /// Where they come from.
        request: RecordingRequest,
        /// The messages.
        recording: Recording,
        /// Times are divided by this.
        scale: f64,
        /// Bytes of the longest message.
        size_bytes: Variable,
    },
    /// Traffic like that of an application.
    Application {
        /// The model.
        model: Application,
        /// The keyword of its choice, such as a codec; `None` if it has none.
        variant: Option<String>,
        /// Bytes of the longest message; longer items are split.
        size_bytes: Variable,
        /// Names and values of its parameters.
        parameters: Vec<(String, Variable)>,
    },
}

impl Pattern {
    /// Returns how many requests may wait for their responses at a time; 0 if messages request none.
    pub fn max_outstanding(&self) -> usize {
        match self {
            Pattern::Request { .. } => 1,
            Pattern::Application { model, .. } => match self.setting("maxOutstanding") {
                Some(limit) => limit as usize,
                None => model.definition().max_outstanding.into(),
            },
            _ => 0,
        }
    }

    /// Returns the value of a constant parameter of an application model; `None` if there is none of this name.
    pub fn setting(&self, name: &str) -> Option<f64> {
        let Pattern::Application { parameters, .. } = self else { return None };
        parameters.iter().find_map(|(parameter, value)| match value {
            Variable::Constant(value) if parameter == name => Some(*value),
            _ => None,
        })
    }

    /// Returns about how many bytes of memory a source may need beyond a constant: an upper end of what grows with the
    /// values of the pattern.
    pub fn memory(&self) -> u64 {
        match self {
            Pattern::Replay { recording, .. } => size_of_val(recording.messages()) as u64,
            Pattern::Application { model, variant, parameters, .. } => {
                model.definition().memory(variant.as_deref(), parameters)
            }
            _ => 0,
        }
    }

    /// Returns the pattern without recorded messages, for an end that does not send them.
    #[must_use]
    pub fn without_messages(&self) -> Pattern {
        self.with_recording(Recording::default())
    }

    /// Returns the pattern with the longest of its recorded messages only, to check its limits.
    #[must_use]
    pub fn with_longest_message(&self) -> Pattern {
        let Pattern::Replay { recording, .. } = self else { return self.clone() };
        self.with_recording(Recording::new(vec![(0, recording.largest())]).unwrap_or_default())
    }

    fn with_recording(&self, messages: Recording) -> Pattern {
        let mut pattern = self.clone();
        if let Pattern::Replay { recording, .. } = &mut pattern {
            *recording = messages;
        }
        pattern
    }

    /// Returns whether messages request responses.
    pub fn has_responses(&self) -> bool {
        self.max_outstanding() > 0
    }
}
