//! Flags of `trunkline stamp`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand, ValueHint};
use trunkline_stamp::packet::UNAUTHENTICATED;
use trunkline_stamp::sender::MAX_SIZE;
use trunkline_stamp::{Format, Network};
use trunkline_units::Span;

use super::values::{Word, in_range, long_span, one_of, positive_span, span};

/// Default port of reflectors: the assigned one, 862, needs root.
pub const PORT: u16 = 8620;

#[derive(Debug, Args)]
pub struct Stamp {
    #[command(subcommand)]
    pub end: End,
}

#[derive(Debug, Subcommand)]
pub enum End {
    /// Send test packets to a reflector and measure delay, loss, duplicates and reordering
    ///
    /// Prints a line each second and a summary at the end. Exit status: 0 if an answer was received, 1 if none was, 2 if
    /// the usage is wrong.
    Send(Send),
    /// Answer test packets of allowed sources
    ///
    /// Ctrl-C stops it and prints what it counted. Exit status: 0 when interrupted, 1 if it cannot receive, 2 if the usage
    /// is wrong.
    Reflect(Reflect),
}

/// Formats of timestamps.
const FORMATS: [Word<Format>; 2] = [
    ("ntp", "Seconds since 1900 and binary fractions, the default of RFC 8762", Format::Ntp),
    ("ptp", "Seconds since 1970 and nanoseconds (truncated PTPv2, in UTC)", Format::Ptp),
];

/// What both ends need.
#[derive(Debug, Args)]
pub struct Common {
    /// Authenticate packets with the key in this file: at least 32 hexadecimal digits, readable only by you
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key: Option<PathBuf>,
    /// Format of the timestamps
    #[arg(long, value_name = "FORMAT", default_value = "ntp", value_parser = one_of(FORMATS))]
    pub timestamps: Format,
    /// Print only the results, as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Send {
    /// The reflector; the default port is 8620, the assigned one is 862
    #[arg(value_name = "HOST[:PORT]", value_hint = ValueHint::Hostname)]
    pub to: String,
    /// Time between packets
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = positive_span)]
    pub interval: Span,
    /// Number of packets [default: until Ctrl-C]
    #[arg(long, value_name = "N", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Time to send [default: until Ctrl-C]
    #[arg(long, value_name = "DURATION", value_parser = long_span)]
    pub duration: Option<Span>,
    /// Octets of a packet [default: 44, authenticated 112]
    #[arg(long, value_name = "OCTETS",
          value_parser = clap::value_parser!(u32).range(UNAUTHENTICATED as i64..=MAX_SIZE as i64).map(|size| size as usize))]
    pub size: Option<usize>,
    /// Differentiated services code point of the packets: EF, AF11 to AF43, CS0 to CS7, or a number
    #[arg(long, value_name = "DSCP", default_value = "0", value_parser = dscp)]
    pub dscp: u8,
    /// Time to wait for the last answers
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = span)]
    pub timeout: Span,
    /// The reflector is known to be stateful, so the direction of every loss is known
    #[arg(long)]
    pub stateful: bool,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Debug, Args)]
pub struct Reflect {
    /// Address to listen on; beyond the loopback --allow is required
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8620")]
    pub listen: SocketAddr,
    /// Answer sources of this network, such as 192.0.2.0/24 [default: the loopback]
    #[arg(long, value_name = "NETWORK", num_args = 1..)]
    pub allow: Vec<Network>,
    /// Maximum answers per second to one source
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub rate: u32,
    /// Maximum sessions; a session without packets for 15 min is over
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub sessions: u32,
    /// Copy the sender's sequence numbers instead of counting the answers of each session
    #[arg(long)]
    pub stateless: bool,
    #[command(flatten)]
    pub common: Common,
}

/// Parses a code point (RFC 2474, RFC 2597, RFC 3246).
fn dscp(text: &str) -> Result<u8, String> {
    const EXPECTED: &str = "expected EF, AF11 to AF43, CS0 to CS7, or 0 to 63";
    let upper = text.to_ascii_uppercase();
    let class_and_drop = |digits: &str| -> Option<u8> {
        let [class @ b'1'..=b'4', drop @ b'1'..=b'3'] = *digits.as_bytes() else { return None };
        Some((class - b'0') * 8 + (drop - b'0') * 2)
    };
    let value = match (upper.as_str(), upper.split_at_checked(2)) {
        ("EF", _) => Some(46),
        (_, Some(("AF", digits))) => class_and_drop(digits),
        (_, Some(("CS", class))) => class.parse().ok().filter(|class| *class <= 7).map(|class: u8| class * 8),
        _ => text.parse().ok(),
    };
    in_range(value.ok_or(EXPECTED)?, ..=63, EXPECTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_are_parsed() {
        for (text, value) in [("EF", 46), ("af11", 10), ("AF43", 38), ("cs6", 48), ("0", 0), ("63", 63)] {
            assert_eq!(dscp(text), Ok(value), "{text}");
        }
        for wrong in ["", "64", "-1", "AF", "AF44", "AF51", "CS8", "EFG", "é"] {
            assert!(dscp(wrong).is_err(), "{wrong}");
        }
    }
}
