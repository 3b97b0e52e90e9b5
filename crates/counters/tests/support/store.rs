//! Archives for tests: files, or databases of a temporary server.

use trunkline_counters::archive::Location;

#[cfg(feature = "postgres")]
use super::server;

/// A kind of archive.
pub enum Store {
    File,
    #[cfg(feature = "postgres")]
    Server(&'static server::Server),
}

/// A BLOB: table, column, and the key column.
pub type Blob<'a> = (&'a str, &'a str, &'a str);

impl Store {
    /// Returns an unused location and its directory.
    pub fn folder(&self) -> (tempfile::TempDir, Location) {
        let dir = tempfile::tempdir().unwrap();
        let location = match self {
            Store::File => dir.path().join("below").join("counters.sqlite").into(),
            #[cfg(feature = "postgres")]
            Store::Server(server) => Location::from(server.database().as_str()),
        };
        (dir, location)
    }

    /// Returns the number of cases of a property test.
    pub fn cases(&self) -> u32 {
        let requested_at = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
        match self {
            Store::File => requested_at.unwrap_or(24),
            #[cfg(feature = "postgres")]
            Store::Server(_) => requested_at.unwrap_or(4),
        }
    }

    /// Damages a byte of a BLOB at a position in percent.
    pub fn break_blob(&self, at: &Location, (table, column, key): Blob<'_>, row: i64, place: usize) {
        let flip_bit = |mut bytes: Vec<u8>| {
            let at = bytes.len() * place / 100;
            bytes[at] ^= 4;
            bytes
        };
        match self {
            Store::File => {
                let db = rusqlite::Connection::open(at.file().unwrap()).unwrap();
                let sql = format!("SELECT {column} FROM {table} WHERE {key} = ?1");
                let bytes = flip_bit(db.query_row(&sql, [row], |row| row.get(0)).unwrap());
                let sql = format!("UPDATE {table} SET {column} = ?2 WHERE {key} = ?1");
                db.execute(&sql, rusqlite::params![row, bytes]).unwrap();
            }
            #[cfg(feature = "postgres")]
            Store::Server(server) => {
                let client = server.client(server::name(&at.to_string()));
                let sql = format!("SELECT {column} FROM trunkline.{table} WHERE {key} = {row}");
                let sql_put = format!("UPDATE trunkline.{table} SET {column} = $1 WHERE {key} = {row}");
                client.put_bytes(&sql_put, &flip_bit(client.bytes(&sql)));
            }
        }
    }
}

/// Waits until a condition holds.
#[allow(clippy::disallowed_methods, reason = "servers take their time")]
pub fn wait_until(mut is: impl FnMut() -> bool) {
    for _ in 0..4_800 {
        if is() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("it never came to be");
}

/// Declares tests that run for each kind of archive.
#[macro_export]
macro_rules! for_each_store {
    ($($name:ident)*) => {
        mod in_a_file {
            $(
                #[test]
                fn $name() {
                    super::$name(&$crate::support::store::Store::File);
                }
            )*
        }

        #[cfg(feature = "postgres")]
        mod in_postgres {
            $(
                #[test]
                fn $name() {
                    if let Some(server) = $crate::support::server::server() {
                        super::$name(&$crate::support::store::Store::Server(server));
                    }
                }
            )*
        }
    };
}
