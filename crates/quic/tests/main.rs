//! Tests of the endpoint.

mod contract;
mod exchange;
mod hostile;
mod support;
