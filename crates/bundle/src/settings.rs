//! What all three machines agree on.

use trunkline_units::Span;

use crate::gather::Timing;
use crate::level::Medium;
use crate::regulator::Congestion;
use crate::wire::classic::LONGEST;
use crate::wire::wide::{LEAST_PATH, PATH};

/// How a converter and its hosts work. The same at all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// When bundles leave.
    pub timing: Timing,
    /// Whether odd addresses are priority messages, each joined together with the even one before it.
    pub pairs: bool,
    /// In which so many ordinary messages go as the level of congestion lets go: an interval of the central converter's
    /// [media](crate::level::Medium). Not zero.
    pub interval: Span,
    /// Most octets of a bundle, at most [`LONGEST`]; of the classic format.
    pub longest: usize,
    /// What stands on the wire.
    pub format: Format,
}

/// What stands on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// As in 1997: 16 hosts, 16-bit addresses.
    #[default]
    Classic,
    /// Any number of hosts, 32-bit addresses, legal DIS.
    Wide(Wide),
}

/// What the wide format needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wide {
    /// This site: the hosts of one central converter. Each has another number.
    pub site: u16,
    /// Most octets of a datagram, from [`LEAST_PATH`] to [`LONGEST`]. [`PATH`] unless the path is known to carry more.
    pub path: usize,
    /// How ordinary messages go to hosts.
    pub spread: Spread,
    /// What is dropped when there is too much.
    pub congestion: Congestion,
    /// Hosts that there may be.
    pub most_hosts: u16,
}

/// How ordinary messages go to hosts. Those with priority go to each that wants them by itself, and are acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Each host gets bundles of its own, of what it wants. Right on a switched network.
    #[default]
    Each,
    /// One bundle to all, of which each keeps what it wants. Right where all hear all, and want much alike.
    All,
}

/// Site 1, any path, bundles for each host.
impl Default for Wide {
    fn default() -> Wide {
        let (spread, congestion) = (Spread::default(), Congestion::default());
        Wide { site: 1, path: PATH, spread, congestion, most_hosts: 1_024 }
    }
}

impl Wide {
    /// Most octets of a datagram, within its bounds.
    pub fn longest(&self) -> usize {
        self.path.clamp(LEAST_PATH, LONGEST)
    }

    /// What stands for a host of this site as a source.
    pub fn source(&self, number: u16) -> u32 {
        u32::from(self.site) << 16 | u32::from(number)
    }

    /// Whether a source is a host of this site.
    pub fn is_own(&self, source: u32) -> bool {
        source >> 16 == u32::from(self.site)
    }
}

/// As in 1997, without priorities.
impl Default for Settings {
    fn default() -> Settings {
        let interval = Medium::default().interval;
        Settings {
            timing: Timing::CLASSIC,
            pairs: false,
            interval,
            longest: LONGEST,
            format: Format::Classic,
        }
    }
}

impl Settings {
    /// Whether a message is a priority message.
    pub fn is_priority(&self, address: impl Into<u32>) -> bool {
        self.pairs && address.into() & 1 == 1
    }

    /// What the wide format needs to know, if that is the format.
    pub fn wide(&self) -> Option<Wide> {
        match self.format {
            Format::Classic => None,
            Format::Wide(wide) => Some(wide),
        }
    }
}
