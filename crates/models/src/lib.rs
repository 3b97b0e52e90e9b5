//! Models of what a frame crosses between two transports: media, ATM links and hosts.
//!
//! ```
//! use trunkline_models::atm::{Encapsulation, cells_of};
//! use trunkline_models::media::Framing;
//!
//! assert_eq!(cells_of(9180, Encapsulation::LlcSnap), 192);
//! assert_eq!(Framing::ETHERNET.wire(1500), 1538);
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`media`] | point-to-point links, switches, shared Ethernet (CSMA/CD), token rings, impairments; queue disciplines |
//! | [`atm`] | cells, AAL5, pacing, links of cells |
//! | [`host`] | processors, bus, network card, buffers and disk of a host; its timer phases and packet headers |
//! | `impairments` | loss, corruption, duplication and reordering of frames or cells |
//!
//! All models are state machines: they open no socket, read no clock, and draw random numbers only from the streams
//! that the caller passes in.

pub mod atm;
pub mod host;
mod impairments;
pub mod media;
