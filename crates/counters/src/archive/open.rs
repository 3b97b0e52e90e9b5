//! Opens the storage of an archive for its location.

#[cfg(feature = "postgres")]
use super::postgres::PgStorage;
use super::sqlite::SqliteStorage;
use super::storage::Storage;
use super::{Error, Location, location::Url};

/// Opens an archive for writing; creates it if it does not exist.
pub(crate) fn open_writer(at: &Location) -> Result<Box<dyn Storage>, Error> {
    match at {
        Location::File(path) => Ok(Box::new(SqliteStorage::open_writer(path)?)),
        Location::Server(url) => open_server(url, true),
        Location::Unsupported(_) => Err(unsupported_address(at)),
    }
}

/// Opens an archive for reading.
pub(crate) fn open_reader(at: &Location) -> Result<Box<dyn Storage>, Error> {
    match at {
        Location::File(path) => Ok(Box::new(SqliteStorage::open_reader(path)?)),
        Location::Server(url) => open_server(url, false),
        Location::Unsupported(_) => Err(unsupported_address(at)),
    }
}

fn unsupported_address(at: &Location) -> Error {
    let reason =
        "a database address has the form postgres://USER@HOST/NAME; put ./ before a file of this name".into();
    Error::InvalidAddress { archive: at.clone(), reason }
}

#[cfg(feature = "postgres")]
fn open_server(url: &Url, is_writer: bool) -> Result<Box<dyn Storage>, Error> {
    Ok(Box::new(PgStorage::open(url, is_writer)?))
}

#[cfg(not(feature = "postgres"))]
fn open_server(url: &Url, _: bool) -> Result<Box<dyn Storage>, Error> {
    let reason = "this program was built without the feature `postgres`".into();
    Err(Error::InvalidAddress { archive: Location::Server(url.clone()), reason })
}
