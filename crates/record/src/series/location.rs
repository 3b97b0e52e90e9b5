//! Where an archive is: a file of this machine, or a database of a PostgreSQL server.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// Where an archive is. What begins with `postgres://` or `postgresql://` is a database, all else a file.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// A file.
    File(PathBuf),
    /// A database.
    Server(Url),
}

/// The address of a database, as `libpq` reads it: `postgres://user@host/name`. It is shown without what is secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Url(String);

impl Location {
    /// Whether there may be an archive: not if it is a file that is not there.
    pub fn may_exist(&self) -> bool {
        self.file().is_none_or(Path::exists)
    }

    /// The file, if it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Location::File(path) => Some(path),
            Location::Server(_) => None,
        }
    }

    /// The same, seen from a folder: a file that is told relative to it.
    pub fn below(self, folder: &Path) -> Location {
        match self {
            Location::File(path) => Location::File(folder.join(path)),
            server => server,
        }
    }
}

impl Url {
    /// All of it, with the password if there is one.
    #[cfg(feature = "postgres")]
    pub(super) fn secret(&self) -> &str {
        &self.0
    }
}

impl From<OsString> for Location {
    fn from(text: OsString) -> Location {
        match text.to_str() {
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Location::Server(Url(url.to_owned()))
            }
            _ => Location::File(text.into()),
        }
    }
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
        f.write_str(&super::postgres::address::shown(&self.0))
    }

    /// Nothing is known of what is secret in it.
    #[cfg(not(feature = "postgres"))]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://…")
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_of_a_database_is_a_file() {
        for file in ["counters.sqlite", "./postgres://here", "http://x/y", ""] {
            assert_eq!(Location::from(file), Location::File(file.into()));
            assert_eq!(Location::from(file).to_string(), file);
        }
        for url in ["postgres://h/x", "postgresql:///x?host=/run/postgresql"] {
            let location = Location::from(OsString::from(url));
            assert!(location.file().is_none() && location.may_exist());
            assert_eq!(location.clone().below(Path::new("/etc")), location);
        }
        assert_eq!(Location::from("a").below(Path::new("/etc")).file(), Some(Path::new("/etc/a")));
    }

    #[test]
    fn a_password_is_never_shown() {
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
        ] {
            let location = Location::from(url);
            for shown in [location.to_string(), format!("{location:?}")] {
                assert!(shown.starts_with("postgres://") && !shown.contains("hid"), "{url}: {shown}");
            }
        }
    }
}
