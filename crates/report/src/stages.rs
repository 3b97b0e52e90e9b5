//! Where the time of a connection's messages goes, stage by stage; the records side by side.

use trunkline_record::schema::{Connection, Distribution};

use crate::human::Unit;

/// The stages in the order in which a message passes them, and what they are called.
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

/// What both ends count, of table 2 of the 1998 paper.
const COUNTED: [&str; 14] = [
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

/// A table ready to be shown. Labels, and the words of `lines`, are as the records have them: whoever shows them makes
/// them safe.
pub(crate) struct Stages {
    pub(crate) columns: Vec<String>,
    /// A stage, or the delay of a whole message, and what stands in the other columns.
    pub(crate) rows: Vec<(&'static str, Vec<String>)>,
    /// How each record measured it, and what it counted.
    pub(crate) lines: Vec<String>,
}

/// The stages of a connection in those of the records that have some, each with its label if there are several; none if
/// none has.
pub(crate) fn stages(views: &[(Option<&str>, &Connection)]) -> Option<Stages> {
    let views: Vec<_> = views.iter().filter(|(_, c)| !c.stages_us.is_empty()).collect();
    if views.is_empty() {
        return None;
    }
    let label = |label: &Option<&str>| label.map(|label| format!("{label}, ")).unwrap_or_default();
    let columns = views.iter().flat_map(|(name, _)| {
        let first = format!("{}measured", label(name));
        [first, "p50".into(), "mean".into(), "p99".into(), "of the delay".into()]
    });
    let cells = |get: &dyn Fn(&Connection) -> Option<Distribution>| {
        let of = |(_, c): &&(Option<&str>, &Connection)| match get(c) {
            Some(stage) => {
                let delay = c.delay_us.as_ref().map(|delay| delay.mean).filter(|mean| *mean > 0.0);
                let share = delay.map_or("–".into(), |delay| Unit::Share.show(stage.mean / delay));
                let times = [stage.p50, stage.mean, stage.p99].map(|us| Unit::Microseconds.show(us));
                let [p50, mean, p99] = times;
                [Unit::Number.show(stage.count as f64), p50, mean, p99, share]
            }
            None => ["–"; 5].map(String::from),
        };
        views.iter().flat_map(of).collect::<Vec<String>>()
    };
    let mut rows: Vec<_> = STAGES
        .into_iter()
        .map(|(name, title)| (title, cells(&|c| c.stages_us.get(name).cloned().flatten())))
        .collect();
    rows.push(("message delay", cells(&|c| c.delay_us.clone())));
    let said =
        |(name, c): &&(Option<&str>, &Connection)| Some(format!("{}{}", label(name), c.notes.get("stages")?));
    let lines = views.iter().filter_map(said).chain(views.iter().flat_map(|(name, c)| {
        ["sender", "receiver"].into_iter().filter_map(move |end| counted(&label(name), end, c))
    }));
    Some(Stages { columns: columns.collect(), rows, lines: lines.collect() })
}

/// `live, sender: frames sent 3,215, acks received forced 1,072`
fn counted(label: &str, end: &str, c: &Connection) -> Option<String> {
    let counts = COUNTED.iter().filter_map(|name| {
        let count = c.counters.get(&format!("{end}_{name}")).filter(|count| **count > 0.0)?;
        Some(format!("{} {}", name.replace('_', " "), Unit::Number.show(*count)))
    });
    let counts: Vec<String> = counts.collect();
    (!counts.is_empty()).then(|| format!("{label}{end}: {}", counts.join(", ")))
}
