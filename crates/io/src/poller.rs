//! Waits for several descriptors; a timer that is a descriptor. Epoll and timerfd on Linux, kqueue elsewhere.

#[cfg(target_os = "linux")]
mod epoll;
#[cfg(not(target_os = "linux"))]
mod kqueue;

#[cfg(target_os = "linux")]
pub(crate) use epoll::{Poller, TimerDescriptor};
#[cfg(not(target_os = "linux"))]
pub(crate) use kqueue::{Poller, TimerDescriptor};

/// Maximum number of events of one wait.
const MAX_EVENTS: usize = 16;

/// What a wait found of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// The key that the descriptor was added with.
    pub key: u64,
    /// Whether it is readable.
    pub is_readable: bool,
    /// Whether it has an error to report.
    pub has_error: bool,
}
