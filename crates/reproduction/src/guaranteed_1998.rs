//! Guaranteed ATM (1998): table 6.

use crate::table::{Study, delay, mbps};

/// The experiment of table 6.
pub const STUDIES: &[Study] = &[Study {
    paper: "guaranteed",
    table: "6",
    text: include_str!("../../../experiments/guaranteed-1998.ns"),
    seeds: 20,
    load: None,
    cells: &[
        mbps("bare interface", "raw", 121.8, Some(0.1), "the card, fitted"),
        delay("bare interface, 64 B", "raw-64", 0.85, Some(0.1), "the interface, fitted"),
        mbps("one way", "one-way", 119.0, Some(0.1), "the card"),
        delay("64 B", "one-way-64", 0.89, Some(0.1), "the interface"),
        mbps("both ways, a to b", "there", 108.0, Some(0.1), "processor; its cost of a packet fitted"),
        mbps("both ways, b to a", "back", 108.0, Some(0.1), "processor; its cost of a packet fitted"),
    ],
}];
