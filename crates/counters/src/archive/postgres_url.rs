//! Database addresses as `libpq` reads them, without TLS, and their passwords.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// The default socket directory of Debian's server and `libpq`.
const SOCKET_DIRECTORY: &str = "/var/run/postgresql";
const PORT: u16 = 5432;
/// Default timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// TCP keepalive: idle time, interval and number of probes.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);
/// The default idle time of `tokio-postgres`.
const DEFAULT_KEEPALIVE_IDLE: Duration = Duration::from_secs(2 * 60 * 60);
/// Maximum size of a password file in octets.
const MAX_PASSWORD_FILE: u64 = 1 << 20;

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum AddressError {
    #[error("write `@` in a user name, a password or an option as %40")]
    AmbiguousAt,
    #[error(
        "sslmode={0}: this program connects to PostgreSQL without TLS; use a local server or a tunnel, and \
         sslmode=disable"
    )]
    Tls(String),
    #[error("{0}")]
    InvalidOption(String),
    #[error(
        "an option is not known or not of the form OPTION=VALUE; write `&` in a password as %26, `%` as %25"
    )]
    UnknownOption,
    #[error("the user is missing: postgres://USER@HOST/NAME")]
    MissingUser,
    #[error("{} is readable by other users: run chmod 600", .0.display())]
    PublicPasswordFile(PathBuf),
    #[error("cannot read {}: {source}", path.display())]
    PasswordFile { path: PathBuf, source: std::io::Error },
}

/// Returns the address without its password, or only the scheme if the address cannot be parsed.
pub(super) fn redact(url: &str) -> String {
    let Ok(config) = parse(url) else { return "postgres://…".into() };
    let mut out = String::from("postgres://");
    if let Some(user) = config.get_user() {
        let _ = write!(out, "{user}@");
    }
    let port = |at: usize| config.get_ports().get(at).or(config.get_ports().first()).copied().unwrap_or(PORT);
    let mut sockets = String::new();
    for (at, host) in config.get_hosts().iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = match host {
            Host::Tcp(name) => {
                let name = if name.contains(':') { format!("[{name}]") } else { name.clone() };
                let port = if port(at) == PORT { String::new() } else { format!(":{}", port(at)) };
                write!(out, "{comma}{name}{port}")
            }
            Host::Unix(path) if port(at) == PORT => write!(sockets, "?host={}", path.display()),
            Host::Unix(path) => write!(sockets, "?host={}&port={}", path.display(), port(at)),
        };
    }
    let _ = write!(out, "/{}{sockets}", config.get_dbname().unwrap_or_default());
    out
}

/// Parses an address.
fn parse(url: &str) -> Result<Config, AddressError> {
    // `tokio-postgres` takes any `@` as the end of the user name, `libpq` only one before the first `/` or `?`.
    let behind = url.split_once("://").map_or(url, |(_, behind)| behind);
    let (who, rest) = behind.split_at(behind.find(['/', '?']).unwrap_or(behind.len()));
    if who.matches('@').count() > 1 || rest.contains('@') {
        return Err(AddressError::AmbiguousAt);
    }
    let options = url.split_once('?').map_or("", |(_, options)| options).split('&');
    for mode in options.filter_map(|option| option.strip_prefix("sslmode=")) {
        if ["require", "verify-ca", "verify-full"].contains(&mode) {
            return Err(AddressError::Tls(mode.to_owned()));
        }
    }
    url.parse().map_err(|error: tokio_postgres::Error| {
        let why = std::error::Error::source(&error).map(ToString::to_string);
        // Other messages may contain the end of a password with an `&` in it.
        let why = why.filter(|why| why.starts_with("invalid value for option `"));
        why.map_or(AddressError::UnknownOption, AddressError::InvalidOption)
    })
}

/// Returns the configuration of an address; defaults are those of `libpq`.
pub fn config(url: &str, application: &str) -> Result<Config, AddressError> {
    let mut config = parse(url)?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        config.host_path(SOCKET_DIRECTORY);
    }
    if config.get_user().is_none() {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
        config.user(user.ok_or(AddressError::MissingUser)?.name);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    let (idle, interval, retries) = KEEPALIVE;
    if config.get_keepalives_idle() == DEFAULT_KEEPALIVE_IDLE {
        config.keepalives_idle(idle).keepalives_interval(interval).keepalives_retries(retries);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(idle + interval * retries);
    }
    if config.get_application_name().is_none() {
        config.application_name(application);
    }
    if config.get_password().is_none()
        && let Some(password) = password(&config)?
    {
        config.password(password);
    }
    Ok(config)
}

/// Returns the password from `PGPASSWORD`, or from the password file `PGPASSFILE` or `~/.pgpass`.
fn password(config: &Config) -> Result<Option<String>, AddressError> {
    if let Ok(password) = std::env::var("PGPASSWORD") {
        return Ok(Some(password));
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pgpass"));
    let Some(path) = std::env::var_os("PGPASSFILE").map(PathBuf::from).or_else(home) else { return Ok(None) };
    let Some(text) = read_password_file(&path)? else { return Ok(None) };
    let user = config.get_user().unwrap_or_default();
    let name = config.get_dbname().unwrap_or(user);
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| {
        let port = config.get_ports().get(at).or(config.get_ports().first()).copied().unwrap_or(PORT);
        let host = match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) if path == Path::new(SOCKET_DIRECTORY) => "localhost".into(),
            Host::Unix(path) => path.to_string_lossy().into_owned(),
        };
        [host, port.to_string(), name.to_owned(), user.to_owned()]
    });
    let hosts: Vec<[String; 4]> = hosts.collect();
    Ok(hosts.iter().find_map(|wanted| text.lines().find_map(|line| password_of_line(line, wanted))))
}

/// Reads a password file; returns `None` if it does not exist.
fn read_password_file(path: &Path) -> Result<Option<String>, AddressError> {
    let Ok(about) = fs::metadata(path) else { return Ok(None) };
    if !about.is_file() || about.len() > MAX_PASSWORD_FILE {
        return Ok(None);
    }
    if about.permissions().mode() & 0o077 != 0 {
        return Err(AddressError::PublicPasswordFile(path.into()));
    }
    fs::read_to_string(path)
        .map(Some)
        .map_err(|source| AddressError::PasswordFile { path: path.into(), source })
}

/// Returns the password of a line `host:port:database:user:password` if the first four fields are equal to `wanted`
/// or `*`; `\` escapes a `:`.
fn password_of_line(line: &str, wanted: &[String; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut()?.extend(chars.next()),
            c => fields.last_mut()?.push(c),
        }
    }
    let password = if fields.len() == 5 { fields.pop()? } else { return None };
    let fits = fields.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
    (fits && !password.is_empty()).then_some(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parsed_address_is_printed_without_its_password() {
        for (url, as_shown) in [
            ("postgres://me:x@db.example/counters", "postgres://me@db.example/counters"),
            ("postgresql://[::1]:5433/c?password=x", "postgres://[::1]:5433/c"),
            ("postgres:///c?host=/run/postgresql&user=me", "postgres://me@/c?host=/run/postgresql"),
            ("postgres://a,b:77/c?sslmode=disable", "postgres://a,b:77/c"),
            ("postgres://me:%40%3A@a/c", "postgres://me@a/c"),
        ] {
            assert_eq!(redact(url), as_shown);
        }
    }

    #[test]
    fn unsupported_options_are_refused() {
        for mode in ["require", "verify-ca", "verify-full"] {
            let why = config(&format!("postgres://u@h/c?sslmode={mode}"), "").unwrap_err().to_string();
            assert!(why.contains("without TLS") && why.contains(mode), "{why}");
        }
        for (url, part) in [
            ("postgres://u:a@b@h/c", "%40"),
            ("postgres://h/c?password=a@b", "%40"),
            ("postgres://u:a/b@h/c", "%40"),
            ("postgres://u@h/c?x=y", "not known"),
            ("postgres://u@h/c?x", "not known"),
            ("postgres://u:%ff@h/%ff", "not known"),
            ("postgres://u@h:x/c", "`port`"),
        ] {
            let why = config(url, "").unwrap_err().to_string();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn password_file_lines_are_parsed_like_libpq() {
        let wanted = ["h", "5432", "c", "u"].map(String::from);
        for (line, password) in [
            ("h:5432:c:u:p:w", Some("p:w")),
            ("*:*:*:u:a\\:b\\\\", Some("a:b\\")),
            ("h:5432:c:other:p", None),
            ("h:5432:c:u:", None),
            ("h:5432:c:u", None),
            ("#*:*:*:*:p", None),
            ("", None),
        ] {
            assert_eq!(password_of_line(line, &wanted).as_deref(), password, "{line}");
        }
    }
}
