//! A device with an SNMP agent: when each table is polled, and the texts that describe the device and its ports.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use async_snmp::Oid;
use trunkline_counters::counter::{Timestamp, ValueKind};

use super::atm::{self, AtmTable};
use super::config::{self, StandardTable};
use super::objects;
use super::ports::{self, InterfaceTables, Ports};
use super::report::{Context, DeviceText, Report};
use super::table::{PollTimes, TableBuffer};
use crate::snmp::session::QueryResult;
use crate::snmp::{Fault, Session, mib};
use crate::time::Schedule;

/// Consecutive polls without an answer before the host name is resolved again.
const POLLS_BEFORE_LOOKUP: u32 = 3;

/// The polling task of one device.
pub struct Device {
    config: Arc<config::Device>,
    name: Arc<str>,
    context: Context,
    session: Option<Session>,
    tables: Vec<Table>,
    ports: Ports,
    /// The next poll requests the 32-bit counters, too.
    needs_32bit: bool,
    /// When the texts are requested next.
    texts_due: Timestamp,
    /// The texts last sent, by object and key.
    sent_texts: BTreeMap<(String, &'static str), String>,
    /// The uptime in the last answer, in hundredths of a second.
    uptime: Option<u32>,
    /// Consecutive polls without an answer.
    unanswered_polls: u32,
}

/// One table of a device.
struct Table {
    contents: TableContents,
    schedule: Schedule,
    /// Number of rows in the last complete answer.
    rows: usize,
    fault: Option<Fault>,
}

enum TableContents {
    Interfaces(InterfaceTables),
    Atm(AtmTable, TableBuffer<Option<u64>>),
    Other(TableBuffer<ValueKind>),
}

impl TableContents {
    fn name(&self) -> &'static str {
        match self {
            TableContents::Interfaces(_) => "interfaces",
            TableContents::Atm(table, _) => table.name(),
            TableContents::Other(_) => "other",
        }
    }
}

impl Device {
    /// Creates the task of a device that is polled at `phase` (0 to 1) of its period. Its tables get the collector's
    /// numbers from `number` on, which becomes the next free one.
    pub fn new(config: Arc<config::Device>, context: Context, number: &mut usize, phase: f64) -> Device {
        let every = (config.period, config.refresh);
        let atm = |table: AtmTable, number| {
            TableContents::Atm(
                table,
                TableBuffer::new(number, &config.name, table.name(), every, table.width()),
            )
        };
        let mut contents = Vec::new();
        for ask in &config.ask {
            contents.push(match ask {
                StandardTable::Interfaces => {
                    TableContents::Interfaces(InterfaceTables::new(*number, &config.name, every))
                }
                StandardTable::Channels => atm(AtmTable::Channels, *number),
                StandardTable::Paths => atm(AtmTable::Paths, *number),
                StandardTable::Aal5 => atm(AtmTable::Aal5, *number),
            });
            *number += if *ask == StandardTable::Interfaces { InterfaceTables::TABLE_COUNT } else { 1 };
        }
        if !config.objects.is_empty() {
            contents.push(TableContents::Other(TableBuffer::new(*number, &config.name, "other", every, 1)));
            *number += 1;
        }
        let count = contents.len() as f64;
        let table = |(at, contents)| Table {
            contents,
            schedule: Schedule::new(context.clock.now(), config.period, (phase + at as f64 / count).fract()),
            rows: 0,
            fault: None,
        };
        Device {
            tables: contents.into_iter().enumerate().map(table).collect(),
            name: Arc::from(config.name.as_str()),
            config,
            context,
            session: None,
            ports: Ports::default(),
            needs_32bit: true,
            texts_due: Timestamp::MIN,
            sent_texts: BTreeMap::new(),
            uptime: None,
            unanswered_polls: 0,
        }
    }

    /// Polls until the task is dropped; with `once`, polls each table once, immediately.
    pub async fn run(mut self, once: bool) {
        if once {
            for at in 0..self.tables.len() {
                self.poll(at).await;
            }
            return;
        }
        loop {
            let due = self.tables.iter().enumerate().min_by_key(|(_, table)| table.schedule.due());
            let Some((at, due)) = due.map(|(at, table)| (at, table.schedule.due())) else { return };
            self.context.clock.sleep_until(due).await;
            self.poll(at).await;
            let now = self.context.clock.now();
            self.tables[at].schedule.advance(now);
        }
    }

    /// Polls a table once and sends the result.
    async fn poll(&mut self, at: usize) {
        let schedule = self.tables[at].schedule;
        let until = schedule.next_due();
        let now = self.context.clock.now();
        let mut result = QueryResult::empty(now);
        match self.open().await {
            Err(fault) => result.fault = Some(fault),
            Ok(()) => {
                // The texts are requested after an answer, so that a silent agent receives one request and not two.
                result = self.query(at, until).await;
                self.detect_restart(&result);
                let needs_texts = result.answered_at.is_some()
                    && (self.context.clock.now() >= self.texts_due || !self.has_known_ports(at, &result));
                if needs_texts {
                    self.poll_texts(until).await;
                }
            }
        }
        self.unanswered_polls = if result.answered_at.is_some() { 0 } else { self.unanswered_polls + 1 };
        if self.unanswered_polls >= POLLS_BEFORE_LOOKUP {
            (self.session, self.unanswered_polls) = (None, 0);
        }
        if let Some(boots) = self.session.as_mut().and_then(Session::take_new_boots) {
            let text = boots.to_string();
            self.send_texts(vec![DeviceText { object: "agent".into(), key: "engine boots", text }]);
        }
        // The agent restarted between two answers, so their values are not of one moment.
        if result.fault == Some(Fault::Restarted) {
            result.answered_at = None;
        }
        self.send_result(at, schedule.due(), result);
    }

    /// Opens the session if there is none; resolves the host name.
    async fn open(&mut self) -> Result<(), Fault> {
        if self.session.is_some() {
            return Ok(());
        }
        let at = resolve(&self.config.host, self.config.port).await?;
        let config = &self.config;
        let session =
            Session::open(at, &config.auth, config.datagram, config.retry, self.context.clock).await?;
        self.session = Some(session);
        self.send_texts(vec![DeviceText { object: String::new(), key: "address", text: at.to_string() }]);
        Ok(())
    }

    async fn query(&mut self, at: usize, until: Timestamp) -> QueryResult {
        let (max_rows, expected) = (self.config.rows, self.tables[at].rows);
        let Some(session) = &mut self.session else { unreachable!("the session is open") };
        match &self.tables[at].contents {
            TableContents::Interfaces(_) => {
                session.walk(&ports::counter_columns(self.needs_32bit), max_rows, expected, until).await
            }
            TableContents::Atm(table, _) => session.walk(&table.columns(), max_rows, expected, until).await,
            TableContents::Other(_) => objects::query(session, &self.config.objects, max_rows, until).await,
        }
    }

    /// Returns whether all ports of an answer are known.
    fn has_known_ports(&self, at: usize, result: &QueryResult) -> bool {
        match &self.tables[at].contents {
            TableContents::Interfaces(_) => self.ports.has_all(&result.rows),
            TableContents::Atm(..) => atm::has_known_ports(&result.rows, &self.ports),
            TableContents::Other(_) => true,
        }
    }

    /// Forgets the ports if the agent restarted: it may number them differently.
    fn detect_restart(&mut self, result: &QueryResult) {
        let (Some(_), Some(uptime)) = (result.answered_at, result.uptime) else { return };
        if self.uptime.is_some_and(|before| uptime < before) {
            self.ports.clear();
            (self.texts_due, self.needs_32bit) = (Timestamp::MIN, true);
        }
        self.uptime = Some(uptime);
    }

    /// Requests the texts of the device and its ports.
    async fn poll_texts(&mut self, until: Timestamp) {
        let max_rows = self.config.rows;
        let Some(session) = &mut self.session else { return };
        let system_columns = [mib::DESCRIPTION, mib::CONTACT, mib::NAME, mib::LOCATION].map(Oid::from_slice);
        let system = session.walk(&system_columns, 1, 1, until).await;
        let port_rows = session.walk(&ports::text_columns(), max_rows, 0, until).await;
        let mut texts = Vec::new();
        if let Some([description, contact, name, location]) = system.rows.get(&[0][..]).map(Vec::as_slice) {
            let parts =
                [("description", description), ("contact", contact), ("name", name), ("location", location)];
            texts.extend(parts.map(|(key, value)| DeviceText {
                object: String::new(),
                key,
                text: ports::text_value(value, 1_024),
            }));
        }
        let has_all_ports = matches!(port_rows.fault, None | Some(Fault::Rows(_) | Fault::Order(_)));
        if has_all_ports {
            texts.extend(self.ports.update(&port_rows.rows));
        }
        // Failed requests are repeated after a few periods.
        let wait = if has_all_ports && system.fault.is_none() {
            self.config.text_interval
        } else {
            6 * self.config.period
        };
        self.texts_due = self.context.clock.now().saturating_add(wait.min(self.config.text_interval));
        self.send_texts(texts);
    }

    /// Sends the texts that changed.
    fn send_texts(&mut self, mut texts: Vec<DeviceText>) {
        texts.retain(|text| {
            let known = self.sent_texts.get(&(text.object.clone(), text.key));
            known != Some(&text.text) && !(known.is_none() && text.text.is_empty())
        });
        // Ports can appear and disappear without end, so the memory of sent texts is bounded.
        if self.sent_texts.len() > 8 * self.config.rows {
            self.sent_texts.clear();
        }
        for text in &texts {
            self.sent_texts.insert((text.object.clone(), text.key), text.text.clone());
        }
        if !texts.is_empty() {
            let at = self.context.clock.now();
            self.context.sink.send(Report::Texts { device: self.name.clone(), texts, at });
        }
    }

    fn send_result(&mut self, at: usize, due: Timestamp, result: QueryResult) {
        let QueryResult { requested_at, answered_at, uptime, rows, mut fault } = result;
        let times = PollTimes { due, requested_at, answered_at, uptime };
        // A table with too many rows counts as complete: the rows above the limit never arrive.
        let complete = matches!(fault, None | Some(Fault::Rows(_)));
        let mut texts = Vec::new();
        let table = &mut self.tables[at];
        let dropped_rows = match &mut table.contents {
            TableContents::Interfaces(tables) => {
                let filled = self.ports.fill(tables, &rows, complete);
                if complete && answered_at.is_some() {
                    self.needs_32bit = filled.0;
                }
                texts = filled.1;
                tables.send(times, &self.context.sink)
            }
            TableContents::Atm(table, buffer) => {
                atm::fill(*table, buffer, &rows, &self.ports);
                buffer.send(times, &self.context.sink)
            }
            TableContents::Other(buffer) => {
                objects::fill(buffer, &self.config.objects, &rows);
                buffer.send(times, &self.context.sink)
            }
        };
        if dropped_rows > 0 {
            fault = fault.or(Some(Fault::Rows(rows.len() - dropped_rows.min(rows.len()))));
        }
        if complete && answered_at.is_some() {
            table.rows = rows.len();
        }
        if table.fault != fault {
            let (device, name, at) = (self.name.clone(), table.contents.name(), self.context.clock.now());
            if self.context.sink.send(Report::FaultChanged { device, table: name, fault: fault.clone(), at })
            {
                table.fault = fault;
            }
        }
        self.send_texts(texts);
    }
}

/// Resolves a host name or address.
async fn resolve(host: &str, port: u16) -> Result<SocketAddr, Fault> {
    let addresses = tokio::net::lookup_host((host, port)).await;
    let first = addresses.map_err(|e| Fault::Network(format!("{host}: {e}")))?.next();
    first.ok_or_else(|| Fault::Network(format!("{host} has no address")))
}
