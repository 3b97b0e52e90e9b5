//! What all three machines agree on.

use crate::gather::Timing;
use crate::wire::classic::LONGEST;

/// How a converter and its hosts work. The same at all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// When bundles leave.
    pub timing: Timing,
    /// Whether odd addresses are priority messages, each joined together with the even one before it.
    pub pairs: bool,
    /// Most octets of a bundle, at most [`LONGEST`].
    pub longest: usize,
}

/// As in 1997, without priorities.
impl Default for Settings {
    fn default() -> Settings {
        Settings { timing: Timing::CLASSIC, pairs: false, longest: LONGEST }
    }
}

impl Settings {
    /// Whether a message is a priority message.
    pub fn is_priority(&self, address: u16) -> bool {
        self.pairs && address & 1 == 1
    }
}
