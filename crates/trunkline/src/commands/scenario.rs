//! `trunkline scenario`: writes the measurement configurations of 1996 as experiments.

use trunkline_experiment::scenario::{Configuration, Traffic, scenario_text};

use super::report::write_atomically;
use crate::failure::{Failure, print};
use crate::flags::scenario;

/// Writes the experiment of a configuration.
pub fn scenario(flags: &scenario::Scenario) -> Result<(), Failure> {
    let (configuration, options) = match &flags.configuration {
        scenario::Configuration::Pairs(options) => (Configuration::Pairs, options),
        scenario::Configuration::ThreePairs(options) => (Configuration::ThreePairs, options),
        scenario::Configuration::Switch(options) => (Configuration::Switch, options),
        scenario::Configuration::OneToAll(options) => (Configuration::OneToAll, options),
        scenario::Configuration::Mesh(options) => (Configuration::Mesh, options),
    };
    let traffic = Traffic { protocol: &options.protocol, test: &options.test, duration: &options.duration };
    let text = scenario_text(configuration, &options.hosts, &traffic).map_err(Failure::input)?;
    match &options.output {
        Some(path) => write_atomically(path, text.as_bytes()),
        None => print(&text),
    }
}
