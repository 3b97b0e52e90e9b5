//! A station: service access points, their queues, and what the standard has it answer.

/// How a station is set up.
#[derive(Debug)]
pub struct Config {}

/// A station.
#[derive(Debug)]
pub struct Station {}
