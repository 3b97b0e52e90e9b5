//! The integration tests of drivers and sockets.
//!
//! | module | subject |
//! | --- | --- |
//! | `echo` | an endpoint over a simulated link and over real sockets |
//! | `packet` | packet sockets on a veth pair |

mod echo;
mod packet;
