//! The AAI report (1996): NetSpec experiments over ATM networks.

use crate::table::{Cell, Study, Unit, mbps};

const fn study(table: &'static str, text: &'static str, seeds: u64, cells: &'static [Cell]) -> Study {
    Study { seeds, ..Study::new("aai", table, text, cells) }
}

/// A throughput of one of two streams, to be met within 15 %.
const fn stream(row: &'static str, subject: &'static str, paper: f64, limit: &'static str) -> Cell {
    mbps(row, subject, paper, limit).within(0.15)
}

/// What the receiving host delivers: 250 us of interrupt for each packet that arrives, and reading.
const RECEIVER: &str = "host A; its cost of a byte fitted";
/// What crosses the switch whole: a stream's packets after its pauses, while its buffer fills again.
const PAUSES: &str = "buffer of the switch; the senders' pauses fitted";

/// The experiments of the report, in its order.
pub const STUDIES: &[Study] = &[
    study(
        "figure-1",
        include_str!("../../../experiments/figure-1.ns"),
        20,
        &[
            mbps("KU to GSFC, paced", "KU-GSFC", 33.77, "pacing"),
            mbps("GSFC to KU", "GSFC-KU", 27.29, "loss, fitted"),
        ],
    ),
    study(
        "figure-2",
        include_str!("../../../experiments/figure-2.ns"),
        1,
        &[
            mbps("KU to ARL-UT, paced", "KU-ARL", 33.34, "pacing"),
            mbps("ARL-UT to KU", "ARL-KU", 33.80, "link"),
        ],
    ),
    study(
        "12",
        include_str!("../../../experiments/table-12.ns"),
        3,
        &[
            mbps("B-A, 31,290 B", "B-A-31290", 3.9, "window; acknowledgements fitted"),
            mbps("B-A, 262,144 B", "B-A-262144", 34.6, "window"),
            mbps("B-D, 31,290 B", "B-D-31290", 4.2, "window; acknowledgements fitted"),
            mbps("B-D, 409,600 B", "B-D-409600", 23.8, "pacing, fitted"),
            mbps("A-D, 31,290 B", "A-D-31290", 5.9, "window; segment size fitted"),
            mbps("A-D, 352,144 B", "A-D-352144", 15.7, "pacing, fitted"),
            mbps("D-C, 314,570 B", "D-C-314570", 30.84, "pacing, fitted"),
            mbps("B-C, 524,288 B", "B-C-524288", 29.10, "pacing, fitted"),
            mbps("A-C, 262,144 B", "A-C-262144", 27.01, "window"),
        ],
    ),
    study(
        "ftp-cells",
        include_str!("../../../experiments/ftp-cells.ns"),
        1,
        &[Cell::new(
            "14 million bytes",
            "b",
            "interfaces.if0.tx_frames",
            Unit::Cells,
            297_375.0,
            0.0,
            "segment size and six packets fitted",
        )],
    ),
    study(
        "17",
        include_str!("../../../experiments/table-17-no-pacing.ns"),
        100,
        &[mbps("no pacing", "a-b", 1.20, "timeouts; delay and TAXI rate fitted").within(0.2)],
    ),
    study(
        "17",
        include_str!("../../../experiments/table-17-no-timers.ns"),
        5,
        &[mbps("no pacing, no BSD timers", "a-b", 24.0, "another TCP (NetSim's, a Tahoe)").not_promised()],
    ),
    study(
        "17",
        include_str!("../../../experiments/table-17-pacing.ns"),
        5,
        &[mbps("pacing 70 Mb/s", "a-b", 68.20, "pacing").within(0.05)],
    ),
    study(
        "18",
        include_str!("../../../experiments/table-18.ns"),
        5,
        &[mbps("pacing 40 Mb/s", "dec-sgi", 34.2, "pacing; length fitted").within(0.02)],
    ),
    study(
        "20",
        include_str!("../../../experiments/table-20.ns"),
        10,
        &[
            stream("C to A TCP, credits", "C-A", 58.5, RECEIVER),
            stream("B to A TCP, credits", "B-A", 56.3, RECEIVER),
            mbps("aggregate, credits", "C-A+B-A", 114.8, RECEIVER),
            stream("C to A TCP, none", "C-A-none", 57.0, "timeouts; buffer of the switch fitted"),
            stream("B to A TCP, none", "B-A-none", 40.5, "timeouts; buffer of the switch fitted"),
            mbps("aggregate, none", "C-A-none+B-A-none", 97.5, "timeouts; buffer of the switch fitted"),
        ],
    ),
    study(
        "21",
        include_str!("../../../experiments/table-21.ns"),
        2,
        &[
            stream("C to A UDP, credits", "C-A", 44.5, RECEIVER),
            stream("B to A UDP, credits", "B-A", 44.2, RECEIVER),
            mbps("aggregate, credits", "C-A+B-A", 88.7, RECEIVER),
            stream("C to A UDP, none", "C-A-none", 4.1, PAUSES),
            stream("B to A UDP, none", "B-A-none", 5.7, PAUSES),
            mbps("aggregate, none", "C-A-none+B-A-none", 9.8, PAUSES),
        ],
    ),
    study(
        "22",
        include_str!("../../../experiments/table-22.ns"),
        5,
        &[
            stream("C to A TCP, credits", "C-A", 55.7, "host A"),
            stream("B to A UDP, credits", "B-A", 41.2, "host A"),
            mbps("aggregate, credits", "C-A+B-A", 96.9, "host A"),
            mbps("C to A TCP, none", "C-A-none", 9.5, "timeouts; the report's TCP has fewer").not_promised(),
            stream("B to A UDP, none", "B-A-none", 78.5, "host A, idle in the sender's pauses"),
            mbps("aggregate, none", "C-A-none+B-A-none", 88.0, "host A, idle in the sender's pauses"),
        ],
    ),
];
