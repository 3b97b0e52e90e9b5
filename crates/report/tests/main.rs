//! Tests of the reports, one module per topic.

mod report;
mod sample;
mod sweep;
