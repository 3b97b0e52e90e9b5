//! The integration tests of the guaranteed transport.
//!
//! | module | subject |
//! | --- | --- |
//! | `aead` | encryption with a preshared key |
//! | `batches` | batches of sent frames |
//! | `contract` | the contract of endpoints |
//! | `exchange`, `soak_exchange` | random exchanges over faulty paths |
//! | `fast_path` | the fast path of single frames against the general path |
//! | `fec` | forward error correction |
//! | `frameworks` | the two test frameworks of the 1998 paper |
//! | `hostile` | misbehaving peers, crossing handshakes, extreme options |
//! | `integrity`, `soak_integrity` | damaged frames against checksums |
//! | `line` | the line of the 1998 paper in simulated time |
//! | `loopback` | the exchanges over loopback sockets |
//! | `memory`, `soak_memory` | bounds of memory |
//! | `message_calls` | `Node::send_message` and `Node::receive_message` against commands, frames and polls |
//! | `model`, `soak_model` | exhaustive search of short frame sequences |
//! | `namespaces` | network namespaces with a router |
//! | `operations` | random operations of two nodes and a path |
//! | `path_mtu` | path MTU discovery |
//! | `pre_encoding` | messages encoded into frames when they are sent |
//! | `receive_batches` | received batches against single frames |
//! | `same_frames` | the frames of every path through the endpoint |
//! | `sockets` | the socket API over a faulty path |
//! | `stages` | measured stages |
//! | `table_1` | table 1 of the 1998 paper |
//! | `unknown_peers` | forged packets |

#[cfg(feature = "aead")]
mod aead;
mod batches;
mod contract;
mod exchange;
mod fast_path;
mod fec;
mod frameworks;
mod hostile;
mod integrity;
mod line;
#[cfg(feature = "sockets")]
mod loopback;
mod memory;
mod message_calls;
mod model;
#[cfg(feature = "sockets")]
mod namespaces;
mod operations;
mod path_mtu;
mod pre_encoding;
mod receive_batches;
mod same_frames;
#[cfg(feature = "soak")]
mod soak_exchange;
#[cfg(feature = "soak")]
mod soak_integrity;
#[cfg(feature = "soak")]
mod soak_memory;
#[cfg(feature = "soak")]
mod soak_model;
#[cfg(feature = "sockets")]
mod sockets;
mod stages;
mod support;
mod table_1;
mod unknown_peers;
