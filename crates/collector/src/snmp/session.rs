//! A session with one SNMP agent, with one outstanding request.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use async_snmp::v3::ReportStatus;
use async_snmp::{Auth, Client, EngineCache, Error, Oid, Retry, UdpTransport, Value, VarBind};
use trunkline_counters::counter::Timestamp;

use super::walk::{Rows, Shape};
use super::{Fault, Walk};
use crate::time::AnchoredClock;

/// Timeout and retransmissions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Time to wait for the answer to one transmission.
    pub timeout: Duration,
    /// Maximum number of retransmissions.
    pub retries: u32,
}

/// A session with one agent. Each session has its own socket, so that a flood from one agent delays no other.
pub struct Session {
    client: Client,
    transport: UdpTransport,
    engines: Arc<EngineCache>,
    retry_policy: RetryPolicy,
    clock: AnchoredClock,
    shape: Shape,
    /// The last request had no answer; the next one is not retransmitted.
    is_silent: bool,
    /// `snmpEngineBoots` at the last check (RFC 3414, section 2.2.2).
    boots: Option<u32>,
}

/// The result of a walk or a get.
#[derive(Debug)]
pub struct QueryResult {
    /// When the first answered request was sent.
    pub requested_at: Timestamp,
    /// When the last answer arrived.
    pub answered_at: Option<Timestamp>,
    /// The uptime in the last answer, in hundredths of a second.
    pub uptime: Option<u32>,
    /// The rows by index.
    pub rows: Rows,
    /// Why the result is incomplete.
    pub fault: Option<Fault>,
}

impl QueryResult {
    /// Creates a result without an answer.
    pub fn empty(requested_at: Timestamp) -> QueryResult {
        QueryResult { requested_at, answered_at: None, uptime: None, rows: Rows::new(), fault: None }
    }

    /// Replaces [`Fault::Slow`] by [`Fault::Silent`] if the agent has not answered at all.
    fn refine(&self, fault: Fault) -> Fault {
        if fault == Fault::Slow && self.answered_at.is_none() { Fault::Silent } else { fault }
    }
}

impl Session {
    /// Opens the socket; sends nothing. Requests are sized for answers of at most `datagram` octets.
    pub async fn open(
        at: SocketAddr,
        auth: &Auth,
        datagram: usize,
        retry_policy: RetryPolicy,
        clock: AnchoredClock,
    ) -> Result<Session, Fault> {
        let fault = |error: Box<Error>| Fault::from_error(&error).unwrap_or(Fault::Silent);
        let any = unused_local_addr(at).map_err(|e| Fault::Network(e.to_string()))?;
        let transport = UdpTransport::builder()
            .bind(any.to_string())
            .receive_capacity(datagram.clamp(1_472, 65_507))
            .warn_on_source_mismatch(false)
            .build()
            .await
            .map_err(fault)?;
        let engines = Arc::new(EngineCache::new());
        let client = Client::builder(at, auth.clone())
            .strict_source(true)
            .request_timeout(retry_policy.timeout)
            .retry(Retry::none())
            .max_oids_per_request(usize::from(u8::MAX))
            .engine_cache(engines.clone())
            .build_with(&transport)
            .await
            .map_err(fault)?;
        let shape = Shape::new(datagram);
        Ok(Session { client, transport, engines, retry_policy, clock, shape, is_silent: false, boots: None })
    }

    /// Requests columns until `until` at the latest. Stores at most `max_rows` rows; about `expected` are expected (0 if
    /// unknown).
    pub async fn walk(
        &mut self,
        columns: &[Oid],
        max_rows: usize,
        expected: usize,
        until: Timestamp,
    ) -> QueryResult {
        let mut walk = Walk::new(columns.iter().cloned(), self.shape, max_rows, expected);
        let mut result = QueryResult::empty(self.clock.now());
        while let Some((objects, repetitions)) = walk.next_request() {
            let client = self.client.clone();
            let answered = self.request(until, || client.get_bulk(&objects, 1, repetitions)).await;
            let received = answered.and_then(|(sent_at, answered_at, answer)| {
                if result.answered_at.is_none() {
                    result.requested_at = sent_at;
                }
                result.answered_at = Some(answered_at);
                walk.handle_response(&answer, repetitions)
            });
            match received {
                Err(Fault::TooBig) if walk.shrink() => {}
                Err(fault) => {
                    result.fault = Some(result.refine(fault));
                    break;
                }
                Ok(()) => {}
            }
        }
        (result.rows, result.uptime, self.shape) = walk.finish();
        result
    }

    /// Requests single objects. The result has no row for an object that the agent lacks.
    pub async fn get(&mut self, objects: &[Oid], until: Timestamp) -> QueryResult {
        let uptime = Oid::from_slice(&[super::mib::UPTIME, &[0]].concat());
        let all: Vec<Oid> = std::iter::once(uptime).chain(objects.iter().cloned()).collect();
        let mut result = QueryResult::empty(self.clock.now());
        // 24 objects surely fit a datagram.
        for part in all.chunks(24) {
            let client = self.client.clone();
            match self.request(until, || client.get_many(part)).await {
                Ok((sent_at, answered_at, answer)) => {
                    if result.answered_at.is_none() {
                        result.requested_at = sent_at;
                    }
                    result.answered_at = Some(answered_at);
                    for VarBind { oid, value } in answer.varbinds {
                        match value {
                            Value::TimeTicks(now) if oid == all[0] => result.uptime = Some(now),
                            value if value.is_exception() => {}
                            value if part.contains(&oid) => {
                                result.rows.insert(oid.arcs().to_vec(), vec![Some(value)]);
                            }
                            _ => {}
                        }
                    }
                }
                Err(fault) => {
                    result.fault = Some(result.refine(fault));
                    break;
                }
            }
        }
        result
    }

    /// Sends a request, with retransmissions. Returns when the answered request was sent, when the answer arrived, and
    /// the answer.
    async fn request<T, F>(
        &mut self,
        until: Timestamp,
        mut send: impl FnMut() -> F,
    ) -> Result<(Timestamp, Timestamp, T), Fault>
    where
        F: Future<Output = async_snmp::Result<T>>,
    {
        let before = self.transport.stats();
        let max_attempts = if self.is_silent { 1 } else { 1 + self.retry_policy.retries };
        let mut rediscovered = false;
        let mut attempts = 0;
        while attempts < max_attempts {
            attempts += 1;
            let sent_at = self.clock.now();
            let time_left = until.duration_since(sent_at);
            if time_left.is_zero() {
                return Err(Fault::Slow);
            }
            let error = match tokio::time::timeout(time_left, send()).await {
                Err(_) => {
                    self.is_silent = true;
                    return Err(Fault::Slow);
                }
                Ok(Ok(answer)) => {
                    self.is_silent = false;
                    return Ok((sent_at, self.clock.now(), answer));
                }
                Ok(Err(error)) => error,
            };
            if is_other_engine(&error) && !rediscovered {
                // The engine was replaced, or it restarted with another identifier.
                rediscovered = true;
                let _ = tokio::time::timeout(time_left, self.client.rediscover_engine()).await;
                attempts -= 1;
                continue;
            }
            if let Some(fault) = Fault::from_error(&error) {
                return Err(fault);
            }
        }
        self.is_silent = true;
        let after = self.transport.stats();
        Err(match () {
            () if after.malformed_datagrams > before.malformed_datagrams => Fault::Garbage,
            () if after.discarded_datagrams > before.discarded_datagrams => Fault::Stray,
            () => Fault::Silent,
        })
    }

    /// Returns the boot count of a version 3 engine if it changed since the last call.
    pub fn take_new_boots(&mut self) -> Option<u32> {
        let engine = self.engines.get(&self.client.peer_addr())?;
        let boots = engine.authenticated_time()?.boots();
        self.boots.replace(boots).filter(|before| *before != boots).map(|_| boots)
    }
}

/// Returns a local address with an unused port for requests to `at`. The library sets `SO_REUSEADDR`, and Linux sometimes
/// assigns two such sockets the same port; one of them then receives nothing.
fn unused_local_addr(at: SocketAddr) -> io::Result<SocketAddr> {
    let any: IpAddr = if at.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    UdpSocket::bind((any, 0))?.local_addr()
}

fn is_other_engine(error: &Error) -> bool {
    match error {
        Error::Exchange { source, .. } => is_other_engine(source),
        Error::SharedOperation { source } => is_other_engine(source),
        Error::Report { status, .. } => matches!(**status, ReportStatus::UnknownEngineId { .. }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[tokio::test]
    async fn sessions_share_no_port() {
        let retry_policy = RetryPolicy { timeout: Duration::from_secs(1), retries: 0 };
        let (mut sessions, mut ports) = (Vec::new(), BTreeSet::new());
        for _ in 0..400 {
            let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 161));
            let session = Session::open(at, &Auth::v2c("x"), 1_400, retry_policy, AnchoredClock::start())
                .await
                .unwrap();
            assert!(ports.insert(session.transport.local_addr().port()), "two sessions share a port");
            sessions.push(session);
        }
    }
}
