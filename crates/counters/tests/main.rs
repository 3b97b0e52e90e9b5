//! Integration tests of the archive and of counter growth.
//!
//! | module | contents |
//! | --- | --- |
//! | `archive` | what is written can be read: views, damage, retention; in a file and in PostgreSQL |
//! | `archive_crash` | killed writers and servers |
//! | `counter` | growth is correct for any traffic, cache, restart, wrap and loss |
//! | `support` | a simulated SNMP agent, archives for tests, a PostgreSQL server |

mod archive;
mod archive_crash;
mod counter;
mod support;
