//! The configuration of the collector, read from a TOML file.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_snmp::{Auth, AuthProtocol, MasterKeys, Oid, PrivProtocol, UsmConfig};
use serde::Deserialize;
use serde::de::Error as _;
use trunkline_counters::archive::Location;
use trunkline_counters::archive::writer::Retention;

use crate::snmp::RetryPolicy;

/// Maximum number of devices, machines and hosts together.
pub const MAX_DEVICES: usize = 10_000;
/// Maximum number of other objects of a device.
pub const MAX_OBJECTS: usize = 1_000;
/// Shortest polling period.
const MIN_PERIOD: Duration = Duration::from_millis(100);
/// Longest polling period.
const MAX_PERIOD: Duration = Duration::from_secs(86_400);

/// A validated configuration.
#[derive(Debug)]
pub struct Config {
    /// Location of the archive.
    pub archive: Option<Location>,
    /// Interval between two writes to the archive.
    pub flush: Duration,
    /// How long data is retained.
    pub retention: Retention,
    /// Devices polled by SNMP.
    pub devices: Vec<Device>,
    /// Names of this machine, each with a set of interfaces.
    pub machines: Vec<Machine>,
    /// Hosts polled by ICMP echo.
    pub pings: Vec<Ping>,
}

/// A device with an SNMP agent.
#[derive(Debug)]
pub struct Device {
    /// Name in the archive.
    pub name: String,
    /// Where it is.
    pub host: String,
    /// UDP port of the agent.
    pub port: u16,
    /// Credentials.
    pub auth: Auth,
    /// Polling period of the tables.
    pub period: Duration,
    /// Interval between two requests for texts.
    pub text_interval: Duration,
    /// Timeout and retransmissions.
    pub retry: RetryPolicy,
    /// Maximum age of an answer, if the agent caches its counters; `None`: learned from the answers.
    pub refresh: Option<Duration>,
    /// Maximum octets of an answer.
    pub datagram: usize,
    /// Maximum number of rows of a table.
    pub rows: usize,
    /// Standard tables to poll.
    pub ask: BTreeSet<StandardTable>,
    /// Other objects to poll.
    pub objects: Vec<Object>,
}

/// A standard table of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StandardTable {
    /// IF-MIB (RFC 2863): octets, packets, discards, errors, speeds, states of ports.
    Interfaces,
    /// ATM2-MIB (RFC 3606): cells of virtual channels.
    Channels,
    /// ATM2-MIB (RFC 3606): cells of virtual paths.
    Paths,
    /// ATM-MIB (RFC 2515): AAL5 errors of virtual channels.
    Aal5,
}

/// Another object of a device.
#[derive(Debug)]
pub struct Object {
    /// Name in the archive: `other/NAME/value`.
    pub name: String,
    /// Object identifier.
    pub oid: Oid,
    /// Polls all objects below `oid`, one series each: `other/NAME.ROW/value`.
    pub walk: bool,
    /// Unit.
    pub unit: String,
    /// Maximum increase per second, if known.
    pub most: Option<u64>,
}

/// This machine's interfaces.
#[derive(Debug)]
pub struct Machine {
    /// Name in the archive.
    pub name: String,
    /// Interfaces to poll; empty: all.
    pub interfaces: Vec<String>,
    /// Polling period.
    pub period: Duration,
}

/// A host that is pinged.
#[derive(Debug)]
pub struct Ping {
    /// Name in the archive.
    pub name: String,
    /// Where it is.
    pub address: IpAddr,
    /// Polling period.
    pub period: Duration,
    /// Time to wait for a reply.
    pub timeout: Duration,
}

/// Why a configuration is invalid, in one line.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("{path}: {1}", path = .0.display())]
    File(PathBuf, #[source] std::io::Error),
    /// An error in a part of the configuration: a file, a device, ….
    #[error("{0}: {1}")]
    In(String, Box<ConfigError>),
    /// The text is not TOML, or has an unknown key or a value of the wrong type; in a line, from 1.
    #[error("{line}{1}", line = .0.map_or(String::new(), |line| format!("line {line}: ")))]
    Syntax(Option<usize>, String),
    /// A text does not have the expected form.
    #[error("`{0}` is no {1}")]
    Invalid(String, &'static str),
    /// Two things have the same name.
    #[error("duplicate {0} `{1}`")]
    Duplicate(&'static str, String),
    /// A rule about one or more keys.
    #[error("{0}")]
    Rule(&'static str),
    /// There are too many devices.
    #[error("{0} devices, which is more than {MAX_DEVICES}")]
    TooManyDevices(usize),
    /// A device has unknown credentials.
    #[error("there are no credentials `{0}`")]
    UnknownCredentials(String),
    /// A protocol without a password, or the reverse.
    #[error("`{0}` and `{0}-password` go together")]
    MissingPair(&'static str),
    /// A protocol of version 3 is unknown.
    #[error(
        "unknown protocol `{0}`: auth is sha1, sha224, sha256, sha384, sha512 or md5; priv is aes128, aes192-blumenthal, aes192-cisco, aes256-blumenthal, aes256-cisco"
    )]
    UnknownProtocol(String),
    /// Protocols and passwords do not fit.
    #[error("{0}")]
    Keys(async_snmp::v3::CryptoError),
    /// An environment variable is not set.
    #[error("the environment has no `{0}`")]
    MissingVariable(String),
}

impl ConfigError {
    /// Says where an error is.
    fn within(part: impl Into<String>) -> impl FnOnce(ConfigError) -> ConfigError {
        |error| ConfigError::In(part.into(), Box::new(error))
    }
}

impl Config {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::File(path.into(), error))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Config::parse(&text, folder).map_err(ConfigError::within(path.display().to_string()))
    }

    /// Parses a text. Paths in it are relative to `folder`.
    pub fn parse(text: &str, folder: &Path) -> Result<Config, ConfigError> {
        let file: File = toml::from_str(text).map_err(|error| syntax_error(text, &error))?;
        file.validate(folder)
    }
}

fn syntax_error(text: &str, error: &toml::de::Error) -> ConfigError {
    let before = error.span().and_then(|at| text.get(..at.start));
    let line = before.map(|before| before.matches('\n').count() + 1);
    ConfigError::Syntax(line, error.message().replace('\n', "; "))
}

// Contents of the file

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    archive: Option<PathBuf>,
    flush: Option<Span>,
    period: Option<Span>,
    words: Option<Span>,
    timeout: Option<Span>,
    retries: Option<u32>,
    #[serde(default)]
    retention: FileRetention,
    #[serde(default)]
    credentials: Vec<FileCredentials>,
    #[serde(default)]
    device: Vec<FileDevice>,
    #[serde(default)]
    machine: Vec<FileMachine>,
    #[serde(default)]
    ping: Vec<FilePing>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRetention {
    raw: Option<Span>,
    all: Option<Span>,
    bytes: Option<Bytes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCredentials {
    name: String,
    community: Option<Secret>,
    user: Option<String>,
    auth: Option<String>,
    #[serde(rename = "auth-password")]
    auth_password: Option<Secret>,
    #[serde(rename = "priv")]
    privacy: Option<String>,
    #[serde(rename = "priv-password")]
    priv_password: Option<Secret>,
    context: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileDevice {
    name: String,
    address: String,
    credentials: String,
    period: Option<Span>,
    words: Option<Span>,
    timeout: Option<Span>,
    retries: Option<u32>,
    cache: Option<Span>,
    datagram: Option<usize>,
    rows: Option<usize>,
    ask: Option<Vec<StandardTable>>,
    #[serde(default)]
    object: Vec<FileObject>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileObject {
    name: String,
    oid: String,
    #[serde(default)]
    walk: bool,
    #[serde(default)]
    unit: String,
    most: Option<NonZeroU64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileMachine {
    name: String,
    #[serde(default)]
    interfaces: Vec<String>,
    period: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePing {
    name: String,
    address: IpAddr,
    period: Option<Span>,
    timeout: Option<Span>,
}

/// A secret, or the file or environment variable that holds it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Secret {
    Literal(String),
    File { file: PathBuf },
    Variable { env: String },
}

/// A duration such as `10s`, `500ms`, `30d`.
#[derive(Clone, Copy)]
struct Span(Duration);

/// A size such as `10GB`, or a number of bytes.
struct Bytes(u64);

const TIME_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZE_UNITS: [(&str, u64); 5] =
    [("", 1), ("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("TB", 1_000_000_000_000)];

/// Parses a number with one of the units.
fn parse_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == suffix.trim())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        let text = String::deserialize(from)?;
        let ms = parse_with_unit(&text, &TIME_UNITS).filter(|ms| *ms <= 1 << 42);
        let invalid = || D::Error::custom(format!("`{text}` is no time such as 500ms, 10s, 5m, 1h or 30d"));
        ms.map(|ms| Span(Duration::from_millis(ms))).ok_or_else(invalid)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(from)?;
        let invalid = || D::Error::custom(format!("`{text}` is no size such as 500MB or 10GB"));
        parse_with_unit(&text, &SIZE_UNITS).map(Bytes).ok_or_else(invalid)
    }
}

// Validation

impl File {
    fn validate(self, folder: &Path) -> Result<Config, ConfigError> {
        let count = self.device.len() + self.machine.len() + self.ping.len();
        if count == 0 {
            return Err(ConfigError::Rule(
                "there is nothing to poll: no [[device]], [[machine]] or [[ping]]",
            ));
        }
        if count > MAX_DEVICES {
            return Err(ConfigError::TooManyDevices(count));
        }
        let mut credentials: Vec<(&str, Auth)> = Vec::new();
        for one in &self.credentials {
            if credentials.iter().any(|(name, _)| *name == one.name) {
                return Err(ConfigError::Duplicate("credentials", one.name.clone()));
            }
            let auth =
                one.auth(folder).map_err(ConfigError::within(format!("credentials `{}`", one.name)))?;
            credentials.push((&one.name, auth));
        }
        let device = |one: &FileDevice| {
            self.device(one, &credentials).map_err(ConfigError::within(format!("device `{}`", one.name)))
        };
        let devices = self.device.iter().map(device).collect::<Result<Vec<_>, _>>()?;
        let mut machines = Vec::new();
        for FileMachine { name, interfaces, period } in &self.machine {
            let period = self.period(*period).map_err(ConfigError::within(format!("machine `{name}`")))?;
            machines.push(Machine { name: name.clone(), interfaces: interfaces.clone(), period });
        }
        let mut pings = Vec::new();
        for one in &self.ping {
            let period =
                self.period(one.period).map_err(ConfigError::within(format!("ping `{}`", one.name)))?;
            let timeout = one.timeout.or(self.timeout).map_or(Duration::from_secs(2), |s| s.0).min(period);
            pings.push(Ping { name: one.name.clone(), address: one.address, period, timeout });
        }
        let names = devices.iter().map(|d| &d.name).chain(machines.iter().map(|m| &m.name));
        unique(names.map(String::as_str))?;
        unique(pings.iter().map(|p| p.name.as_str()))?;
        let flush = self.flush.map_or(Duration::from_secs(5), |s| s.0);
        if !(Duration::from_millis(100)..=Duration::from_secs(3_600)).contains(&flush) {
            return Err(ConfigError::Rule("`flush` is from 100ms to 1h"));
        }
        let FileRetention { raw, all, bytes } = self.retention;
        let retention = Retention { raw: raw.map(|s| s.0), all: all.map(|s| s.0), bytes: bytes.map(|b| b.0) };
        let archive = self.archive.map(|archive| Location::from(archive).resolve_in(folder));
        Ok(Config { archive, flush, retention, devices, machines, pings })
    }

    fn period(&self, own: Option<Span>) -> Result<Duration, ConfigError> {
        let period = own.or(self.period).map_or(Duration::from_secs(10), |s| s.0);
        let is_valid = (MIN_PERIOD..=MAX_PERIOD).contains(&period);
        if is_valid { Ok(period) } else { Err(ConfigError::Rule("a period is from 100ms to 1d")) }
    }

    fn device(&self, one: &FileDevice, credentials: &[(&str, Auth)]) -> Result<Device, ConfigError> {
        let auth = credentials.iter().find(|(name, _)| *name == one.credentials);
        let (_, auth) = auth.ok_or_else(|| ConfigError::UnknownCredentials(one.credentials.clone()))?;
        let period = self.period(one.period)?;
        let timeout = one.timeout.or(self.timeout).map_or(Duration::from_secs(2), |s| s.0);
        if timeout.is_zero() {
            return Err(ConfigError::Rule("a timeout of 0"));
        }
        let retries = one.retries.or(self.retries).unwrap_or(2);
        let datagram = one.datagram.unwrap_or(1_400);
        if !(484..=65_507).contains(&datagram) || retries > 10 {
            return Err(ConfigError::Rule("`datagram` is from 484 to 65507 octets, `retries` at most 10"));
        }
        let rows = one.rows.unwrap_or(4_096);
        if !(1..=16_384).contains(&rows) {
            return Err(ConfigError::Rule("`rows` is from 1 to 16384"));
        }
        let has_only_objects = one.ask.is_none() && !one.object.is_empty();
        let default_tables = if has_only_objects { vec![] } else { vec![StandardTable::Interfaces] };
        let ask: BTreeSet<StandardTable> = one.ask.clone().unwrap_or(default_tables).into_iter().collect();
        if one.object.len() > MAX_OBJECTS {
            return Err(ConfigError::Rule("more than 1000 objects"));
        }
        if ask.is_empty() && one.object.is_empty() {
            return Err(ConfigError::Rule("nothing to poll: `ask` and `object` are empty"));
        }
        unique(one.object.iter().map(|o| o.name.as_str()))?;
        let objects = one.object.iter().map(FileObject::validate).collect::<Result<_, _>>()?;
        let (host, port) = address(&one.address)?;
        Ok(Device {
            name: one.name.clone(),
            host,
            port,
            auth: auth.clone(),
            period,
            text_interval: one.words.or(self.words).map_or(Duration::from_secs(600), |s| s.0).max(period),
            retry: RetryPolicy { timeout, retries },
            refresh: one.cache.map(|s| s.0),
            datagram,
            rows,
            ask,
            objects,
        })
    }
}

impl FileObject {
    fn validate(&self) -> Result<Object, ConfigError> {
        let invalid = || {
            let error = ConfigError::Invalid(self.oid.clone(), "object such as 1.3.6.1.2.1.1.3.0");
            ConfigError::within(format!("object `{}`", self.name))(error)
        };
        let oid = Oid::parse(self.oid.trim_start_matches('.')).map_err(|_| invalid())?;
        if oid.len() < 2 || oid.validate_for_wire().is_err() {
            return Err(invalid());
        }
        let (name, unit) = (self.name.clone(), self.unit.clone());
        Ok(Object { name, oid, walk: self.walk, unit, most: self.most.map(NonZeroU64::get) })
    }
}

impl FileCredentials {
    fn auth(&self, folder: &Path) -> Result<Auth, ConfigError> {
        match (&self.community, &self.user) {
            (Some(community), None) => {
                let v3 = [&self.auth, &self.privacy, &self.context].into_iter().any(Option::is_some);
                if v3 || self.auth_password.is_some() || self.priv_password.is_some() {
                    return Err(ConfigError::Rule("`auth`, `priv` and `context` go with a `user`"));
                }
                Ok(Auth::v2c(community.resolve(folder)?))
            }
            (None, Some(user)) => self.user(user, folder),
            _ => Err(ConfigError::Rule("either a `community` (version 2c) or a `user` (version 3)")),
        }
    }

    fn user(&self, user: &str, folder: &Path) -> Result<Auth, ConfigError> {
        let pair = |key, protocol: &Option<String>, password: &Option<Secret>| match (protocol, password) {
            (None, None) => Ok(None),
            (Some(protocol), Some(password)) => Ok(Some((protocol.clone(), password.resolve(folder)?))),
            _ => Err(ConfigError::MissingPair(key)),
        };
        let auth = pair("auth", &self.auth, &self.auth_password)?;
        let privacy = pair("priv", &self.privacy, &self.priv_password)?;
        let mut usm = UsmConfig::new(user.to_owned());
        if let Some(context) = &self.context {
            usm = usm.context_name(context.clone());
        }
        let Some((protocol, password)) = auth else {
            return match privacy {
                None => Ok(usm.into()),
                Some(_) => Err(ConfigError::Rule("`priv` goes with `auth`")),
            };
        };
        let unknown = |name: &str| ConfigError::UnknownProtocol(name.to_owned());
        let protocol: AuthProtocol = protocol.parse().map_err(|_| unknown(&protocol))?;
        let too_short = |_| ConfigError::Rule("a password has at least eight octets");
        // Key derivation hashes a megabyte (RFC 3414, A.2), so it runs once for all devices.
        let mut keys = MasterKeys::new(protocol, password.as_bytes()).map_err(too_short)?;
        if let Some((protocol, password)) = privacy {
            let protocol: PrivProtocol = protocol.parse().map_err(|_| unknown(&protocol))?;
            keys = keys.with_privacy(protocol, password.as_bytes()).map_err(too_short)?;
        }
        let usm = usm.with_master_keys(keys).map_err(ConfigError::Keys)?;
        Ok(usm.into())
    }
}

impl Secret {
    fn resolve(&self, folder: &Path) -> Result<String, ConfigError> {
        let text = match self {
            Secret::Literal(text) => text.clone(),
            Secret::File { file } => {
                let path = folder.join(file);
                let text = std::fs::read_to_string(&path).map_err(|error| ConfigError::File(path, error))?;
                text.trim_end_matches(['\n', '\r']).to_owned()
            }
            Secret::Variable { env } => {
                std::env::var(env).map_err(|_| ConfigError::MissingVariable(env.clone()))?
            }
        };
        if text.is_empty() { Err(ConfigError::Rule("a secret is empty")) } else { Ok(text) }
    }
}

/// Parses a host name or address with an optional port; the default is 161.
fn address(text: &str) -> Result<(String, u16), ConfigError> {
    let expected = "address such as 192.0.2.1, [2001:db8::1]:161 or switch.example:161";
    let invalid = || ConfigError::Invalid(text.to_owned(), expected);
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok((ip.to_string(), 161));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| invalid())?),
        None => (text, 161),
    };
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let is_name = host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c));
    let is_host = host.parse::<IpAddr>().is_ok() || !host.is_empty() && is_name;
    if is_host && port > 0 { Ok((host.to_owned(), port)) } else { Err(invalid()) }
}

fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) {
            return Err(ConfigError::Invalid(name.escape_debug().to_string(), "name"));
        }
        if !seen.insert(name) {
            return Err(ConfigError::Duplicate("name", name.to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "[[credentials]]\nname = 'c'\ncommunity = 'public'\n";

    #[test]
    fn a_complete_configuration_is_parsed() {
        let text = format!(
            "period = '30s'\nflush = '1s'\n[retention]\nraw = '30d'\nbytes = '10GB'\n{HEAD}
            [[credentials]]\nname = 's'\nuser = 'u'\nauth = 'sha256'\nauth-password = 'longenough'
            priv = 'aes128'\npriv-password = 'alsolongenough'
            [[device]]\nname = 'a'\naddress = '192.0.2.1'\ncredentials = 'c'
            [[device]]\nname = 'b'\naddress = '[2001:db8::1]:1161'\ncredentials = 's'\nperiod = '5s'
            ask = ['channels', 'interfaces']\nobject = [{{ name = 'load', oid = '.1.3.6.1.4.1.2021.10.1.3.1' }}]
            [[machine]]\nname = 'here'\n[[ping]]\nname = 'a'\naddress = '192.0.2.1'"
        );
        let config = Config::parse(&text, Path::new("")).unwrap();
        let [a, b] = &config.devices[..] else { panic!() };
        assert_eq!((a.host.as_str(), a.port, a.period.as_secs()), ("192.0.2.1", 161, 30));
        assert_eq!((b.host.as_str(), b.port, b.period.as_secs()), ("2001:db8::1", 1161, 5));
        assert_eq!(b.ask, [StandardTable::Interfaces, StandardTable::Channels].into());
        assert_eq!(b.objects.len(), 1);
        assert_eq!((config.flush.as_secs(), config.retention.bytes), (1, Some(10_000_000_000)));
        assert_eq!((config.machines.len(), config.pings.len()), (1, 1));
    }

    #[test]
    fn errors_are_one_line() {
        let device =
            |more: &str| format!("{HEAD}[[device]]\nname = 'a'\naddress = '::1'\ncredentials = 'c'\n{more}");
        let ping = |more: &str| format!("[[ping]]\nname = 'p'\naddress = '::1'\n{more}");
        for (text, expected) in [
            (String::new(), "there is nothing to poll"),
            ("period 3".into(), "line 1: "),
            (device("colour = 'red'"), "line 8: unknown field `colour`"),
            (device("period = '10'"), "`10` is no time"),
            (device("period = '1ms'"), "device `a`: a period is from 100ms to 1d"),
            (device("ask = []"), "nothing to poll"),
            (device("datagram = 10"), "from 484"),
            (device("object = [{ name = 'x', oid = '1.x' }]"), "`1.x` is no object"),
            (device("object = [{ name = 'x', oid = '1.3', most = 0 }]"), "line 8: "),
            (device("").replace("'::1'", "'a b'"), "`a b` is no address"),
            (device("").replace("'::1'", "'a:70000'"), "`a:70000` is no address"),
            (device("credentials = 'd'"), "duplicate key"),
            (device("").replace("credentials = 'c'", "credentials = 'd'"), "there are no credentials `d`"),
            (device("[[device]]\nname = 'a'\naddress = 'b'\ncredentials = 'c'"), "duplicate name `a`"),
            (device("").replace("'public'", "{ env = 'NOT_SET_ANYWHERE' }"), "the environment has no"),
            (device("").replace("'public'", "{ file = 'not/there' }"), "not/there: "),
            (device("").replace("'public'", "''"), "a secret is empty"),
            (device("").replace("community = 'public'", ""), "either a `community`"),
            (device("").replace("community = 'public'", "user = 'u'\nauth = 'sha1'"), "go together"),
            (ping("period = '2d'"), "a period is from"),
            (ping("[[ping]]\nname = \"a\\n\"\naddress = '::1'"), "is no name"),
        ] {
            let message = Config::parse(&text, Path::new("")).map(|_| ()).unwrap_err().to_string();
            let is_expected = message.contains(expected);
            assert!(is_expected && !message.contains('\n'), "{text}: {message}");
        }
    }
}
