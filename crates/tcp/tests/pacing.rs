//! Departure times of paced segments, and the delivery rate that BBR measures.

use crate::extensions::modern;
use crate::support::wire::{Outcome, Wire};
use trunkline_tcp::{Algorithm, Options};
use trunkline_units::{Rate, Span};

const VERSIONS: [Algorithm; 2] = [Algorithm::Bbr { seed: 7 }, Algorithm::Bbr3 { seed: 7 }];

fn options(congestion: Algorithm) -> Options {
    Options { congestion: Some(congestion), timestamps: true, nagle: false, ..modern() }
}

/// Paced segments leave one by one; those of other controllers leave in bursts, as the window permits.
#[test]
fn segments_leave_at_the_pace() {
    for (congestion, is_paced) in [(VERSIONS[0], true), (VERSIONS[1], true), (Algorithm::Reno, false)] {
        let mut wire = Wire::new(options(congestion), 3_000_000, |_| Outcome::Pass);
        wire.rate = Rate::from_bps(20_000_000);
        assert!(wire.run(Span::from_s(60)));
        let gaps = wire.sent.windows(2).map(|pair| pair[1].at.since(pair[0].at));
        let bursts = gaps.filter(|gap| gap.is_zero()).count();
        assert_eq!(bursts == 0, is_paced, "{congestion:?}: {bursts} of {}", wire.sent.len());
    }
}

/// Ten seconds of small messages measure the application, not the path: afterwards a large message is as fast as before.
#[test]
fn small_messages_do_not_lower_the_estimate() {
    for congestion in VERSIONS {
        let mut wire = Wire::new(options(congestion), 3_000_000, |_| Outcome::Pass);
        wire.rate = Rate::from_bps(20_000_000);
        assert!(wire.run(Span::from_s(60)));
        for _ in 0..100 {
            wire.total += 1_000;
            assert!(wire.run(Span::from_s(10)));
            wire.now += Span::from_ms(100);
        }
        let start = wire.now;
        wire.total += 2_000_000;
        assert!(wire.run(Span::from_s(60)));
        let seconds = wire.now.since(start).as_s();
        assert!(seconds < 1.0, "{seconds} s by {congestion:?}");
    }
}

/// A path with a round trip of 50 ms and an unlimited queue: the queue stays below a round trip, with 3.3 times the
/// bandwidth-delay product as the windows.
#[test]
fn queue_is_short() {
    for congestion in VERSIONS {
        let mut wire = Wire::new(options(congestion), 20_000_000, |_| Outcome::Pass);
        wire.rate = Rate::from_bps(20_000_000);
        assert!(wire.run(Span::from_s(60)));
        let seconds = wire.now.as_s();
        assert!(seconds < 20_000_000.0 * 8.0 * 1.04 / 20e6 + 1.0, "{seconds} s by {congestion:?}");
        let rtt = wire.ends[0].gauges().smoothed_rtt;
        assert!(rtt < Span::from_ms(75), "{rtt} by {congestion:?}");
    }
}
