//! Tests of the live backend, one module per topic. Agents are threads of the test process.

#![allow(clippy::disallowed_methods, reason = "these tests run in real time")]

mod applications;
mod bundle;
mod consent;
mod dscp;
mod llc;
#[cfg(feature = "quic")]
mod quic;
mod support;
mod threads;
