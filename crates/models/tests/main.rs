//! Tests of the models, one module for each.

mod atm;
mod host;
mod media;
