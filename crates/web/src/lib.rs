//! The web page over an archive of counters: an HTTP server, its JSON interface, and plots in the browser.
//!
//! ```
//! use trunkline_counters::archive::Writer;
//! use trunkline_web::{Options, Server};
//!
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("counters.sqlite");
//! drop(Writer::open(&path)?); // creates an empty archive
//!
//! let options = Options { archive: (&path).into(), listen: "127.0.0.1:0".parse()?, token: None };
//! let server = Server::bind(&options)?;
//! println!("http://{}/", server.address());
//! server.stop_handle().stop(); // from any thread
//! server.run()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`server`] | the HTTP server: connections, routes, response headers |
//! | [`access`] | access control: host names and tokens |
//! | `query` | query parameters of requests, with limits |
//! | `readers` | a pool of archive readers with a limit on concurrent queries |
//! | `api` | the JSON interface |
//! | `events` | new readings as server-sent events |
//! | `page` | HTML, style sheets and scripts, embedded in the binary |
//!
//! The server only reads the archive ([`trunkline_counters::archive`]), concurrently with its writer. `openapi.json`
//! beside these modules describes the interface; a test compares it with the routes.

pub mod access;
mod api;
mod events;
mod page;
mod query;
mod readers;
pub mod server;

pub use access::Token;
pub use server::{Error, Options, Server, StopHandle};
