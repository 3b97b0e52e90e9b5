//! One agent, a request at a time.

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

/// How long an answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Each time.
    pub timeout: Duration,
    /// How often a request is sent again.
    pub retries: u32,
}

/// One agent. It has a socket of its own, so nobody who floods it takes answers from others.
pub struct Session {
    client: Client,
    transport: UdpTransport,
    engines: Arc<EngineCache>,
    patience: RetryPolicy,
    clock: AnchoredClock,
    shape: Shape,
    /// Whether the last request had no answer: the next is sent once.
    silent: bool,
    boots: Option<u32>,
}

/// What a walk brought.
#[derive(Debug)]
pub struct QueryResult {
    /// When the request left that the first answer came to.
    pub asked: Timestamp,
    /// When the last answer came; none if there was none.
    pub answered: Option<Timestamp>,
    /// The last uptime.
    pub uptime: Option<u32>,
    /// By their numbers.
    pub rows: Rows,
    /// Why there is not more.
    pub fault: Option<Fault>,
}

impl QueryResult {
    /// No answer yet.
    pub fn nothing(asked: Timestamp) -> QueryResult {
        QueryResult { asked, answered: None, uptime: None, rows: Rows::new(), fault: None }
    }

    /// Of an agent that has not said a word one cannot say that it is slow.
    fn named(&self, fault: Fault) -> Fault {
        if fault == Fault::Slow && self.answered.is_none() { Fault::Silent } else { fault }
    }
}

impl Session {
    /// Gets ready to ask; nothing is sent. An answer shall have at most `datagram` octets.
    pub async fn open(
        at: SocketAddr,
        auth: &Auth,
        datagram: usize,
        patience: RetryPolicy,
        clock: AnchoredClock,
    ) -> Result<Session, Fault> {
        let fault = |error: Box<Error>| Fault::of(&error).unwrap_or(Fault::Silent);
        let any = free(at).map_err(|e| Fault::Network(e.to_string()))?;
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
            .request_timeout(patience.timeout)
            .retry(Retry::none())
            .max_oids_per_request(usize::from(u8::MAX))
            .engine_cache(engines.clone())
            .build_with(&transport)
            .await
            .map_err(fault)?;
        let shape = Shape::new(datagram);
        Ok(Session { client, transport, engines, patience, clock, shape, silent: false, boots: None })
    }

    /// Asks for these columns, until `until` at most. At most `most` rows are taken; `expected` is how many there were.
    pub async fn walk(
        &mut self,
        columns: &[Oid],
        most: usize,
        expected: usize,
        until: Timestamp,
    ) -> QueryResult {
        let mut walk = Walk::new(columns.iter().cloned(), self.shape, most, expected);
        let mut told = QueryResult::nothing(self.clock.now());
        while let Some((objects, repeats)) = walk.ask() {
            let client = self.client.clone();
            let asked = self.ask(until, || client.get_bulk(&objects, 1, repeats)).await;
            let taken = asked.and_then(|(left, came, answer)| {
                if told.answered.is_none() {
                    told.asked = left;
                }
                told.answered = Some(came);
                walk.take(&answer, repeats)
            });
            match taken {
                Err(Fault::TooBig) if walk.shrink() => {}
                Err(fault) => {
                    told.fault = Some(told.named(fault));
                    break;
                }
                Ok(()) => {}
            }
        }
        (told.rows, told.uptime, self.shape) = walk.end();
        told
    }

    /// Asks for single objects. Values are in their order; none where the agent has no such object.
    pub async fn get(&mut self, objects: &[Oid], until: Timestamp) -> QueryResult {
        let mut all = vec![[super::mib::UPTIME, &[0]].concat()];
        all.extend(objects.iter().map(|o| o.arcs().to_vec()));
        let all: Vec<Oid> = all.iter().map(|arcs| Oid::from_slice(arcs)).collect();
        let mut told = QueryResult::nothing(self.clock.now());
        // As many at once as surely fit.
        for part in all.chunks(24) {
            let client = self.client.clone();
            match self.ask(until, || client.get_many(part)).await {
                Ok((left, came, answer)) => {
                    if told.answered.is_none() {
                        told.asked = left;
                    }
                    told.answered = Some(came);
                    for VarBind { oid, value } in answer.varbinds {
                        match value {
                            Value::TimeTicks(now) if oid == all[0] => told.uptime = Some(now),
                            value if value.is_exception() => {}
                            value if part.contains(&oid) => {
                                told.rows.insert(oid.arcs().to_vec(), vec![Some(value)]);
                            }
                            _ => {}
                        }
                    }
                }
                Err(fault) => {
                    told.fault = Some(told.named(fault));
                    break;
                }
            }
        }
        told
    }

    /// Sends a request until an answer comes: when the one left that was answered, when that came, and the answer.
    async fn ask<T, F>(
        &mut self,
        until: Timestamp,
        mut send: impl FnMut() -> F,
    ) -> Result<(Timestamp, Timestamp, T), Fault>
    where
        F: Future<Output = async_snmp::Result<T>>,
    {
        let before = self.transport.stats();
        let tries = if self.silent { 1 } else { 1 + self.patience.retries };
        let mut rediscovered = false;
        let mut left = 0;
        while left < tries {
            left += 1;
            let asked = self.clock.now();
            let room = until.duration_since(asked);
            if room.is_zero() {
                return Err(Fault::Slow);
            }
            let error = match tokio::time::timeout(room, send()).await {
                Err(_) => {
                    self.silent = true;
                    return Err(Fault::Slow);
                }
                Ok(Ok(answer)) => {
                    self.silent = false;
                    return Ok((asked, self.clock.now(), answer));
                }
                Ok(Err(error)) => error,
            };
            if is_other_engine(&error) && !rediscovered {
                // Another engine is there than before, or it has forgotten who it was.
                rediscovered = true;
                let _ = tokio::time::timeout(room, self.client.rediscover_engine()).await;
                left -= 1;
                continue;
            }
            if let Some(fault) = Fault::of(&error) {
                return Err(fault);
            }
        }
        self.silent = true;
        let after = self.transport.stats();
        Err(match () {
            () if after.malformed_datagrams > before.malformed_datagrams => Fault::Garbage,
            () if after.discarded_datagrams > before.discarded_datagrams => Fault::Stray,
            () => Fault::Silent,
        })
    }

    /// How often a version 3 engine has begun anew, if that is another number than at the last call.
    pub fn rebooted(&mut self) -> Option<u32> {
        let engine = self.engines.get(&self.client.peer_addr())?;
        let boots = engine.authenticated_time()?.boots();
        self.boots.replace(boots).filter(|before| *before != boots).map(|_| boots)
    }
}

/// An own address for asking `at`, with a port that nobody has. The library lets its sockets share ports (`SO_REUSEADDR`), and
/// Linux gives such sockets the same one now and then; then one of them hears nothing.
fn free(at: SocketAddr) -> io::Result<SocketAddr> {
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
        let patience = RetryPolicy { timeout: Duration::from_secs(1), retries: 0 };
        let (mut sessions, mut ports) = (Vec::new(), BTreeSet::new());
        for _ in 0..400 {
            let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 161));
            let session =
                Session::open(at, &Auth::v2c("x"), 1_400, patience, AnchoredClock::start()).await.unwrap();
            assert!(ports.insert(session.transport.local_addr().port()), "two with one port");
            sessions.push(session);
        }
    }
}
