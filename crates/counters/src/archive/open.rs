//! Opens the storage of an archive for its location.

use super::sqlite::SqliteStorage;
use super::storage::Storage;
use super::{Error, Location};

/// Opens the storage of an archive; a writer creates it if it does not exist.
pub(crate) fn open(at: &Location, is_writer: bool) -> Result<Box<dyn Storage>, Error> {
    let reason = match at {
        Location::File(path) if is_writer => return Ok(Box::new(SqliteStorage::open_writer(path)?)),
        Location::File(path) => return Ok(Box::new(SqliteStorage::open_reader(path)?)),
        #[cfg(feature = "postgres")]
        Location::Server(url) => return Ok(Box::new(super::postgres::PgStorage::open(url, is_writer)?)),
        #[cfg(not(feature = "postgres"))]
        Location::Server(_) => "this program was built without the feature `postgres`",
        Location::Unsupported(_) => {
            "a database address has the form postgres://USER@HOST/NAME; put ./ before a file of this name"
        }
    };
    Err(Error::InvalidAddress(at.clone(), reason.into()))
}
