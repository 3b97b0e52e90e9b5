//! Settings that all endpoints of a site share.

use trunkline_units::Span;

use crate::bundler::Timing;
use crate::level::Medium;
use crate::regulator::Congestion;
use crate::wire::classic::MAX_BUNDLE;
use crate::wire::format2::{DEFAULT_DATAGRAM, MIN_DATAGRAM};

/// The settings of converters and hosts, equal at all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// When bundles leave.
    pub timing: Timing,
    /// Whether an odd address carries the priority messages of the even address before it, so that both are joined
    /// together.
    pub pairs: bool,
    /// The interval of the central converter's [media](crate::level::Medium), in which a congestion level admits its
    /// number of ordinary messages. Not zero.
    pub interval: Span,
    /// The largest bundle in octets, at most [`MAX_BUNDLE`]. Format 1 (classic) only.
    pub max_bundle: usize,
    /// The wire format.
    pub format: Format,
}

/// The wire format of bundles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Format 1 (classic), as in 1997: 16 hosts, 16-bit addresses.
    #[default]
    Classic,
    /// Format 2: any number of hosts, 32-bit addresses, valid DIS.
    Format2(Format2),
}

/// The settings of bundle format 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format2 {
    /// The site: the hosts of one central converter. Each site has a different number.
    pub site: u16,
    /// The largest datagram in octets, from [`MIN_DATAGRAM`] to [`MAX_BUNDLE`]; [`DEFAULT_DATAGRAM`] unless the path
    /// is known to carry more.
    pub max_datagram: usize,
    /// How ordinary messages are sent to hosts.
    pub fanout: Fanout,
    /// The kind of congestion control.
    pub congestion: Congestion,
    /// The largest number of hosts.
    pub max_hosts: u16,
}

/// How ordinary messages are sent to hosts. Priority messages are always sent by unicast and acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fanout {
    /// Each host gets its own bundles with the messages it has joined. Best on a switched network.
    #[default]
    Unicast,
    /// All hosts get the same bundles and discard what they have not joined. Best on a shared medium with similar
    /// interests.
    Broadcast,
}

/// Site 1, any path, unicast bundles.
impl Default for Format2 {
    fn default() -> Format2 {
        let (fanout, congestion) = (Fanout::default(), Congestion::default());
        Format2 { site: 1, max_datagram: DEFAULT_DATAGRAM, fanout, congestion, max_hosts: 1_024 }
    }
}

impl Format2 {
    /// Returns the largest datagram in octets, within its bounds.
    pub fn max_datagram_octets(&self) -> usize {
        self.max_datagram.clamp(MIN_DATAGRAM, MAX_BUNDLE)
    }

    /// Returns the source field of a host of this site.
    pub fn source_of(&self, number: u16) -> u32 {
        u32::from(self.site) << 16 | u32::from(number)
    }

    /// Returns whether a source is a host of this site.
    pub fn is_local_source(&self, source: u32) -> bool {
        source >> 16 == u32::from(self.site)
    }
}

/// Format 1 (classic) as in 1997, without priorities.
impl Default for Settings {
    fn default() -> Settings {
        let interval = Medium::default().interval;
        Settings {
            timing: Timing::CLASSIC,
            pairs: false,
            interval,
            max_bundle: MAX_BUNDLE,
            format: Format::Classic,
        }
    }
}

impl Settings {
    /// Returns whether messages to an address have priority.
    pub fn is_priority(&self, address: impl Into<u32>) -> bool {
        self.pairs && address.into() & 1 == 1
    }

    /// Returns the settings of format 2, if that is the format.
    pub fn format2(&self) -> Option<Format2> {
        match self.format {
            Format::Classic => None,
            Format::Format2(format2) => Some(format2),
        }
    }
}
