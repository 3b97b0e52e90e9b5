//! Where archives of tests lie: in files, or in databases of a server of the test's own.

#![allow(dead_code, reason = "not every test needs all of it")]

use trunkline_counters::archive::Location;

#[cfg(feature = "postgres")]
#[path = "server.rs"]
pub mod server;

/// A kind of archive.
pub enum Store {
    File,
    #[cfg(feature = "postgres")]
    Server(&'static server::Server),
}

/// Which BLOB: table, column, and the column that names the row.
pub type Blob<'a> = (&'a str, &'a str, &'a str);

impl Store {
    /// Where there is no archive yet, and what it lies in.
    pub fn folder(&self) -> (tempfile::TempDir, Location) {
        let dir = tempfile::tempdir().unwrap();
        let location = match self {
            Store::File => dir.path().join("below").join("counters.sqlite").into(),
            #[cfg(feature = "postgres")]
            Store::Server(server) => Location::from(server.database().as_str()),
        };
        (dir, location)
    }

    /// Cases of a property.
    pub fn cases(&self) -> u32 {
        let asked = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
        match self {
            Store::File => asked.unwrap_or(24),
            #[cfg(feature = "postgres")]
            Store::Server(_) => asked.unwrap_or(4),
        }
    }

    /// Breaks a byte of a BLOB: where it stands, in hundredths of the whole.
    pub fn break_blob(&self, at: &Location, (table, column, key): Blob<'_>, row: i64, place: usize) {
        let broken = |mut bytes: Vec<u8>| {
            let at = bytes.len() * place / 100;
            bytes[at] ^= 4;
            bytes
        };
        match self {
            Store::File => {
                let db = rusqlite::Connection::open(at.file().unwrap()).unwrap();
                let sql = format!("SELECT {column} FROM {table} WHERE {key} = ?1");
                let bytes = broken(db.query_row(&sql, [row], |row| row.get(0)).unwrap());
                let sql = format!("UPDATE {table} SET {column} = ?2 WHERE {key} = ?1");
                db.execute(&sql, rusqlite::params![row, bytes]).unwrap();
            }
            #[cfg(feature = "postgres")]
            Store::Server(server) => {
                let client = server.client(server::name(&at.to_string()));
                let sql = format!("SELECT {column} FROM trunkline.{table} WHERE {key} = {row}");
                let sql_put = format!("UPDATE trunkline.{table} SET {column} = $1 WHERE {key} = {row}");
                client.put_bytes(&sql_put, &broken(client.bytes(&sql)));
            }
        }
    }
}

/// Waits until something is so.
#[allow(clippy::disallowed_methods, reason = "servers take their time")]
pub fn patiently(mut is: impl FnMut() -> bool) {
    for _ in 0..4_800 {
        if is() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("it never came to be");
}

/// Makes tests of laws, one for each kind of archive.
#[macro_export]
macro_rules! laws {
    ($($name:ident)*) => {
        mod in_a_file {
            $(
                #[test]
                fn $name() {
                    super::$name(&super::Store::File);
                }
            )*
        }

        #[cfg(feature = "postgres")]
        mod in_postgres {
            $(
                #[test]
                fn $name() {
                    if let Some(server) = super::store::server::server() {
                        super::$name(&super::Store::Server(server));
                    }
                }
            )*
        }
    };
}
