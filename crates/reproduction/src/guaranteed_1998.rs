//! Guaranteed ATM (1998): table 6.

use crate::table::{Cell, Study, Unit, mbps};

/// A median one-way delay in ms.
const fn delay(row: &'static str, subject: &'static str, paper: f64, limit: &'static str) -> Cell {
    Cell::new(row, subject, "delay_us.p50", Unit::Ms, paper, 0.1, limit)
}

/// The experiment of table 6.
pub const STUDIES: &[Study] = &[Study {
    seeds: 20,
    ..Study::new(
        "guaranteed",
        "6",
        include_str!("../../../experiments/guaranteed-1998.ns"),
        &[
            mbps("bare interface", "raw", 121.8, "the card, fitted"),
            delay("bare interface, 64 B", "raw-64", 0.85, "the interface, fitted"),
            mbps("one way", "one-way", 119.0, "the card"),
            delay("64 B", "one-way-64", 0.89, "the interface"),
            mbps("both ways, a to b", "there", 108.0, "processor; its cost of a packet fitted"),
            mbps("both ways, b to a", "back", 108.0, "processor; its cost of a packet fitted"),
        ],
    )
}];
