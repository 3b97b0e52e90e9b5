//! Threads that share an endpoint: one receives for all, and the helper keeps deadlines and receives for none.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use trunkline_io::datagrams::Waker;
use trunkline_io::shared_loop::{Policy, Service, TimedOut};
use trunkline_io::socket::Options;
use trunkline_io::{Clock, Datagrams, SharedLoop};
use trunkline_units::{Instant, Span};

struct Socket {
    datagrams: Datagrams,
    waker: Waker,
}

struct Buffer {
    bytes: Vec<u8>,
    from: Option<SocketAddr>,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.datagrams.as_fd()
    }
}

/// Answers each datagram with its first byte plus one, and stores it in the queue of that byte; a tick is due 5 ms after
/// it was requested.
struct Answers {
    buffer: Option<Buffer>,
    queues: [VecDeque<u8>; 4],
    answers: VecDeque<(SocketAddr, u8)>,
    tick_at: Option<Instant>,
    ticks: u32,
    has_changed: bool,
    is_closed: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Error {
    NotYet,
    Ended(TimedOut),
}

impl From<TimedOut> for Error {
    fn from(error: TimedOut) -> Error {
        Error::Ended(error)
    }
}

impl Service for Answers {
    type Link = Socket;
    type Buffers = Buffer;
    type Error = Error;
    type Target = ();

    const LIMITS_WAITING: bool = true;

    fn receive(link: &Socket, buffer: &mut Buffer, wait: Option<Span>) -> io::Result<()> {
        buffer.bytes.resize(1 << 16, 0);
        if let Some(wait) = wait {
            link.waker.wait(&[link.as_fd()], (wait < Span::MAX).then_some(wait))?;
        }
        let received = link.datagrams.receive(&mut buffer.bytes, false)?.filter(|batch| batch.length > 0);
        buffer.bytes.truncate(received.map_or(0, |batch| batch.length));
        buffer.from = received.map(|batch| batch.from);
        Ok(())
    }

    fn wake(link: &Socket, _: Instant) {
        link.waker.wake();
    }

    fn must_wait(error: &Error) -> bool {
        *error == Error::NotYet
    }

    fn is_receiving(&self) -> bool {
        self.buffer.is_none()
    }

    fn take_buffers(&mut self, _: Option<()>) -> Option<Buffer> {
        self.buffer.take()
    }

    fn handle_received(&mut self, _: Instant, _: &Socket, buffer: Buffer, received: io::Result<()>) -> bool {
        received.unwrap();
        let has_received = buffer.from.is_some();
        if let (Some(from), Some(&byte)) = (buffer.from, buffer.bytes.first()) {
            self.queues[usize::from(byte)].push_back(byte);
            self.answers.push_back((from, byte + 1));
            self.has_changed = true;
        }
        self.buffer = Some(buffer);
        has_received
    }

    fn transmit(&mut self, now: Instant, link: &Socket) {
        for (to, byte) in self.answers.drain(..) {
            link.datagrams.send(to, &[byte], None).unwrap();
        }
        if self.tick_at.take_if(|at| *at <= now).is_some() {
            (self.ticks, self.has_changed) = (self.ticks + 1, true);
        }
    }

    fn may_transmit(&mut self, now: Instant) -> bool {
        !self.answers.is_empty() || self.deadline() <= now
    }

    fn deadline(&self) -> Instant {
        self.tick_at.unwrap_or(Instant::MAX)
    }

    fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    fn can_receive(&self) -> bool {
        true
    }

    fn failure(&mut self) -> Option<Error> {
        None
    }

    fn is_unused(&self) -> bool {
        self.is_closed
    }

    fn is_over(&mut self, _: Instant) -> bool {
        true
    }
}

struct Fixture {
    shared: Arc<SharedLoop<Answers>>,
    helper: thread::JoinHandle<()>,
    clock: Clock,
    peer: UdpSocket,
}

fn start(callers_receive: bool) -> Fixture {
    let clock = Clock::start();
    let socket = Datagrams::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.connect(socket.local()).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let ms = Span::from_ms(1);
    let policy = Policy { callers_receive, unattended: ms, check_interval: (ms, ms), max_slack: Span::ZERO };
    let socket = Socket { datagrams: socket, waker: Waker::new().unwrap() };
    let answers = Answers {
        buffer: Some(Buffer { bytes: Vec::new(), from: None }),
        queues: Default::default(),
        answers: VecDeque::new(),
        tick_at: None,
        ticks: 0,
        has_changed: false,
        is_closed: false,
    };
    let (shared, helper) = SharedLoop::start("test", socket, clock, answers, policy).unwrap();
    Fixture { shared, helper, clock, peer }
}

fn take(shared: &SharedLoop<Answers>, queue: usize, timeout: Option<Duration>) -> Result<u8, Error> {
    shared.until(timeout, |service, _| service.queues[queue].pop_front().ok_or(Error::NotYet))
}

#[test]
fn each_waiting_thread_gets_its_own() {
    for callers_receive in [true, false] {
        let Fixture { shared, helper, peer, .. } = start(callers_receive);
        thread::scope(|scope| {
            let waiting = [0, 1, 2].map(|queue| {
                let shared = &shared;
                scope.spawn(move || (0..100).map(|_| take(shared, queue, None).unwrap()).collect::<Vec<_>>())
            });
            for n in 0..300u32 {
                peer.send(&[(n % 3) as u8]).unwrap();
                let mut answer = [0];
                peer.recv(&mut answer).unwrap();
                assert_eq!(u32::from(answer[0]), n % 3 + 1);
            }
            for (queue, thread) in waiting.into_iter().enumerate() {
                assert_eq!(thread.join().unwrap(), [queue as u8; 100]);
            }
        });
        shared.run(|service, _| service.is_closed = true);
        helper.join().unwrap();
    }
}

#[test]
fn the_helper_answers_and_ticks_while_no_thread_waits() {
    let Fixture { shared, helper, clock, peer } = start(true);
    for _ in 0..10 {
        peer.send(&[3]).unwrap();
        peer.recv(&mut [0]).unwrap();
    }
    let due = shared.run(|service, now| *service.tick_at.insert(now + Span::from_ms(5)));
    shared.until(None, |service, _| if service.ticks == 1 { Ok(()) } else { Err(Error::NotYet) }).unwrap();
    assert!(clock.now() >= due);
    assert_eq!(shared.lock().service.queues[3].len(), 10);
    shared.run(|service, _| service.is_closed = true);
    helper.join().unwrap();
}

#[test]
fn timeouts_end_a_wait() {
    let Fixture { shared, helper, clock, .. } = start(true);
    let begun = clock.now();
    let timeout = Duration::from_millis(20);
    assert_eq!(take(&shared, 0, Some(timeout)), Err(Error::Ended(TimedOut)));
    assert!(clock.now() >= begun + Span::from(timeout));
    assert_eq!(take(&shared, 0, Some(Duration::ZERO)), Err(Error::Ended(TimedOut)));
    shared.run(|service, _| service.is_closed = true);
    helper.join().unwrap();
}
