//! From plan to record: what every backend shares.
//!
//! | module | what |
//! | --- | --- |
//! | [`backend`] | [`Backend`], the trait; [`Order`], [`Stop`], [`Watch`]; how a record begins and ends |
//! | [`message`] | the test message: header, check, payload |
//! | [`deframe`] | messages out of a byte stream |
//! | [`ledger`], [`meter`], [`series`] | what a sender and a receiver measure, message by message |
//! | [`ends`] | what each end reports |
//! | [`assemble`] | reports → a connection of the record |
//! | [`describe`] | protocols and tests in words |
//! | [`guaranteed`] | the guaranteed transport: a plan's options, faults on purpose, what it counts |
//! | [`llc`] | LLC: stations and their service access points, what is promised, what became of messages |
//! | [`bundle`] | bundles: who wants which messages, what converters agree on |
//! | [`stages`] | where the time goes on the way of the guaranteed transport's messages |
//! | [`expect`] | expectations against a record |
//!
//! Nothing here reads a clock or opens a socket: time is an argument, so the simulator measures with the same code.

pub mod assemble;
pub mod backend;
pub mod bundle;
pub mod deframe;
pub mod describe;
pub mod ends;
pub mod expect;
pub mod guaranteed;
pub mod ledger;
pub mod llc;
pub mod message;
pub mod meter;
pub mod series;
pub mod stages;

pub use backend::{Backend, Order, Refusal, Stop, Unwatched, Watch};
pub use ledger::Ledger;
pub use meter::Meter;
