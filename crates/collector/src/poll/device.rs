//! A device with an SNMP agent: which table when, and what is told in words.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use async_snmp::Oid;
use trunkline_counters::counter::{Timestamp, ValueKind};

use super::atm::{self, AtmTable};
use super::config::{self, StandardTable};
use super::context::Context;
use super::objects;
use super::ports::{self, InterfaceTables, Ports};
use super::report::{DeviceText, Report};
use super::table::{PollTimes, TableBuffer};
use crate::snmp::session::QueryResult;
use crate::snmp::{Fault, Session, mib};
use crate::time::Schedule;

/// Most requests without an answer in a row before the address of a name is looked up again.
const LOOK_AGAIN: u32 = 3;

/// A device and what is known of it.
pub struct Device {
    config: Arc<config::Device>,
    name: Arc<str>,
    context: Context,
    session: Option<Session>,
    tables: Vec<Table>,
    ports: Ports,
    /// Whether the next answer wants counters of 32 bits.
    narrow: bool,
    /// When words are to be asked next.
    words_due: Timestamp,
    told: BTreeMap<(String, &'static str), String>,
    uptime: Option<(Timestamp, u32)>,
    silences: u32,
}

/// One table of a device.
struct Table {
    what: What,
    schedule: Schedule,
    /// How many rows there were.
    rows: usize,
    fault: Option<Fault>,
}

enum What {
    Interfaces(InterfaceTables),
    Atm(AtmTable, TableBuffer<Option<u64>>),
    Other(TableBuffer<ValueKind>),
}

impl What {
    fn name(&self) -> &'static str {
        match self {
            What::Interfaces(_) => "interfaces",
            What::Atm(table, _) => table.name(),
            What::Other(_) => "other",
        }
    }
}

impl Device {
    /// A device that is polled at `phase` of its period. Its tables have the numbers from `number` on.
    pub fn new(config: Arc<config::Device>, context: Context, number: usize, phase: f64) -> Device {
        let every = (config.period, config.refresh);
        let atm = |table: AtmTable, number| {
            What::Atm(table, TableBuffer::new(number, &config.name, table.name(), every, table.width()))
        };
        let (mut what, mut number) = (Vec::new(), number);
        for ask in &config.ask {
            what.push(match ask {
                StandardTable::Interfaces => {
                    What::Interfaces(InterfaceTables::new(number, &config.name, every))
                }
                StandardTable::Channels => atm(AtmTable::Channels, number),
                StandardTable::Paths => atm(AtmTable::Paths, number),
                StandardTable::Aal5 => atm(AtmTable::Aal5, number),
            });
            number += if *ask == StandardTable::Interfaces { InterfaceTables::TABLE_COUNT } else { 1 };
        }
        if !config.objects.is_empty() {
            what.push(What::Other(TableBuffer::new(number, &config.name, "other", every, 1)));
        }
        let count = what.len() as f64;
        let table = |(at, what)| Table {
            what,
            schedule: Schedule::new(context.clock.now(), config.period, (phase + at as f64 / count).fract()),
            rows: 0,
            fault: None,
        };
        Device {
            tables: what.into_iter().enumerate().map(table).collect(),
            name: Arc::from(config.name.as_str()),
            config,
            context,
            session: None,
            ports: Ports::default(),
            narrow: true,
            words_due: Timestamp::MIN,
            told: BTreeMap::new(),
            uptime: None,
            silences: 0,
        }
    }

    /// Tables of the collector that a device with this configuration has.
    pub fn tables(config: &config::Device) -> usize {
        let unicast = if config.ask.contains(&StandardTable::Interfaces) {
            InterfaceTables::TABLE_COUNT - 1
        } else {
            0
        };
        config.ask.len() + unicast + usize::from(!config.objects.is_empty())
    }

    /// Polls for ever; with `once` each table once, at once.
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

    /// Polls a table once and hands on what came.
    async fn poll(&mut self, at: usize) {
        let schedule = self.tables[at].schedule;
        let until = schedule.next_due();
        let now = self.context.clock.now();
        let mut told = QueryResult::nothing(now);
        match self.open().await {
            Err(fault) => told.fault = Some(fault),
            Ok(()) => {
                // Words come after the first answer: an agent that does not answer is asked once, not twice.
                told = self.ask(at, until).await;
                self.see_restart(&told);
                let wants = told.answered.is_some()
                    && (self.context.clock.now() >= self.words_due || !self.knows(at, &told));
                if wants {
                    self.words(until).await;
                }
            }
        }
        self.silences = if told.answered.is_some() { 0 } else { self.silences + 1 };
        if self.silences >= LOOK_AGAIN {
            (self.session, self.silences) = (None, 0);
        }
        if let Some(boots) = self.session.as_mut().and_then(Session::rebooted) {
            let text = boots.to_string();
            self.tell(vec![DeviceText { object: "agent".into(), key: "engine boots", text }]);
        }
        // The agent began anew between two answers: they are of no one moment.
        if told.fault == Some(Fault::Restarted) {
            told.answered = None;
        }
        self.hand_on(at, schedule.due(), told);
    }

    /// Opens the session where there is none; a name is looked up.
    async fn open(&mut self) -> Result<(), Fault> {
        if self.session.is_some() {
            return Ok(());
        }
        let at = look_up(&self.config.host, self.config.port).await?;
        let config = &self.config;
        let session =
            Session::open(at, &config.auth, config.datagram, config.retry, self.context.clock).await?;
        self.session = Some(session);
        self.tell(vec![DeviceText { object: String::new(), key: "address", text: at.to_string() }]);
        Ok(())
    }

    async fn ask(&mut self, at: usize, until: Timestamp) -> QueryResult {
        let (most, expected) = (self.config.rows, self.tables[at].rows);
        let Some(session) = &mut self.session else { unreachable!("it was opened") };
        match &self.tables[at].what {
            What::Interfaces(_) => {
                session.walk(&ports::counter_columns(self.narrow), most, expected, until).await
            }
            What::Atm(table, _) => session.walk(&table.columns(), most, expected, until).await,
            What::Other(_) => objects::query(session, &self.config.objects, most, until).await,
        }
    }

    /// Whether the ports of an answer are known.
    fn knows(&self, at: usize, told: &QueryResult) -> bool {
        match &self.tables[at].what {
            What::Interfaces(_) => self.ports.has_all(&told.rows),
            What::Atm(..) => atm::has_known_ports(&told.rows, &self.ports),
            What::Other(_) => true,
        }
    }

    /// An agent that began anew may number its ports in another way.
    fn see_restart(&mut self, told: &QueryResult) {
        let (Some(answered), Some(uptime)) = (told.answered, told.uptime) else { return };
        if self.uptime.is_some_and(|(_, before)| uptime < before) {
            self.ports.clear();
            self.words_due = Timestamp::MIN;
            if let What::Interfaces(_) = &self.tables[0].what {
                self.narrow = true;
            }
        }
        self.uptime = Some((answered, uptime));
    }

    /// Asks for what is told in words.
    async fn words(&mut self, until: Timestamp) {
        let most = self.config.rows;
        let Some(session) = &mut self.session else { return };
        let system = [mib::DESCRIPTION, mib::CONTACT, mib::NAME, mib::LOCATION].map(Oid::from_slice);
        let about = session.walk(&system, 1, 1, until).await;
        let of_ports = session.walk(&ports::text_columns(), most, 0, until).await;
        let mut words = Vec::new();
        if let Some([description, contact, name, location]) = about.rows.get(&[0][..]).map(Vec::as_slice) {
            let parts =
                [("description", description), ("contact", contact), ("name", name), ("location", location)];
            words.extend(parts.map(|(key, value)| DeviceText {
                object: String::new(),
                key,
                text: ports::text_value(value, 1_024),
            }));
        }
        let whole = matches!(of_ports.fault, None | Some(Fault::Rows(_) | Fault::Order(_)));
        if whole {
            words.extend(self.ports.update(&of_ports.rows));
        }
        // What failed is asked for again soon, and not with each poll.
        let wait =
            if whole && about.fault.is_none() { self.config.text_interval } else { 6 * self.config.period };
        self.words_due = self.context.clock.now().saturating_add(wait.min(self.config.text_interval));
        self.tell(words);
    }

    /// Hands on words that are new.
    fn tell(&mut self, mut words: Vec<DeviceText>) {
        words.retain(|word| {
            let known = self.told.get(&(word.object.clone(), word.key));
            known != Some(&word.text) && !(known.is_none() && word.text.is_empty())
        });
        // What is remembered is bounded by the ports there are, and forgotten where they come and go without end.
        if self.told.len() > 8 * self.config.rows {
            self.told.clear();
        }
        for word in &words {
            self.told.insert((word.object.clone(), word.key), word.text.clone());
        }
        if !words.is_empty() {
            let at = self.context.clock.now();
            self.context.sink.send(Report::Texts { device: self.name.clone(), texts: words, at });
        }
    }

    fn hand_on(&mut self, at: usize, due: Timestamp, told: QueryResult) {
        let QueryResult { asked, answered, uptime, rows, mut fault } = told;
        let when = PollTimes { due, requested_at: asked, answered_at: answered, uptime };
        // Without an order of objects, or with more rows than are taken, what came is all that will.
        let complete = matches!(fault, None | Some(Fault::Rows(_)));
        let mut words = Vec::new();
        let table = &mut self.tables[at];
        let left_out = match &mut table.what {
            What::Interfaces(sheets) => {
                let filled = self.ports.fill(sheets, &rows, complete);
                if complete && answered.is_some() {
                    self.narrow = filled.0;
                }
                words = filled.1;
                sheets.send(when, &self.context.sink)
            }
            What::Atm(table, sheet) => {
                atm::fill(*table, sheet, &rows, &self.ports);
                sheet.send(when, &self.context.sink)
            }
            What::Other(sheet) => {
                objects::fill(sheet, &self.config.objects, &rows);
                sheet.send(when, &self.context.sink)
            }
        };
        if left_out > 0 {
            fault = fault.or(Some(Fault::Rows(rows.len() - left_out.min(rows.len()))));
        }
        if complete && answered.is_some() {
            table.rows = rows.len();
        }
        if table.fault != fault {
            let (device, table_name) = (self.name.clone(), table.what.name());
            let trouble = Report::FaultChanged {
                device,
                table: table_name,
                fault: fault.clone(),
                at: self.context.clock.now(),
            };
            if self.context.sink.send(trouble) {
                table.fault = fault;
            }
        }
        self.tell(words);
    }
}

/// Where a name or address is.
async fn look_up(host: &str, port: u16) -> Result<SocketAddr, Fault> {
    let found = tokio::net::lookup_host((host, port)).await;
    let found = found.map_err(|e| Fault::Network(format!("{host}: {e}")))?.next();
    found.ok_or_else(|| Fault::Network(format!("{host} has no address")))
}
