//! The location of an archive: a local file, or a database of a PostgreSQL server.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// The location of an archive. Text that starts with `postgres://` or `postgresql://` is a database address; any
/// other scheme is unsupported; everything else is a file name.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// A file.
    File(PathBuf),
    /// A database.
    Server(Url),
    /// The scheme of another address, which cannot be opened. The rest is dropped because it may hold a password.
    Unsupported(String),
}

/// The address of a database as `libpq` reads it: `postgres://user@host/name`. It is printed without secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Url(String);

impl Location {
    /// Returns whether an archive may exist: false only for a file that does not exist.
    pub fn may_exist(&self) -> bool {
        self.file().is_none_or(Path::exists)
    }

    /// Returns the path of a file.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Location::File(path) => Some(path),
            Location::Server(_) | Location::Unsupported(_) => None,
        }
    }

    /// Resolves a relative file name in a directory.
    pub fn resolve_in(self, folder: &Path) -> Location {
        match self {
            Location::File(path) => Location::File(folder.join(path)),
            other => other,
        }
    }
}

impl Url {
    /// Returns the address including its password.
    #[cfg(feature = "postgres")]
    pub(super) fn with_password(&self) -> &str {
        &self.0
    }
}

impl From<OsString> for Location {
    fn from(text: OsString) -> Location {
        let Some(scheme) = parse_scheme(&text.to_string_lossy()) else { return Location::File(text.into()) };
        match text.into_string() {
            Ok(url) if ["postgres", "postgresql"].contains(&scheme.as_str()) => Location::Server(Url(url)),
            _ => Location::Unsupported(scheme),
        }
    }
}

/// Returns the scheme of an address: a letter followed by letters, digits, `+`, `-` and `.` (RFC 3986, section 3.1).
fn parse_scheme(text: &str) -> Option<String> {
    let (scheme, _) = text.split_once("://")?;
    let fits = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    fits.then(|| scheme.to_owned())
}

impl<T: AsRef<OsStr> + ?Sized> From<&T> for Location {
    fn from(text: &T) -> Location {
        text.as_ref().to_owned().into()
    }
}

impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Location {
        path.into_os_string().into()
    }
}

impl From<&Location> for Location {
    fn from(location: &Location) -> Location {
        location.clone()
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::File(path) => path.display().fmt(f),
            Location::Server(url) => url.fmt(f),
            Location::Unsupported(scheme) => write!(f, "{scheme}://…"),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Url {
    #[cfg(feature = "postgres")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&super::postgres_url::redact(&self.0))
    }

    /// Without the feature `postgres`, the secret parts are unknown.
    #[cfg(not(feature = "postgres"))]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://…")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;
    use crate::archive::{Error, Reader, Writer};

    #[test]
    fn locations_without_a_database_scheme_are_files() {
        for file in ["counters.sqlite", "./postgres://here", "://", "7://x", "a b://x", ""] {
            assert_eq!(Location::from(file), Location::File(file.into()));
            assert_eq!(Location::from(file).to_string(), file);
        }
        for url in ["postgres://h/x", "postgresql:///x?host=/run/postgresql"] {
            let location = Location::from(OsString::from(url));
            assert!(location.file().is_none() && location.may_exist());
            assert_eq!(location.clone().resolve_in(Path::new("/etc")), location);
        }
        assert_eq!(Location::from("a").resolve_in(Path::new("/etc")).file(), Some(Path::new("/etc/a")));
    }

    #[test]
    fn an_invalid_address_is_refused_and_not_printed() {
        let broken = OsString::from_vec(b"postgres://u:hid\xffden@h/c".into());
        for url in
            ["http://u:hidden@x/y", "postgre://u:hidden@h/c", "POSTGRES://u:hidden@h/c", "a+b-7.c://hidden"]
                .map(OsString::from)
                .into_iter()
                .chain([broken])
        {
            let location = Location::from(url);
            assert!(location.file().is_none() && location.clone().resolve_in(Path::new("/etc")) == location);
            for error in [Reader::open(&location).unwrap_err(), Writer::open(&location).unwrap_err()] {
                let text = format!("{error} {location:?}");
                assert!(matches!(error, Error::InvalidAddress { .. }) && !text.contains("hid"), "{text}");
            }
        }
    }

    #[test]
    fn a_password_is_never_printed() {
        for url in [
            "postgres://me:hidden@host/db",
            "postgres://me@host/db?password=hidden",
            "postgres://me:hid@den@host/db",
            "postgres://me:x@hidden/y@host/db",
            "postgres://me:x@s?hidden=@host/db",
            "postgres://me:hidden@host:port/db",
            "postgres://me@host/db?hidden",
            "postgres://me@host/db?nothing=hidden",
            "postgres://me:hi%zz%ff@host/db?user=%ffhidden",
            "postgres://db/c?password=hid@den",
            "postgres://db:5433/c?password=hid@den",
            "postgres://me/hidden?x@db/c",
            "postgres://me@db/c?password=a&hidden=c",
        ] {
            let location = Location::from(url);
            let mut text = vec![location.to_string(), format!("{location:?}")];
            // Opening an address that does not parse contacts no server.
            if text[0] == "postgres://…" {
                text.push(Reader::open(&location).unwrap_err().to_string());
            }
            for shown in text {
                assert!(shown.contains("postgres://"), "{url}: {shown}");
                assert!(!shown.contains("hid") && !shown.contains("den"), "{url}: {shown}");
            }
        }
    }
}
