//! The integration tests of the TCP model.
//!
//! | module | subject |
//! | --- | --- |
//! | `extensions` | selective acknowledgement, NewReno, timestamps, ECN and other controllers |
//! | `laws` | the contract of endpoints |
//! | `linux_variant` | what the variant of Linux changes |
//! | `linux`, `soak_linux` | transfers to and from this machine's kernel |
//! | `pacing` | departure times, and the delivery rate that BBR measures |
//! | `reordering` | loss detection on paths that reorder (RFC 8985) |
//! | `square_root`, `soak_square_root` | goodput under loss against the square-root law |
//! | `stream` | complete connections over impaired links |
//! | `timing` | the times of segments |

mod extensions;
mod laws;
mod linux;
mod linux_variant;
mod pacing;
mod reordering;
#[cfg(feature = "soak")]
mod soak_linux;
#[cfg(feature = "soak")]
mod soak_square_root;
mod square_root;
mod stream;
mod support;
mod timing;
