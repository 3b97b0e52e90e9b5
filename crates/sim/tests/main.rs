//! Tests of the simulator, one module per topic.

mod bodies {
    pub mod bundle;
    pub mod llc;
}
mod bundle;
mod bursts;
mod common;
mod determinism;
mod figures;
mod group;
mod llc;
mod llc_token;
mod llc_token_soak;
mod losses;
mod mixes;
mod models;
mod random_plans;
mod token;
