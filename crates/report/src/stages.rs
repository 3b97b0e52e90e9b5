//! The time of a connection's messages by processing stage, with records side by side.

use trunkline_record::schema::{Connection, Distribution};

use crate::format::Unit;

/// The stages in the order in which a message passes them, with their titles.
const STAGES: [(&str, &str); 11] = [
    ("copy_in", "sender: copy in"),
    ("queued", "sender: queued"),
    ("frame", "sender: frame"),
    ("seal", "sender: checksum"),
    ("send", "sender: send"),
    ("network", "network"),
    ("waiting", "receiver: waiting"),
    ("receive", "receiver: receive"),
    ("open", "receiver: checksum"),
    ("join", "receiver: join"),
    ("copy_out", "receiver: copy out"),
];

/// Counters of both ends, from table 2 of Guaranteed ATM (1998).
const COUNTERS: [&str; 14] = [
    "frames_sent",
    "frames_resent",
    "frames_received",
    "acks_forced",
    "acks_piggybacked",
    "nacks_sent",
    "acks_received_forced",
    "acks_received_piggybacked",
    "nacks_received",
    "frames_eaten",
    "checksums_altered",
    "bad_checksums",
    "framing_errors",
    "timeouts",
];

pub(crate) const COLUMNS_PER_RECORD: usize = 5;

/// A table of stages. Its texts come from the records: the caller sanitizes them.
pub(crate) struct Stages {
    pub(crate) columns: Vec<String>,
    /// The title of a stage, or of the delay of a whole message, and the cells of the other columns.
    pub(crate) rows: Vec<(&'static str, Vec<String>)>,
    /// How each record measured the stages, and its counters.
    pub(crate) lines: Vec<String>,
}

/// Returns the stages of a connection in the records that have some, each with its label if there are several; `None` if
/// no record has any.
pub(crate) fn stages(views: &[(Option<&str>, &Connection)]) -> Option<Stages> {
    let views: Vec<_> = views.iter().filter(|(_, c)| !c.stages_us.is_empty()).collect();
    if views.is_empty() {
        return None;
    }
    let prefix = |label: &Option<&str>| label.map(|label| format!("{label}, ")).unwrap_or_default();
    let columns = views.iter().flat_map(|(label, _)| {
        let first = format!("{}measured", prefix(label));
        [first, "p50".into(), "mean".into(), "p99".into(), "of the delay".into()]
    });
    let cells = |get: &dyn Fn(&Connection) -> Option<Distribution>| {
        let cells_of_record = |(_, c): &&(Option<&str>, &Connection)| match get(c) {
            Some(stage) => {
                let delay = c.delay_us.as_ref().map(|delay| delay.mean).filter(|mean| *mean > 0.0);
                let share = delay.map_or("–".into(), |delay| Unit::Share.format(stage.mean / delay));
                let [p50, mean, p99] =
                    [stage.p50, stage.mean, stage.p99].map(|us| Unit::Microseconds.format(us));
                [Unit::Number.format(stage.count as f64), p50, mean, p99, share]
            }
            None => ["–"; COLUMNS_PER_RECORD].map(String::from),
        };
        views.iter().flat_map(cells_of_record).collect::<Vec<String>>()
    };
    let mut rows: Vec<_> = STAGES
        .into_iter()
        .map(|(name, title)| (title, cells(&|c| c.stages_us.get(name).cloned().flatten())))
        .collect();
    rows.push(("message delay", cells(&|c| c.delay_us.clone())));
    let note = |(label, c): &&(Option<&str>, &Connection)| {
        Some(format!("{}{}", prefix(label), c.notes.get("stages")?))
    };
    let lines = views.iter().filter_map(note).chain(views.iter().flat_map(|(label, c)| {
        ["sender", "receiver"].into_iter().filter_map(move |end| counters(&prefix(label), end, c))
    }));
    Some(Stages { columns: columns.collect(), rows, lines: lines.collect() })
}

/// Returns a line such as `live, sender: frames sent 3,215, acks received forced 1,072`; `None` if all counters are 0.
fn counters(prefix: &str, end: &str, c: &Connection) -> Option<String> {
    let counts = COUNTERS.iter().filter_map(|name| {
        let count = c.counters.get(&format!("{end}_{name}")).filter(|count| **count > 0.0)?;
        Some(format!("{} {}", name.replace('_', " "), Unit::Number.format(*count)))
    });
    let counts: Vec<String> = counts.collect();
    (!counts.is_empty()).then(|| format!("{prefix}{end}: {}", counts.join(", ")))
}
