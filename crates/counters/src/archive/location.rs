//! Where an archive is: a file of this machine, or a database of a PostgreSQL server.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// Where an archive is. What begins with `postgres://` or `postgresql://` is a database; what begins with `LETTERS://` else
/// is no place for one, and all else a file.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// A file.
    File(PathBuf),
    /// A database.
    Server(Url),
    /// The address of something else: nothing can be opened there.
    Elsewhere(Scheme),
}

/// What stands before `://`. What follows may be secret, and is not kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Scheme(String);

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
            Location::Server(_) | Location::Elsewhere(_) => None,
        }
    }

    /// The same, seen from a folder: a file that is told relative to it.
    pub fn below(self, folder: &Path) -> Location {
        match self {
            Location::File(path) => Location::File(folder.join(path)),
            other => other,
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
        let Some(scheme) = scheme(&text.to_string_lossy()) else { return Location::File(text.into()) };
        match text.into_string() {
            Ok(url) if ["postgres", "postgresql"].contains(&scheme.as_str()) => Location::Server(Url(url)),
            _ => Location::Elsewhere(Scheme(scheme)),
        }
    }
}

/// What stands before `://`, if it is a letter and then letters, digits, `+`, `-` and `.`, as RFC 3986 has it.
fn scheme(text: &str) -> Option<String> {
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
            Location::Elsewhere(scheme) => scheme.fmt(f),
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

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://…", self.0)
    }
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;
    use crate::archive::{Error, Reader, Writer};

    #[test]
    fn what_is_no_address_of_a_database_is_a_file() {
        for file in ["counters.sqlite", "./postgres://here", "://", "7://x", "a b://x", ""] {
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
    fn an_address_of_something_else_is_refused_and_not_told() {
        let broken = OsString::from_vec(b"postgres://u:hid\xffden@h/c".into());
        for url in
            ["http://u:hidden@x/y", "postgre://u:hidden@h/c", "POSTGRES://u:hidden@h/c", "a+b-7.c://hidden"]
                .map(OsString::from)
                .into_iter()
                .chain([broken])
        {
            let location = Location::from(url);
            assert!(location.file().is_none() && location.clone().below(Path::new("/etc")) == location);
            for why in [Reader::open(&location).unwrap_err(), Writer::open(&location).unwrap_err()] {
                let said = format!("{why} {location:?}");
                assert!(matches!(why, Error::Address { .. }) && !said.contains("hid"), "{said}");
            }
        }
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
            "postgres://db/c?password=hid@den",
            "postgres://db:5433/c?password=hid@den",
            "postgres://me/hidden?x@db/c",
            "postgres://me@db/c?password=a&hidden=c",
        ] {
            let location = Location::from(url);
            let mut said = vec![location.to_string(), format!("{location:?}")];
            // Only what cannot be understood may be opened here: it goes nowhere.
            if said[0] == "postgres://…" {
                said.push(Reader::open(&location).unwrap_err().to_string());
            }
            for shown in said {
                assert!(shown.contains("postgres://"), "{url}: {shown}");
                assert!(!shown.contains("hid") && !shown.contains("den"), "{url}: {shown}");
            }
        }
    }
}
