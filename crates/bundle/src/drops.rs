//! Dropped messages, counted by reason and priority.

use trunkline_endpoint::Port;

use crate::settings::Settings;
use crate::wire::{classic, format2};

/// The reason why a message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// Congestion control.
    Congestion,
    /// No host has joined its address.
    NoReceiver,
    /// A queue is full.
    Full,
    /// It has the length of a control message.
    Control,
    /// It lacks an address, or is too long for a bundle.
    Unfit,
    /// Its receiver left, or was never there.
    Gone,
    /// The host's receive limit.
    Saturated,
    /// The operating system refused to send it.
    Unsent,
}

/// An endpoint that counts the messages of frames that could not be sent.
pub trait CountUnsent {
    /// Counts the messages of the last frame, which could not be sent on this port.
    fn count_unsent(&mut self, port: Port, frame: &[u8]);
}

impl DropReason {
    /// Returns the name of the reason in metrics and records.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Congestion => "congestion",
            DropReason::NoReceiver => "nobody",
            DropReason::Full => "full",
            DropReason::Control => "control",
            DropReason::Unfit => "unfit",
            DropReason::Gone => "gone",
            DropReason::Saturated => "saturated",
            DropReason::Unsent => "unsent",
        }
    }
}

/// Numbers of dropped messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts([[u64; 2]; 8]);

impl DropCounts {
    /// All reasons.
    pub const REASONS: [DropReason; 8] = [
        DropReason::Congestion,
        DropReason::NoReceiver,
        DropReason::Full,
        DropReason::Control,
        DropReason::Unfit,
        DropReason::Gone,
        DropReason::Saturated,
        DropReason::Unsent,
    ];

    /// Counts one message.
    pub fn count(&mut self, reason: DropReason, priority: bool) {
        self.add(reason, priority, 1);
    }

    /// Counts the messages of an unsent format 2 bundle, except reliable ones, which are retransmitted.
    pub(crate) fn count_unsent_bundle(&mut self, bundle: &[u8]) {
        let messages = format2::Bundle::read(bundle).into_iter().flat_map(|bundle| bundle.messages());
        let lost = messages.filter(|message| message.reliable.is_none());
        lost.for_each(|message| self.count(DropReason::Unsent, message.priority));
    }

    /// Counts the messages of an unsent classic bundle to the central converter.
    pub(crate) fn count_unsent_with_mask(&mut self, bundle: &[u8], settings: &Settings) {
        if let Ok((_, bundle)) = classic::ClassicBundle::read_with_mask(bundle) {
            self.count_unsent_classic(&bundle, settings);
        }
    }

    /// Counts the messages of an unsent classic bundle whose messages have addresses.
    pub(crate) fn count_unsent_classic(&mut self, bundle: &classic::ClassicBundle<'_>, settings: &Settings) {
        let data = bundle.messages().filter(|message| message.octets() != classic::CONTROL);
        data.for_each(|message| self.count(DropReason::Unsent, settings.is_priority(message.address)));
    }

    /// Counts several messages.
    pub fn add(&mut self, reason: DropReason, priority: bool, messages: u64) {
        self.0[reason as usize][usize::from(priority)] += messages;
    }

    /// Returns the number of ordinary or priority messages dropped for a reason.
    pub fn get(&self, reason: DropReason, priority: bool) -> u64 {
        self.0[reason as usize][usize::from(priority)]
    }

    /// Returns the number of all dropped messages.
    pub fn total(&self) -> u64 {
        self.0.iter().flatten().sum()
    }
}
