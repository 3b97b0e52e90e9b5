//! The flags of `trunkline test` as the text of an experiment.

use trunkline_units::Span;

use super::{OTHER_HOST, THIS_HOST};
use crate::flags::test::Test;

/// Default message length of streams, as in iperf3.
const STREAM_LENGTH: u64 = 128 << 10;
/// Default message length of datagrams: with the headers of UDP and IPv6 less than 1500 bytes.
const DATAGRAM_LENGTH: u64 = 1448;
/// Default rate over UDP in b/s, as in iperf3: a test floods a network only on request.
const DATAGRAM_RATE: u64 = 1_000_000;

/// Returns the experiment of a test between this host and another one, which an agent controls if there is one.
pub fn experiment(flags: &Test, agent: Option<&str>) -> String {
    let directions: &[(&str, bool)] = match (flags.bidir, flags.reverse) {
        (true, _) => &[("forward", false), ("reverse", true)],
        (false, true) => &[("reverse", true)],
        (false, false) => &[("forward", false)],
    };
    let mut text = format!("experiment \"test {}\" {{\n", transport(flags));
    for (direction, is_reverse) in directions {
        let ends = if *is_reverse { (OTHER_HOST, THIS_HOST) } else { (THIS_HOST, OTHER_HOST) };
        let control = if *is_reverse { "xmtcntl" } else { "rcvcntl" };
        let control = agent.map(|name| format!("{control} = \"agent:{name}\";"));
        for number in 1..=flags.parallel {
            let name = match flags.parallel {
                1 => (*direction).to_owned(),
                _ => format!("{direction}.{number}"),
            };
            text += &connection(flags, &name, ends, control.as_deref());
        }
    }
    text + "}\n"
}

fn connection(flags: &Test, name: &str, (from, to): (&str, &str), control: Option<&str>) -> String {
    let buffer = |option: &str| match flags.window {
        Some(bytes) if transport(flags) != "tcp" => format!(" ({option} = {bytes} B)"),
        _ => String::new(),
    };
    let mut lines = vec![
        format!("xmt = {from}{};", buffer("xmtbuf")),
        format!("rcv = {to}{};", buffer("rcvbuf")),
        format!("protocol = {};", protocol(flags)),
        format!("test = {};", pattern(flags)),
    ];
    lines.extend(control.map(str::to_owned));
    lines.extend(flags.dscp.as_ref().map(|dscp| format!("dscp = {dscp};")));
    lines.push(match flags.bytes {
        Some(bytes) => format!("bytes = {bytes} B;"),
        None => format!("duration = {};", duration(flags.duration)),
    });
    let lines: String = lines.iter().map(|line| format!("    {line}\n")).collect();
    format!("  connection {name} {{\n{lines}  }}\n")
}

/// Writes a duration of whole nanoseconds, as the command line has them.
fn duration(duration: Span) -> String {
    let ns = duration.as_ns();
    match (ns % 1_000_000_000, ns % 1_000_000) {
        (0, _) => format!("{} s", ns / 1_000_000_000),
        (_, 0) => format!("{} ms", ns / 1_000_000),
        _ => format!("{ns} ns"),
    }
}

fn transport(flags: &Test) -> &'static str {
    match (flags.udp, flags.guaranteed) {
        (true, _) => "udp",
        (_, true) => "guaranteed",
        _ => "tcp",
    }
}

fn protocol(flags: &Test) -> String {
    let transport = transport(flags);
    let window = flags.window.filter(|_| transport == "tcp").map(|bytes| format!("window = {bytes} B"));
    let congestion = flags.congestion.as_ref().map(|name| format!("congestion = \"{name}\""));
    let options: Vec<String> = window.into_iter().chain(congestion).collect();
    match options.is_empty() {
        true => transport.to_owned(),
        false => format!("{transport} ({})", options.join(", ")),
    }
}

fn pattern(flags: &Test) -> String {
    let (length, rate) = match flags.udp {
        true => (DATAGRAM_LENGTH, DATAGRAM_RATE),
        false => (STREAM_LENGTH, 0),
    };
    let (length, rate) = (flags.length.unwrap_or(length), flags.rate.unwrap_or(rate));
    if rate == 0 {
        return format!("full (messagesize = {length} B)");
    }
    let period_us = length as f64 * 8e6 / rate as f64;
    format!("cbr (messagesize = {length} B, period = {period_us} us)")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use proptest::prelude::*;
    use trunkline_experiment::plan::{Connection, Plan, Protocol, Stop};
    use trunkline_experiment::{Source, dscp_of, parse};
    use trunkline_traffic::{Pattern, Variable};

    use super::*;
    use crate::flags::{Command, Flags};

    fn flags(words: &[String]) -> Test {
        let words =
            ["trunkline", "test", "local"].into_iter().map(str::to_owned).chain(words.iter().cloned());
        match Flags::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).command {
            Command::Test(flags) => flags,
            other => panic!("{other:?}"),
        }
    }

    fn plan(text: &str) -> Plan {
        let parsed = parse(&Source { name: "test", text, folder: None });
        assert!(parsed.diagnostics.is_empty(), "{text}: {:?}", parsed.diagnostics);
        parsed.plan.unwrap()
    }

    /// Flags that may be given, each with its value.
    fn words() -> impl Strategy<Value = Vec<String>> {
        let option = |name: &'static str, value: BoxedStrategy<String>| {
            proptest::option::of(value)
                .prop_map(move |value| value.map_or(vec![], |v| vec![name.to_owned(), v]))
        };
        let flag = |names: &'static [&'static str]| {
            proptest::sample::select(names)
                .prop_map(|name| if name.is_empty() { vec![] } else { vec![name.to_owned()] })
        };
        let number = |range: std::ops::Range<u64>, units: &'static [&'static str]| {
            (range, proptest::sample::select(units)).prop_map(|(n, unit)| format!("{n}{unit}")).boxed()
        };
        let dscp = proptest::sample::select(&["EF", "ef", "AF41", "cs1", "0", "46", "63"][..]);
        (
            flag(&["", "--udp", "-u", "--guaranteed"]),
            flag(&["", "--reverse", "-R", "--bidir"]),
            option("-b", number(0..1000, &["", "K", "M", "Mb/s", "G"])),
            option("-P", number(1..9, &[""])),
            option("-l", number(32..65_000, &["", "B"])),
            option("-w", number(1..1000, &["", "K", "kB", "MiB"])),
            option("--dscp", dscp.prop_map(str::to_owned).boxed()),
            prop_oneof![
                option("-t", number(1..1000, &["", "s", "ms", "us", "ns"])),
                option("-n", number(1..1000, &["", "K", "MB", "G"])),
            ],
        )
            .prop_map(|(a, b, c, d, e, f, g, h)| [a, b, c, d, e, f, g, h].concat())
    }

    fn assert_has_options(c: &Connection, flags: &Test) {
        assert_eq!(c.protocol.name(), transport(flags));
        assert_eq!(c.dscp, flags.dscp.as_deref().and_then(dscp_of));
        let buffers = [&c.from, &c.to[0]].map(|end| end.buffer.map(|size| size.as_bytes()));
        match &c.protocol {
            Protocol::Tcp { window, .. } => {
                assert_eq!((window.map(|size| size.as_bytes()), buffers), (flags.window, [None; 2]));
            }
            _ => assert_eq!(buffers, [flags.window; 2]),
        }
        match (&c.stop, flags.bytes) {
            (Stop::Bytes(Variable::Constant(bytes)), Some(wanted)) => assert_eq!(*bytes, wanted as f64),
            (Stop::DurationS(Variable::Constant(s)), None) => {
                assert_eq!(Span::from_seconds(*s), flags.duration)
            }
            other => panic!("{other:?}"),
        }
        let rate = flags.rate.unwrap_or(if flags.udp { 1_000_000 } else { 0 }) as f64;
        let size = match &c.test {
            Pattern::Full { size_bytes } if rate == 0.0 => size_bytes.clone(),
            Pattern::Cbr { burst, period_s: Variable::Constant(period) } => {
                let Variable::Constant(size) = burst.size_bytes else { panic!("{burst:?}") };
                assert!((size * 8.0 / period / rate - 1.0).abs() < 1e-9, "{size} B every {period} s");
                burst.size_bytes.clone()
            }
            other => panic!("{other:?} at {rate} b/s"),
        };
        let default = if flags.udp { 1448 } else { 131_072 };
        assert_eq!(size, Variable::Constant(flags.length.unwrap_or(default) as f64));
    }

    proptest! {
        #[test]
        fn the_text_has_the_options_of_the_flags(words in words()) {
            let flags = flags(&words);
            let plan = plan(&experiment(&flags, None));
            let directions = if flags.bidir { 2 } else { 1 };
            prop_assert_eq!(plan.connections.len(), directions * usize::from(flags.parallel));
            let sent_here = plan.connections.iter().filter(|c| c.from.host == THIS_HOST).count();
            let wanted = if flags.reverse { 0 } else { usize::from(flags.parallel) };
            prop_assert_eq!(sent_here, wanted);
            for c in &plan.connections {
                prop_assert_ne!(&c.from.host, &c.to[0].host);
                assert_has_options(c, &flags);
            }
        }
    }

    #[test]
    fn a_congestion_control_is_that_of_the_protocol() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            plan(&experiment(&flags(&words), None)).connections[0].protocol.clone()
        };
        assert!(matches!(of(&["-C", "bbr"]), Protocol::Tcp { congestion: Some(name), .. } if name == "bbr"));
        assert!(matches!(
            of(&["--guaranteed", "-C", "paced"]),
            Protocol::Guaranteed { congestion: trunkline_experiment::plan::ArqCongestion::Paced, .. }
        ));
    }

    #[test]
    fn an_agent_controls_the_other_end() {
        for (flag, control) in [("-t1", "rcvcntl"), ("-R", "xmtcntl")] {
            let words = [flag.to_owned()];
            let text = experiment(&flags(&words), Some("lab7"));
            assert!(text.contains(&format!("{control} = \"agent:lab7\";")), "{text}");
            let plan = plan(&text);
            let mut hosts = plan.hosts.clone();
            hosts.sort();
            assert_eq!(hosts, ["here", "there"]);
        }
    }
}
