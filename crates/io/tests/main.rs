//! The integration tests of event loops and sockets.
//!
//! | module | subject |
//! | --- | --- |
//! | `echo` | an endpoint over a simulated link and over real sockets |
//! | `packet` | packet sockets on a veth pair |
//! | `shared_loop` | threads that share an endpoint |

mod echo;
mod packet;
mod shared_loop;
