//! What live runs measure and use on Linux, and which of it FreeBSD and macOS have.

/// A measure, or a function of the system that measurements need. Linux has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The name, as in the record and in `docs/reference/agents.md`.
    pub name: &'static str,
    /// Whether it works on FreeBSD.
    pub freebsd: bool,
    /// Whether it works on macOS.
    pub macos: bool,
}

const fn measure(name: &'static str, freebsd: bool, macos: bool) -> Measure {
    Measure { name, freebsd, macos }
}

/// All measures that a system may lack.
pub const MEASURES: [Measure; 18] = [
    measure("arrival times in nanoseconds", false, false),
    measure("clock without steering", false, true),
    measure("congestion control", true, false),
    measure("drops of sockets", false, false),
    measure("facts about the machine", false, false),
    measure("groups of other sockets", false, false),
    measure("idle priority", false, false),
    measure("interface counters", false, false),
    measure("kernel counters", false, false),
    measure("memory limit", true, false),
    measure("packet sockets", false, false),
    measure("path MTU", false, false),
    measure("refused destinations", false, false),
    measure("segmentation offload", false, false),
    measure("system time of threads", true, false),
    measure("TCP information", false, false),
    measure("TTL of arrivals", true, false),
    measure("waits below 1 ms", true, false),
];

/// Returns the names of the measures that this system lacks; none on Linux.
pub fn missing() -> impl Iterator<Item = &'static str> {
    let has = |measure: &Measure| match std::env::consts::OS {
        "linux" => true,
        "freebsd" => measure.freebsd,
        _ => measure.macos,
    };
    MEASURES.iter().filter(move |measure| !has(measure)).map(|measure| measure.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_lacks_nothing_and_the_others_are_documented() {
        assert_eq!(missing().next(), None);
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/agents.md");
        let page = std::fs::read_to_string(page).unwrap();
        let documented: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
        let mark = |has| if has { "yes" } else { "no" };
        for Measure { name, freebsd, macos } in MEASURES {
            let row = format!("| {name} | {} | {} |", mark(freebsd), mark(macos));
            assert!(documented.iter().any(|line| line.starts_with(&row)), "{row}");
        }
    }
}
