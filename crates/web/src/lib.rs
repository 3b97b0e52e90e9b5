//! The page over the archive of counters: an HTTP server on this machine, a JSON interface, plots in the browser.
//!
//! | module | what |
//! | --- | --- |
//! | [`server`] | who listens: connections, routes, headers of every answer |
//! | [`door`] | who may come in: names of this machine, tokens |
//! | `query` | what was asked for, within bounds |
//! | `pool` | readers of the archive, a few at a time |
//! | `api` | what is answered, as JSON |
//! | `live` | what is flushed while somebody watches, as server-sent events |
//! | `page` | the page: HTML, styles and scripts, in the binary |
//!
//! Everything is read from the archive ([`trunkline_counters::archive`]) beside the one who writes it; nothing is ever
//! written. `openapi.json` beside these modules describes the interface, and a test holds it against what is served.

mod api;
pub mod door;
mod live;
mod page;
mod pool;
mod query;
pub mod server;

pub use door::Token;
pub use server::{Error, Options, Server, Stop};
