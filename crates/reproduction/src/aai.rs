//! The AAI report (1996): NetSpec experiments over ATM networks.

use crate::table::{Cell, Study, Unit, mbps};

const TENTH: Option<f64> = Some(0.1);

/// The experiments of the report, in its order.
pub const STUDIES: &[Study] = &[
    Study {
        paper: "aai",
        table: "figure-1",
        text: include_str!("../../../experiments/figure-1.ns"),
        seeds: 20,
        load: None,
        cells: &[
            mbps("KU to GSFC, paced", "KU-GSFC", 33.77, TENTH, "pacing"),
            mbps("GSFC to KU", "GSFC-KU", 27.29, TENTH, "loss, fitted"),
        ],
    },
    Study {
        paper: "aai",
        table: "figure-2",
        text: include_str!("../../../experiments/figure-2.ns"),
        seeds: 1,
        load: None,
        cells: &[
            mbps("KU to ARL-UT, paced", "KU-ARL", 33.34, TENTH, "pacing"),
            mbps("ARL-UT to KU", "ARL-KU", 33.80, TENTH, "link"),
        ],
    },
    Study {
        paper: "aai",
        table: "12",
        text: include_str!("../../../experiments/table-12.ns"),
        seeds: 3,
        load: None,
        cells: &[
            mbps("B-A, 31,290 B", "B-A-31290", 3.9, TENTH, "window; acknowledgements fitted"),
            mbps("B-A, 262,144 B", "B-A-262144", 34.6, TENTH, "window"),
            mbps("B-D, 31,290 B", "B-D-31290", 4.2, TENTH, "window; acknowledgements fitted"),
            mbps("B-D, 409,600 B", "B-D-409600", 23.8, TENTH, "pacing, fitted"),
            mbps("A-D, 31,290 B", "A-D-31290", 5.9, TENTH, "window; segment size fitted"),
            mbps("A-D, 352,144 B", "A-D-352144", 15.7, TENTH, "pacing, fitted"),
            mbps("D-C, 314,570 B", "D-C-314570", 30.84, TENTH, "pacing, fitted"),
            mbps("B-C, 524,288 B", "B-C-524288", 29.10, TENTH, "pacing, fitted"),
            mbps("A-C, 262,144 B", "A-C-262144", 27.01, TENTH, "window"),
        ],
    },
    Study {
        paper: "aai",
        table: "ftp-cells",
        text: include_str!("../../../experiments/ftp-cells.ns"),
        seeds: 1,
        load: None,
        cells: &[Cell {
            row: "14 million bytes",
            subject: "b",
            figure: "interfaces.if0.tx_frames",
            unit: Unit::Cells,
            paper: 297_375.0,
            within: Some(0.0),
            limit: "segment size and six packets fitted",
        }],
    },
    Study {
        paper: "aai",
        table: "17",
        text: include_str!("../../../experiments/table-17-no-pacing.ns"),
        seeds: 100,
        load: None,
        cells: &[mbps("no pacing", "a-b", 1.20, Some(0.2), "timeouts; delay and TAXI rate fitted")],
    },
    Study {
        paper: "aai",
        table: "17",
        text: include_str!("../../../experiments/table-17-no-timers.ns"),
        seeds: 5,
        load: None,
        cells: &[mbps("no pacing, no BSD timers", "a-b", 24.0, None, "another TCP (NetSim's, a Tahoe)")],
    },
    Study {
        paper: "aai",
        table: "17",
        text: include_str!("../../../experiments/table-17-pacing.ns"),
        seeds: 5,
        load: None,
        cells: &[mbps("pacing 70 Mb/s", "a-b", 68.20, Some(0.05), "pacing")],
    },
    Study {
        paper: "aai",
        table: "18",
        text: include_str!("../../../experiments/table-18.ns"),
        seeds: 5,
        load: None,
        cells: &[mbps("pacing 40 Mb/s", "dec-sgi", 34.2, Some(0.02), "pacing; length fitted")],
    },
];
