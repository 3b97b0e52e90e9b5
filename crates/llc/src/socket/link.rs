//! The line below a loop, and its receive buffers.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trunkline_io::Clock;
use trunkline_io::datagrams::Waker;
use trunkline_units::{Instant, Span};

use super::line::{BUFFER_SIZE, Line, ReceivedFrame};

/// Maximum frames received before output is sent.
const MAX_FRAMES: usize = 32;
/// Longest wait of the receiving thread before it checks what other threads did.
const MAX_WAIT: Span = Span::from_ms(50);
/// How long the receiving thread stays wakeable after a wakeup was needed.
const WAKEABLE_TIME: Span = Span::from_s(10);

/// A line that a thread can block on.
///
/// A thread that blocks in the receive call cannot be woken. Usually that is not needed, because its result arrives over
/// the line; frames to the station itself and cancellations by other threads are exceptions. After such a case the
/// thread also waits on a waker for some time, which costs one more system call.
#[derive(Debug)]
pub(super) struct LineLink {
    pub line: Line,
    clock: Clock,
    waker: Waker,
    /// Until when the receiving thread is wakeable, in picoseconds; zero: never was.
    wakeable_until: AtomicU64,
    /// The waker was woken since the last wait.
    is_woken: AtomicBool,
    /// The line's receive timeout in picoseconds, and whether the last wait used it up.
    timeout: AtomicU64,
    has_lapsed: AtomicBool,
}

/// Received frames and their bytes.
#[derive(Debug)]
pub(super) struct FrameBuffers {
    bytes: Box<[[u8; BUFFER_SIZE]]>,
    frames: [ReceivedFrame; MAX_FRAMES],
    count: usize,
}

impl FrameBuffers {
    pub fn new() -> Box<FrameBuffers> {
        Box::new(FrameBuffers {
            bytes: vec![[0; BUFFER_SIZE]; MAX_FRAMES].into(),
            frames: [ReceivedFrame { station: 0, from: 0, to: 0 }; MAX_FRAMES],
            count: 0,
        })
    }

    /// Returns whether frames were received.
    #[inline]
    pub fn has_frames(&self) -> bool {
        self.count > 0
    }

    /// Iterates over the received frames and the buffers that contain them.
    #[inline]
    pub fn frames(&self) -> impl Iterator<Item = (&ReceivedFrame, &[u8; BUFFER_SIZE])> {
        self.frames[..self.count].iter().zip(&self.bytes)
    }
}

impl LineLink {
    /// Creates a link whose receive calls block for at most [`MAX_WAIT`].
    pub fn new(line: Line, clock: Clock) -> io::Result<LineLink> {
        line.limit_waiting(MAX_WAIT)?;
        Ok(LineLink {
            line,
            clock,
            waker: Waker::new()?,
            wakeable_until: AtomicU64::new(0),
            is_woken: AtomicBool::new(false),
            timeout: AtomicU64::new(MAX_WAIT.as_ps()),
            has_lapsed: AtomicBool::new(false),
        })
    }

    #[inline]
    fn is_wakeable(&self) -> bool {
        let until = self.wakeable_until.load(Ordering::Relaxed);
        until > 0 && self.clock.now().as_ps() < until
    }

    /// Sets the line's receive timeout to one of a few values, so that it rarely changes.
    #[inline]
    fn limit(&self, wait: Span) {
        let limit = if wait <= Span::from_ms(2) {
            Span::from_ms(2)
        } else if wait <= Span::from_ms(10) {
            Span::from_ms(10)
        } else {
            MAX_WAIT
        };
        let current = Span::from_ps(self.timeout.load(Ordering::Relaxed));
        let has_to_change = limit < current || limit > current && self.has_lapsed.load(Ordering::Relaxed);
        if has_to_change && self.line.limit_waiting(limit).is_ok() {
            self.timeout.store(limit.as_ps(), Ordering::Relaxed);
        }
    }

    /// Receives a frame into the next buffer; returns false if there is none.
    #[inline]
    fn receive_frame(&self, buffers: &mut FrameBuffers, wait: bool) -> io::Result<bool> {
        let at = buffers.count;
        match self.line.receive(&mut buffers.bytes[at], wait) {
            Ok(Some(frame)) => {
                (buffers.frames[at], buffers.count) = (frame, at + 1);
                Ok(true)
            }
            // The source is no station.
            Ok(None) => Ok(true),
            Err(error) if is_transient(&error) => {
                if wait {
                    self.has_lapsed.store(error.kind() == io::ErrorKind::WouldBlock, Ordering::Relaxed);
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Receives what is there. With `wait`, blocks until there is something, [`wake`](LineLink::wake) is called, or about
    /// that time has passed, at most [`MAX_WAIT`].
    ///
    /// # Errors
    /// If the line has failed. Nothing received is no error.
    #[inline]
    pub fn receive(&self, buffers: &mut FrameBuffers, wait: Option<Span>) -> io::Result<()> {
        buffers.count = 0;
        let Some(wait) = wait else {
            for _ in 0..MAX_FRAMES {
                if !self.receive_frame(buffers, false)? {
                    break;
                }
            }
            return Ok(());
        };
        let is_wakeable = self.is_wakeable();
        if is_wakeable {
            // A failed wait is treated as a short one.
            let _ = self.waker.wait(&[self.line.as_fd()], Some(wait.min(MAX_WAIT)));
            self.is_woken.store(false, Ordering::Relaxed);
        } else {
            self.limit(wait);
            self.has_lapsed.store(false, Ordering::Relaxed);
        }
        self.receive_frame(buffers, !is_wakeable).map(drop)
    }

    /// Unblocks the receiving thread, now or within [`MAX_WAIT`].
    pub fn wake(&self, now: Instant) {
        self.wakeable_until.store((now + WAKEABLE_TIME).as_ps(), Ordering::Relaxed);
        if !self.is_woken.swap(true, Ordering::Relaxed) {
            self.waker.wake();
        }
    }
}

impl AsFd for LineLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

/// Returns whether an error is transient: a timeout, or an interface that is down or full.
fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, Interrupted, NetworkDown, NetworkUnreachable, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | NetworkDown | NetworkUnreachable | HostUnreachable)
}
