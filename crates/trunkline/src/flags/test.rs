//! Flags of `trunkline test`. Names and short forms are those of iperf3 where the meaning is the same.

use clap::Args;
use trunkline_units::Span;

use super::RunArchive;
use super::agents::KeyDirectory;
use super::values::{in_range, long_span, rate_or_zero, size};

/// The smallest message: the measurement header.
const MIN_LENGTH: u64 = trunkline_run::message::HEADER as u64;
/// The largest message.
const MAX_LENGTH: u64 = trunkline_run::message::MAX_MESSAGE as u64;

#[derive(Clone, Debug, Args)]
pub struct Test {
    /// The host of the other end: the name of an agent (`trunkline keys list`), `local`, or an address of this machine
    pub host: String,
    #[command(flatten)]
    pub keys: KeyDirectory,
    /// Send over UDP, at 1 Mb/s unless --rate is given (like iperf3)
    #[arg(long, short = 'u')]
    pub udp: bool,
    /// Send over guaranteed delivery
    #[arg(long, conflicts_with = "udp")]
    pub guaranteed: bool,
    /// Rate of message bytes of each connection, e.g. 10M or 10Mb/s (K, M, G: decimal); 0: as fast as possible [default: 0, with
    /// --udp 1M]
    #[arg(long, short = 'b', alias = "bitrate", value_name = "RATE", value_parser = rate_or_zero)]
    pub rate: Option<u64>,
    /// Let the other host send
    #[arg(long, short = 'R')]
    pub reverse: bool,
    /// Let both hosts send at the same time
    #[arg(long, conflicts_with = "reverse")]
    pub bidir: bool,
    /// Number of connections in each direction
    #[arg(long, short = 'P', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub parallel: u16,
    /// How long to send, e.g. 10s or 5min; a number without a unit is in seconds
    #[arg(long, short = 't', alias = "time", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub duration: Span,
    /// Send this many message bytes on each connection instead, e.g. 100M (K, M, G: binary) or 100MB (decimal)
    #[arg(long, short = 'n', value_name = "SIZE", value_parser = size, conflicts_with = "duration")]
    pub bytes: Option<u64>,
    /// Length of a message, e.g. 8K (binary) or 8kB (decimal) [default: 128K, with --udp 1448, which fits into an Ethernet
    /// packet]
    #[arg(long, short = 'l', value_name = "SIZE", value_parser = length)]
    pub length: Option<u64>,
    /// Requested size of the socket buffers, e.g. 256K; with --guaranteed of the buffers of the connection [default: the
    /// system's]
    #[arg(long, short = 'w', value_name = "SIZE", value_parser = size)]
    pub window: Option<u64>,
    /// Congestion control: of TCP, by the kernel's name, e.g. bbr; with --guaranteed fixed, reno, cubic, paced,
    /// tcp-friendly, bbr or bbr3
    #[arg(long, short = 'C', value_name = "NAME", value_parser = congestion, conflicts_with = "udp")]
    pub congestion: Option<String>,
    /// Mark packets with this DSCP: a name, e.g. EF, AF41 or CS1, or a number from 0 to 63
    #[arg(long, value_name = "DSCP", value_parser = dscp)]
    pub dscp: Option<String>,
    /// Interval between lines, at least 50ms; 0: only the result
    #[arg(long, short = 'i', value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub interval: Span,
    /// Print only the record, as JSON
    #[arg(long, short = 'J')]
    pub json: bool,
    /// Print the text of the experiment, and do not run it
    #[arg(long, conflicts_with = "json")]
    pub print: bool,
    #[command(flatten)]
    pub archive: RunArchive,
    /// Do not store the run in the archive
    #[arg(long)]
    pub no_archive: bool,
}

fn length(text: &str) -> Result<u64, String> {
    let expected = format!("expected {MIN_LENGTH} to {MAX_LENGTH} bytes");
    in_range(size(text)?, MIN_LENGTH..=MAX_LENGTH, &expected)
}

/// Adds the unit of seconds to a bare number.
fn with_unit(text: &str) -> String {
    if text.trim().parse::<f64>().is_ok() { format!("{}s", text.trim()) } else { text.to_owned() }
}

fn duration(text: &str) -> Result<Span, String> {
    long_span(&with_unit(text))
}

fn interval(text: &str) -> Result<Span, String> {
    if text.trim().parse() == Ok(0.0) {
        return Ok(Span::ZERO);
    }
    in_range(duration(text)?, Span::from_ms(50).., "expected at least 50ms, or 0")
}

/// Parses a DSCP; returns it as the language has it.
fn dscp(text: &str) -> Result<String, String> {
    let text = text.trim().to_ascii_uppercase();
    match trunkline_experiment::dscp_of(&text) {
        Some(_) => Ok(text),
        None => Err("expected a name such as EF, AF41 or CS1, or a number from 0 to 63".into()),
    }
}

/// Parses the name of a congestion control; the kernel's names have at most 15 characters (`TCP_CA_NAME_MAX`).
fn congestion(text: &str) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=15).contains(&text.len()) && text.chars().all(is_name) && !text.starts_with(['-', '_']) {
        return Ok(text.to_owned());
    }
    Err("expected a name such as cubic, reno or bbr".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_iperf3_and_of_the_language() {
        for (text, bps) in
            [("10M", 10_000_000), ("10Mb/s", 10_000_000), ("1.5g", 1_500_000_000), ("800", 800), ("0M", 0)]
        {
            assert_eq!(rate_or_zero(text), Ok(bps), "{text}");
        }
        for (text, bytes) in [("128K", 131_072), ("128KiB", 131_072), ("128kB", 128_000), ("1400 B", 1400)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for (text, ms) in [("10", 10_000), ("0.5", 500), ("500ms", 500)] {
            assert_eq!(duration(text), Ok(Span::from_ms(ms)), "{text}");
        }
        assert_eq!((interval("0"), dscp("ef")), (Ok(Span::ZERO), Ok("EF".into())));
    }

    #[test]
    fn wrong_values_are_refused() {
        for wrong in ["", "M", "-1M", "10Q", "nan", "inf", "1e30", "2T", "0.1"] {
            assert!(rate_or_zero(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "0", "K", "-5", "1T", "nan", "1e40"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        for wrong in ["bb r", "\"", "x;", "", "a-name-that-is-too-long", "-x"] {
            assert!(congestion(wrong).is_err(), "{wrong}");
        }
        for wrong in ["64", "-1", "1.5", "EFF", ""] {
            assert!(dscp(wrong).is_err(), "{wrong}");
        }
        assert!(interval("20ms").is_err() && duration("0").is_err() && length("31").is_err());
    }
}
