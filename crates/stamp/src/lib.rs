//! The Simple Two-way Active Measurement Protocol (STAMP, RFC 8762): a sender and a reflector as state machines.
//!
//! A sender sends test packets with a sequence number and a timestamp. The reflector answers each with its own timestamps,
//! so the sender learns the round-trip delay without the time in the reflector, and both one-way delays if the clocks of
//! both are synchronized. A stateful reflector numbers its answers, which shows in which direction packets are lost.
//!
//! ```
//! use std::time::Duration;
//! use trunkline_stamp::{ClockReading, Reception, Reflector, ReflectorOptions, Request, Sender, SenderOptions};
//! use trunkline_units::{Instant, Span};
//!
//! let read = |us: u64| ClockReading {
//!     at: Instant::from_ns(us * 1_000),
//!     unix: Duration::from_micros(1_700_000_000_000_000 + us),
//!     utc_error: None,
//! };
//! let mut sender = Sender::new(SenderOptions { ssid: 7, ..SenderOptions::default() });
//! let mut reflector = Reflector::new(ReflectorOptions::default());
//!
//! let packet = sender.send(read(0)).to_vec();
//! let request = Request { from: "127.0.0.1:5000".parse().unwrap(), bytes: &packet, ttl: 255, unix: read(30).unix };
//! let mut answer = [0; 64];
//! let length = reflector.reflect(read(40), &request, &mut answer).unwrap();
//! let Ok(Reception::Answer(sample)) = sender.receive(read(70), &answer[..length]) else { panic!() };
//! assert_eq!(sample.round_trip, Some(Span::from_us(60)));   // 70 µs without the 10 µs in the reflector
//! assert!(sample.one_way.is_none());                        // no clock is synchronized
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`timestamp`] | timestamps (NTP and PTP) and error estimates |
//! | [`packet`] | test packets of both ends, unauthenticated and authenticated |
//! | [`tlv`] | extensions (RFC 8972): padding, and how unknown ones are reflected |
//! | [`sender`] | [`Sender`] |
//! | [`losses`] | the direction in which packets were lost |
//! | [`reflector`] | [`Reflector`] |
//! | [`sources`] | the sources that a reflector answers, their rate and their sessions |
//!
//! Left out: every extension of RFC 8972 but padding, so all others are reflected with the U flag; hosts that send
//! packets shorter than those of RFC 8762 (TWAMP Light, RFC 8762 section 4.6) receive no answer, because it would be
//! longer than the request.

pub mod losses;
pub mod packet;
pub mod reflector;
pub mod sender;
pub mod sources;
pub mod timestamp;
pub mod tlv;

pub use losses::Losses;
pub use packet::{Key, PacketError};
pub use reflector::{Reflector, ReflectorOptions, Refusal, Request};
pub use sender::{Counts, OneWay, Reception, Sample, Sender, SenderOptions};
pub use sources::Network;
pub use timestamp::{ClockReading, ErrorEstimate, Format, Timestamp};
