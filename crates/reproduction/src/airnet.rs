//! AirNET (1990): the four tables of its stations. Each column is modelled as a linear function of the message size,
//! whose two coefficients are in the experiment.

use crate::table::{Cell, Study, Unit};

const NEAR: f64 = 0.09;
/// Tolerance of class NONE, which no linear function fits better.
const NONE: f64 = 0.12;
const FITTED: &str = "processor, fitted";
const TWOFOLD: &str = "left out: half of what its packets/s say";

const LOAD: &str = include_str!("../../../experiments/airnet-load.ns");
const DELAY: &str = include_str!("../../../experiments/airnet-delay.ns");
const CLASS: &str = include_str!("../../../experiments/airnet-class.ns");

const fn bits(row: &'static str, subject: &'static str, paper: f64) -> Cell {
    Cell::new(row, subject, "received_bps", Unit::Kbps, paper, NEAR, FITTED)
}

const fn packets(row: &'static str, subject: &'static str, paper: f64) -> Cell {
    Cell::new(row, subject, "messages_received", Unit::PerSecond, paper, NEAR, FITTED)
}

const fn delay(row: &'static str, subject: &'static str, paper: f64) -> Cell {
    Cell::new(row, subject, "delay_us.p50", Unit::Ms, paper, NEAR, FITTED)
}

const fn answered(row: &'static str, subject: &'static str, paper: f64) -> Cell {
    Cell::new(row, subject, "rtt_us.p50", Unit::Ms, paper, NEAR, FITTED)
}

const fn study(table: &'static str, text: &'static str, cells: &'static [Cell]) -> Study {
    Study::new("airnet", table, text, cells)
}

/// The studies, in the order of the appendix of the report.
pub const STUDIES: &[Study] = &[
    study(
        "bits",
        LOAD,
        &[
            bits("PC, 2 B", "pc-2", 3.0),
            bits("PC, 32 B", "pc-32", 24.2).left_out(TWOFOLD),
            bits("PC, 128 B", "pc-128", 170.2),
            bits("PC, 512 B", "pc-512", 560.1),
            bits("PC, 1,024 B", "pc-1024", 909.7),
            bits("PC, 2,032 B", "pc-2032", 1337.0),
            bits("PC/AT, 2 B", "at-2", 4.9),
            bits("PC/AT, 32 B", "at-32", 37.5).left_out(TWOFOLD),
            bits("PC/AT, 128 B", "at-128", 247.1),
            bits("PC/AT, 512 B", "at-512", 658.4),
            bits("PC/AT, 1,024 B", "at-1024", 904.9),
            bits("PC/AT, 2,032 B", "at-2032", 1109.9),
            bits("INTEL, 2 B", "intel-2", 4.8),
            bits("INTEL, 32 B", "intel-32", 74.9),
            bits("INTEL, 128 B", "intel-128", 260.8),
            bits("INTEL, 512 B", "intel-512", 842.5),
            bits("INTEL, 1,024 B", "intel-1024", 1341.9),
            bits("INTEL, 2,032 B", "intel-2032", 1801.7),
        ],
    ),
    study(
        "packets",
        LOAD,
        &[
            packets("PC, 0 B", "pc-0", 217.0),
            packets("PC, 2 B", "pc-2", 190.0),
            packets("PC, 32 B", "pc-32", 189.0),
            packets("PC, 128 B", "pc-128", 166.0),
            packets("PC, 512 B", "pc-512", 137.0),
            packets("PC, 1,024 B", "pc-1024", 111.0),
            packets("PC, 2,032 B", "pc-2032", 82.0),
            packets("PC/AT, 0 B", "at-0", 334.0),
            packets("PC/AT, 2 B", "at-2", 304.0),
            packets("PC/AT, 32 B", "at-32", 288.0),
            packets("PC/AT, 128 B", "at-128", 241.0),
            packets("PC/AT, 512 B", "at-512", 161.0),
            packets("PC/AT, 1,024 B", "at-1024", 110.0),
            packets("PC/AT, 2,032 B", "at-2032", 68.0),
            packets("INTEL, 0 B", "intel-0", 315.0),
            packets("INTEL, 2 B", "intel-2", 299.0),
            packets("INTEL, 32 B", "intel-32", 293.0),
            packets("INTEL, 128 B", "intel-128", 255.0),
            packets("INTEL, 512 B", "intel-512", 206.0),
            packets("INTEL, 1,024 B", "intel-1024", 164.0),
            packets("INTEL, 2,032 B", "intel-2032", 111.0),
        ],
    ),
    study(
        "delay",
        DELAY,
        &[
            delay("PC, 0 B", "pc-0", 8.283),
            delay("PC, 2 B", "pc-2", 9.645),
            delay("PC, 32 B", "pc-32", 9.69),
            delay("PC, 512 B", "pc-512", 12.97),
            delay("PC, 1,024 B", "pc-1024", 15.042),
            delay("PC, 2,032 B", "pc-2032", 20.41),
            delay("PC/AT, 0 B", "at-0", 3.249),
            delay("PC/AT, 2 B", "at-2", 3.752),
            delay("PC/AT, 128 B", "at-128", 5.191),
            delay("PC/AT, 512 B", "at-512", 8.44),
            delay("PC/AT, 1,024 B", "at-1024", 13.135),
            delay("PC/AT, 2,032 B", "at-2032", 22.463),
            delay("INTEL, 0 B", "intel-0", 3.557),
            delay("INTEL, 2 B", "intel-2", 3.766),
            delay("INTEL, 32 B", "intel-32", 3.885),
            delay("INTEL, 128 B", "intel-128", 4.278),
            delay("INTEL, 512 B", "intel-512", 7.24),
            delay("INTEL, 1,024 B", "intel-1024", 8.707),
            delay("INTEL, 2,032 B", "intel-2032", 13.669),
        ],
    ),
    study(
        "class",
        CLASS,
        &[
            delay("NONE, 0 B", "none-0", 3.63).within(NONE),
            delay("NONE, 2 B", "none-2", 3.834).within(NONE),
            delay("NONE, 100 B", "none-100", 4.349).within(NONE),
            delay("NONE, 500 B", "none-500", 7.719).within(NONE),
            delay("NONE, 1,000 B", "none-1000", 8.583).within(NONE),
            delay("NONE, 2,032 B", "none-2032", 13.745).within(NONE),
            answered("ACK, 0 B", "ack-0", 8.303),
            answered("ACK, 2 B", "ack-2", 8.513),
            answered("ACK, 100 B", "ack-100", 8.961),
            answered("ACK, 500 B", "ack-500", 11.864),
            answered("ACK, 1,000 B", "ack-1000", 13.13),
            answered("ACK, 2,032 B", "ack-2032", 18.295),
            delay("CRC, 0 B", "crc-0", 4.369),
            delay("CRC, 2 B", "crc-2", 4.718),
            delay("CRC, 100 B", "crc-100", 10.999),
            delay("CRC, 500 B", "crc-500", 37.82),
            delay("CRC, 1,000 B", "crc-1000", 67.997),
            delay("CRC, 2,032 B", "crc-2032", 133.673),
            answered("CRC+ACK, 0 B", "crc-ack-0", 9.918),
            answered("CRC+ACK, 2 B", "crc-ack-2", 10.242),
            answered("CRC+ACK, 100 B", "crc-ack-100", 16.43),
            answered("CRC+ACK, 500 B", "crc-ack-500", 42.829),
            answered("CRC+ACK, 1,000 B", "crc-ack-1000", 73.405),
            answered("CRC+ACK, 2,032 B", "crc-ack-2032", 139.044),
        ],
    ),
];
