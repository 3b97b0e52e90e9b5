//! Consent of an agent: both machines on one UDP socket, driven by one thread.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use trunkline_io::clock::boot_time;
use trunkline_io::socket;
use trunkline_io::timestamped::{Received, TimestampedSocket};
use trunkline_units::{Instant, Size, Span};

use super::{ConsentRequester, ConsentResponder, Grant, GrantError, RequesterSecret, RunId, RunKey};
use crate::limits::{self, PortError};
use crate::locked;
use crate::time_exchange::{self, TimeGrant, TimeResponder};

/// How long the thread waits for a datagram: an upper bound of its delay in sending challenges and in noticing the
/// end of consent.
const WAIT: Span = Span::from_ms(10);
/// How long a grant lasts at most.
const GRANT: Span = Span::from_s(7 * 24 * 3600);
/// How long a controller on another machine may be silent while load is sent for it. It asks for the time every 20 ms, and
/// after 50 ms if an answer is lost.
pub(crate) const CONTROLLER_SILENCE: Span = Span::from_ms(700);

/// Why load must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lapse {
    /// The destination no longer agrees.
    Consent,
    /// The controller has been silent for [`CONTROLLER_SILENCE`].
    Controller,
}

/// Error of consent. The text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The socket cannot be opened.
    #[error("consent: {0}")]
    Socket(#[from] PortError),
    /// An error of the operating system.
    #[error("consent: {0}")]
    System(#[from] io::Error),
    /// Another end has this run: a proof would count for both.
    #[error("consent: this run is requested already")]
    Duplicate,
    /// The grant is refused.
    #[error("consent: {0}")]
    Grant(#[from] GrantError),
}

/// Exchanges consent datagrams for all ends of an agent. Its thread ends when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct ConsentService(Arc<Shared>);

struct Shared {
    socket: TimestampedSocket,
    address: SocketAddr,
    state: Mutex<State>,
    /// Notified when a run has consent for the first time.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    responder: ConsentResponder,
    time: Option<TimeResponder>,
    /// When the controller asked for the time last; none if it never has, as behind a firewall.
    last_request_at: Option<Instant>,
    requests: BTreeMap<RunId, Request>,
}

struct Request {
    requester: ConsentRequester,
    destination: SocketAddr,
    had_consent: bool,
    has_lapsed: bool,
    on_lapse: Box<dyn Fn(Lapse) + Send>,
}

/// What an end needs and gives; both end when it is dropped.
pub(crate) struct Consent {
    service: ConsentService,
    needed: Option<RunId>,
    /// What was granted, and for how long after the end.
    granted: Option<(RunId, Span)>,
}

impl ConsentService {
    /// Opens the socket at this address, at one of these ports, and starts the thread. It also answers requests for the time
    /// that are granted.
    pub fn open(
        address: IpAddr,
        ports: &Option<RangeInclusive<u16>>,
        time: Option<TimeGrant>,
    ) -> Result<ConsentService, ServiceError> {
        // The datagrams of 200 ends arrive together while the thread does not run.
        let receive_buffer = Some(Size::from_bytes(4 << 20));
        let options = socket::Options { receive_buffer, ..socket::Options::default() };
        let open = |port| TimestampedSocket::open(SocketAddr::new(address, port), &options);
        let socket = limits::open_at_port(None, ports, open)?;
        let address = socket.socket().local_addr()?;
        let state = Mutex::new(State { time: time.map(TimeResponder::new), ..State::default() });
        let shared = Arc::new(Shared { socket, address, state, changed: Condvar::default() });
        let weak = Arc::downgrade(&shared);
        std::thread::Builder::new().name("consent".into()).spawn(move || serve(&weak))?;
        Ok(ConsentService(shared))
    }

    /// Returns the address to which challenges are sent.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Returns the consent of an end, which neither needs nor gives any yet.
    pub fn consent(&self) -> Consent {
        Consent { service: self.clone(), needed: None, granted: None }
    }
}

impl Consent {
    /// Requests consent at a destination's consent address. `on_lapse` is called once, when the load must end.
    pub fn request(
        &mut self,
        destination: SocketAddr,
        (run, key): (RunId, &RunKey),
        on_lapse: impl Fn(Lapse) + Send + 'static,
    ) -> Result<(), ServiceError> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| io::Error::other(error.to_string()))?;
        let requester = ConsentRequester::new(run, key, destination, &RequesterSecret::new(secret));
        let mut state = locked(&self.service.0.state);
        if state.requests.contains_key(&run) {
            return Err(ServiceError::Duplicate);
        }
        self.needed = Some(run);
        let on_lapse = Box::new(on_lapse);
        let request = Request { requester, destination, had_consent: false, has_lapsed: false, on_lapse };
        state.requests.insert(run, request);
        Ok(())
    }

    /// Waits for the first proof; returns whether there is consent.
    pub fn wait(&self, limit: Span, is_stopped: impl Fn() -> bool) -> bool {
        let Some(run) = &self.needed else { return true };
        let deadline = now() + limit;
        let mut state = locked(&self.service.0.state);
        loop {
            if state.requests.get(run).is_some_and(|request| request.requester.may_send(now())) {
                return true;
            }
            if is_stopped() || now() >= deadline {
                return false;
            }
            let waited = self.service.0.changed.wait_timeout(state, Duration::from_millis(20));
            let Ok((guard, _)) = waited else { return false };
            state = guard;
        }
    }

    /// Agrees to load from this address, until `after` this is dropped.
    pub fn grant(
        &mut self,
        source: IpAddr,
        (run, key): (RunId, &RunKey),
        after: Span,
    ) -> Result<(), ServiceError> {
        let now = now();
        let grant = Grant { run, key: key.clone(), source, expires_at: now + GRANT };
        locked(&self.service.0.state).responder.grant(now, grant)?;
        self.granted = Some((run, after));
        Ok(())
    }
}

impl Drop for Consent {
    fn drop(&mut self) {
        let mut state = locked(&self.service.0.state);
        if let Some(run) = &self.needed {
            state.requests.remove(run);
        }
        if let Some((run, after)) = self.granted {
            let now = now();
            state.responder.extend(now, run, now + after);
        }
    }
}

/// Returns the time since the system started, including suspension.
fn now() -> Instant {
    Instant::ZERO + boot_time().into()
}

/// Serves the socket until the last handle is dropped.
fn serve(shared: &Weak<Shared>) {
    let mut buffer = [0; time_exchange::LENGTH + 1];
    while let Some(shared) = shared.upgrade() {
        // An error of the socket must not busy the processor; consent then ends by itself.
        if socket::readable(shared.socket.socket(), WAIT).is_err() {
            std::thread::sleep(WAIT.into());
        }
        // Bounded, so that a flood does not delay challenges.
        for _ in 0..256 {
            match shared.socket.receive(&mut buffer) {
                Ok(Some(received)) => shared.handle(&received, &buffer[..received.length]),
                Ok(None) | Err(_) => break,
            }
        }
        shared.poll();
    }
}

impl Shared {
    fn handle(&self, received: &Received, bytes: &[u8]) {
        let (now, from) = (now(), received.from);
        let mut state = locked(&self.state);
        if bytes.len() == time_exchange::LENGTH {
            let answer = state.time.as_mut().and_then(|time| time.answer(received, bytes));
            if let Some(answer) = answer {
                state.last_request_at = Some(now);
                let _ = self.socket.socket().send_to(&answer, from);
            }
            return;
        }
        if let Ok(proof) = state.responder.handle(now, from, bytes) {
            // A lost proof is replaced by the next one.
            let _ = self.socket.socket().send_to(&proof, from);
            return;
        }
        let run = bytes.get(8..16).and_then(|run| run.try_into().ok()).map(RunId);
        let request = run.and_then(|run| state.requests.get_mut(&run));
        if let Some(request) = request
            && request.requester.handle(now, from, bytes).is_ok()
        {
            request.had_consent = true;
            self.changed.notify_all();
        }
    }

    /// Sends the challenges that are due and reports consent that has ended.
    fn poll(&self) {
        let now = now();
        let mut state = locked(&self.state);
        let last_request_at = state.last_request_at;
        let is_controller_silent = last_request_at.is_some_and(|at| now.since(at) > CONTROLLER_SILENCE);
        for request in state.requests.values_mut() {
            let lapse = match request.had_consent {
                true if !request.requester.may_send(now) => Some(Lapse::Consent),
                true if is_controller_silent => Some(Lapse::Controller),
                _ => None,
            };
            if let Some(lapse) = lapse {
                if !std::mem::replace(&mut request.has_lapsed, true) {
                    (request.on_lapse)(lapse);
                }
            } else if let Some(challenge) = request.requester.poll(now) {
                let _ = self.socket.socket().send_to(&challenge, request.destination);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_exchange::TimeRequester;

    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const RUN: RunId = RunId([3; 8]);

    fn key(port: u16) -> RunKey {
        RunKey::new([5; 32]).for_port(port)
    }

    #[test]
    fn consent_is_given_for_one_port_until_the_receiver_ends() {
        let [sender, receiver] = [0; 2].map(|_| ConsentService::open(LOOPBACK, &None, None).unwrap());
        let mut granted = receiver.consent();
        granted.grant(LOOPBACK, (RUN, &key(7)), Span::ZERO).unwrap();

        let mut other_port = sender.consent();
        other_port.request(receiver.address(), (RUN, &key(8)), |_| ()).unwrap();
        assert!(!other_port.wait(Span::from_ms(400), || false), "the receiver agreed to another port");
        drop(other_port);

        let mut needed = sender.consent();
        let (lapsed, stopped) = std::sync::mpsc::channel();
        needed.request(receiver.address(), (RUN, &key(7)), move |lapse| lapsed.send(lapse).unwrap()).unwrap();
        assert!(needed.wait(Span::from_s(5), || false));
        drop(granted);
        assert_eq!(stopped.recv_timeout(Duration::from_secs(30)), Ok(Lapse::Consent));
    }

    #[test]
    fn load_ends_when_the_controller_is_silent() {
        let time = TimeGrant { run: RunId([4; 8]), key: RunKey::new([6; 32]), source: LOOPBACK };
        let sender = ConsentService::open(LOOPBACK, &None, Some(time.clone())).unwrap();
        let receiver = ConsentService::open(LOOPBACK, &None, None).unwrap();
        let mut granted = receiver.consent();
        granted.grant(LOOPBACK, (RUN, &key(7)), Span::ZERO).unwrap();
        let mut needed = sender.consent();
        let (lapsed, stopped) = std::sync::mpsc::channel();
        needed.request(receiver.address(), (RUN, &key(7)), move |lapse| lapsed.send(lapse).unwrap()).unwrap();
        assert!(needed.wait(Span::from_s(5), || false));
        let mut controller = TimeRequester::open(sender.address(), &time).unwrap();
        while controller.exchange(Span::from_ms(50)).unwrap().is_none() {}
        assert_eq!(stopped.recv_timeout(Duration::from_secs(30)), Ok(Lapse::Controller));
    }

    #[test]
    fn the_consent_of_one_host_does_not_count_for_another() {
        let [sender, willing] = [0; 2].map(|_| ConsentService::open(LOOPBACK, &None, None).unwrap());
        let mut granted = willing.consent();
        granted.grant(LOOPBACK, (RUN, &key(7)), Span::ZERO).unwrap();
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut victim = sender.consent();
        victim.request(silent.local_addr().unwrap(), (RUN, &key(7)), |_| ()).unwrap();
        let mut accomplice = sender.consent();
        let second = accomplice.request(willing.address(), (RUN, &key(7)), |_| ());
        assert!(matches!(second, Err(ServiceError::Duplicate)));
        assert!(!victim.wait(Span::from_ms(400), || false));
    }

    #[test]
    fn without_a_request_no_consent_is_needed() {
        let service = ConsentService::open(LOOPBACK, &None, None).unwrap();
        let consent = service.consent();
        assert!(consent.wait(Span::ZERO, || true));
    }
}
