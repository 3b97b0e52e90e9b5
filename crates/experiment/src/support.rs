//! Which tests run over which protocols, and on which backend: the one table of `trunkline check` and the backends.
//!
//! A backend may refuse more of a plan, such as a link, a message that is too long or a file whose messages vary.

use std::fmt::Write as _;

use trunkline_traffic::Pattern;

use crate::plan::Protocol;

/// The backends that run a test over a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// Over sockets.
    pub live: bool,
    /// In simulated time.
    pub sim: bool,
}

impl Support {
    /// Returns whether a backend runs it, by its name; unknown backends run nothing.
    pub fn has(self, backend: &str) -> bool {
        match backend {
            // Real sockets in the lab's namespaces.
            "live" | "lab" => self.live,
            "sim" => self.sim,
            _ => false,
        }
    }
}

/// What a test needs of a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Messages as fast as possible.
    Full,
    /// The bytes of a file.
    File,
    /// Messages at given times: `cbr`, `burst`, `random`, `poisson`, `stairs`, `replay`.
    Paced,
    /// One request at a time.
    Request,
    /// An application model without responses.
    Model,
    /// An application model that waits for responses, which are parts of a byte stream: `www`, `video`.
    Stream,
    /// An application model with several requests in flight, whose receiver stalls or reports: `rpc`, `webrtc`.
    Concurrent,
}

/// The kinds, in the order of the columns of [`TABLE`], with their tests.
const KINDS: [(Kind, &str); 7] = [
    (Kind::Full, "`full`"),
    (Kind::File, "`file`"),
    (Kind::Paced, "`cbr`, `burst`, `random`, `poisson`, `stairs`, `replay`"),
    (Kind::Request, "`request`"),
    (Kind::Model, "models without responses"),
    (Kind::Stream, "`www`, `video`"),
    (Kind::Concurrent, "`rpc`, `webrtc`"),
];

const BOTH: Support = Support { live: true, sim: true };
const LIVE: Support = Support { live: true, sim: false };
const SIM: Support = Support { live: false, sim: true };
pub(crate) const NONE: Support = Support { live: false, sim: false };

/// Names of protocols with what runs over them, by kind.
const TABLE: [(&str, [Support; 7]); 10] = [
    ("tcp", [BOTH, BOTH, BOTH, BOTH, BOTH, BOTH, BOTH]),
    ("udp", [BOTH, BOTH, BOTH, BOTH, BOTH, NONE, BOTH]),
    ("udp (control = credit)", [BOTH, SIM, BOTH, NONE, BOTH, NONE, NONE]),
    ("multicast", [BOTH, BOTH, BOTH, BOTH, BOTH, NONE, NONE]),
    ("llc", [BOTH, SIM, BOTH, BOTH, BOTH, NONE, NONE]),
    ("guaranteed", [BOTH, BOTH, BOTH, BOTH, BOTH, BOTH, NONE]),
    // A host's interface accepts any number of messages at once and drops the excess, so senders must be paced.
    ("bundle", [NONE, NONE, BOTH, NONE, BOTH, NONE, NONE]),
    // It measures real paths, with paced packets.
    ("stamp", [NONE, NONE, LIVE, NONE, NONE, NONE, NONE]),
    ("quic", [BOTH, BOTH, BOTH, BOTH, BOTH, BOTH, NONE]),
    ("quic (datagrams = on)", [BOTH, NONE, BOTH, BOTH, BOTH, NONE, NONE]),
];

/// Returns the name of the row of a protocol.
pub(crate) fn row(protocol: &Protocol) -> &'static str {
    match protocol {
        Protocol::Quic { datagrams: true, .. } => "quic (datagrams = on)",
        Protocol::Udp { credit_window: Some(_), .. } => "udp (control = credit)",
        protocol => protocol.name(),
    }
}

/// Returns the column of a test.
fn column(test: &Pattern) -> usize {
    let kind = match test {
        Pattern::Full { .. } => Kind::Full,
        Pattern::File { .. } => Kind::File,
        Pattern::Request { .. } => Kind::Request,
        Pattern::Application { model, .. } => match model.definition() {
            definition if definition.needs_stream => Kind::Stream,
            definition if definition.max_outstanding > 0 => Kind::Concurrent,
            _ => Kind::Model,
        },
        Pattern::Cbr { .. }
        | Pattern::Burst { .. }
        | Pattern::Random { .. }
        | Pattern::Poisson { .. }
        | Pattern::Stairs { .. }
        | Pattern::Replay { .. } => Kind::Paced,
    };
    KINDS.iter().position(|(other, _)| *other == kind).expect("every kind has a column")
}

/// Returns which backends run a test over a protocol.
pub fn support(test: &Pattern, protocol: &Protocol) -> Support {
    let name = row(protocol);
    let (_, supports) = TABLE.iter().find(|(other, _)| *other == name).expect("every protocol has a row");
    supports[column(test)]
}

/// Returns the protocols over which some backend runs a test.
pub(crate) fn protocols(test: &Pattern) -> Vec<&'static str> {
    let column = column(test);
    // As datagrams, `quic` runs less than over streams.
    let runs = |(name, supports): &&(&str, [Support; 7])| supports[column] != NONE && !name.contains('=');
    TABLE.iter().filter(runs).map(|(name, _)| *name).collect()
}

/// Returns the table as Markdown, for `docs/language.md`.
pub fn table() -> String {
    let mut text = String::from("| test |");
    TABLE.iter().for_each(|(name, _)| text += &format!(" `{name}` |"));
    text += &format!("\n|{}\n", " --- |".repeat(TABLE.len() + 1));
    for (column, (_, tests)) in KINDS.iter().enumerate() {
        let _ = write!(text, "| {tests} |");
        for (_, supports) in &TABLE {
            let word = match supports[column] {
                BOTH => "yes",
                LIVE => "`live`",
                SIM => "`sim`",
                _ => "–",
            };
            let _ = write!(text, " {word} |");
        }
        text.push('\n');
    }
    text
}
