//! Measures the processor share of a receiving host by packet size and rate, and the load above which bundling pays
//! (chapter 4 of Bobo, 1997: sections 4.3 and 4.4).
//!
//! One thread sends datagrams over the loopback at a rate, another receives them, on separate processors where there
//! are two. Reported are the processor time of the receiving thread and, in separate runs, what idle loops on each
//! processor lost: that includes both ends and the kernel between them. Sizes and rates alternate, ascending in one
//! run and descending in the next, so that a temporary slowdown affects all alike.

use serde::Serialize;
use trunkline_bundle::bundler::{Bundler, Timing};
use trunkline_bundle::wire::classic::{ClassicBundle, host_bit};
use trunkline_units::{Instant, Span};

use super::traffic::{IdleLoops, Load, LoadResult, run};
use super::{StudyError, message_error, sockets};

/// Bytes of a packet: those of tables 4-2 to 4-13.
pub const SIZES: [usize; 7] = [96, 128, 160, 256, 512, 1024, 2048];
/// Packets a second: those of the tables, and higher ones for current machines.
pub const RATES: [u32; 10] = [100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000];
/// Bytes of a bundled message: the typical one of the thesis.
pub const MESSAGE: usize = 150;
/// Messages a second, plain and bundled.
pub const LOADS: [u32; 10] = [50, 100, 200, 400, 800, 1_600, 4_000, 10_000, 50_000, 200_000];
/// Maximum length of a bundle in bytes.
pub const BUNDLE: usize = 8_192;
const BUNDLE_DELAY: Span = Span::from_ms(5);
/// Bytes of the datagrams that determine the loopback's limit.
pub const MAX_DATAGRAM: usize = 32_768;
/// A rate is reached if this share of it arrives.
const REACHED_SHARE: f64 = 0.99;
/// No higher rate is tried after one of which less than this share arrived.
const COLLAPSE_SHARE: f64 = 0.8;
/// Minimum duration of a measurement.
const MIN_DURATION: Span = Span::from_ms(20);

/// Results; samples are in the order of the runs, `None` where a rate was not tried or not reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Number of runs.
    pub runs: usize,
    /// Every size at every rate.
    pub cells: Vec<Cell>,
    /// Every size at full speed.
    pub limits: Vec<Limit>,
    /// Payload bits a second over the loopback in datagrams of [`MAX_DATAGRAM`] bytes.
    pub loopback_bps: Vec<f64>,
    /// Plain and bundled messages.
    pub bundling: Vec<Bundling>,
    /// Messages a second above which bundles cost the receiver less; `None` if that holds nowhere or everywhere.
    pub break_even_per_s: Option<f64>,
}

/// A size at a rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Bytes of a packet.
    pub size_bytes: usize,
    /// Packets a second.
    pub rate_per_s: u32,
    /// Processor share of the receiving thread, in percent.
    pub receiver_percent: Vec<Option<f64>>,
    /// Processor share of everything, in percent, measured with idle loops. `None` where the machine was busy before.
    pub taken_percent: Vec<Option<f64>>,
}

/// A size at full speed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Bytes of a packet.
    pub size_bytes: usize,
    /// Packets sent a second.
    pub sent_per_s: Vec<f64>,
    /// Packets received a second. Far fewer than were sent: throughput collapses.
    pub received_per_s: Vec<f64>,
}

/// Messages of [`MESSAGE`] bytes at a rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bundling {
    /// Messages a second.
    pub rate_per_s: u32,
    /// Processor share of the receiver with one message a datagram, in percent.
    pub plain_percent: Vec<Option<f64>>,
    /// Processor share of the receiver with bundles, in percent.
    pub bundled_percent: Vec<Option<f64>>,
}

/// Measures everything `runs` times in about `budget`; `progress` receives the share that is done, 0 to 1.
///
/// # Errors
/// Returns [`StudyError`] if the loopback fails.
pub fn rates(runs: usize, budget: Span, mut progress: impl FnMut(f64)) -> Result<Rates, StudyError> {
    let steps = runs * (SIZES.len() * (2 * RATES.len() + 1) + 1 + 2 * LOADS.len());
    let time = (budget / steps as u64).max(MIN_DURATION);
    let mut done = 0;
    let mut step = || {
        done += 1;
        progress(done as f64 / steps as f64);
    };
    let no_samples = || vec![None; runs];
    let mut study = Rates {
        runs,
        cells: Vec::new(),
        limits: Vec::new(),
        loopback_bps: Vec::new(),
        bundling: Vec::new(),
        break_even_per_s: None,
    };
    for size_bytes in SIZES {
        for rate_per_s in RATES {
            let (receiver_percent, taken_percent) = (no_samples(), no_samples());
            study.cells.push(Cell { size_bytes, rate_per_s, receiver_percent, taken_percent });
        }
        study.limits.push(Limit { size_bytes, sent_per_s: Vec::new(), received_per_s: Vec::new() });
    }
    for rate_per_s in LOADS {
        study.bundling.push(Bundling {
            rate_per_s,
            plain_percent: no_samples(),
            bundled_percent: no_samples(),
        });
    }
    for run in 0..runs {
        let order = |count: usize| (0..count).map(move |n| if run % 2 == 0 { n } else { count - 1 - n });
        for size in order(SIZES.len()) {
            let cells = &mut study.cells[size * RATES.len()..][..RATES.len()];
            measure_rates(cells, time, |cell| &mut cell.receiver_percent[run], None, &mut step)?;
            let idle_loops = IdleLoops::start(time).map_err(message_error(0))?;
            measure_rates(cells, time, |cell| &mut cell.taken_percent[run], Some(&idle_loops), &mut step)?;
            drop(idle_loops);
            let result = plain(f64::INFINITY, SIZES[size], time)?;
            study.limits[size].sent_per_s.push(result.sent_rate());
            study.limits[size].received_per_s.push(result.received_rate());
            step();
        }
        let result = plain(f64::INFINITY, MAX_DATAGRAM, time)?;
        study.loopback_bps.push(result.received_rate() * MAX_DATAGRAM as f64 * 8.0);
        step();
        for load in order(LOADS.len()) {
            let rate = f64::from(LOADS[load]);
            let percent = |result: LoadResult| is_reached(&result, rate).then(|| result.percent());
            study.bundling[load].plain_percent[run] = percent(plain(rate, MESSAGE, time)?);
            step();
            study.bundling[load].bundled_percent[run] = percent(bundled(rate, time)?);
            step();
        }
    }
    study.break_even_per_s = break_even(&study.bundling);
    Ok(study)
}

/// Measures one size at all rates, ascending, until throughput collapses.
fn measure_rates(
    cells: &mut [Cell],
    time: Span,
    sample: impl Fn(&mut Cell) -> &mut Option<f64>,
    idle_loops: Option<&IdleLoops>,
    step: &mut impl FnMut(),
) -> Result<(), StudyError> {
    let mut has_collapsed = false;
    for cell in cells {
        step();
        if has_collapsed {
            continue;
        }
        let rate = f64::from(cell.rate_per_s);
        let snapshot = idle_loops.map(IdleLoops::snapshot);
        let result = plain(rate, cell.size_bytes, time)?;
        has_collapsed = result.received_rate() < rate * COLLAPSE_SHARE;
        if is_reached(&result, rate) {
            *sample(cell) = match idle_loops.zip(snapshot) {
                Some((idle_loops, snapshot)) => idle_loops.taken_percent(snapshot),
                None => Some(result.percent()),
            };
        }
    }
    Ok(())
}

/// Returns whether a rate was reached and almost all of it arrived.
fn is_reached(result: &LoadResult, rate: f64) -> bool {
    result.received_rate() >= rate * REACHED_SHARE && result.lost() <= 1.0 - REACHED_SHARE
}

/// Sends packets of one size, one in each call.
fn plain(rate: f64, size: usize, time: Span) -> Result<LoadResult, StudyError> {
    let (from, to) = sockets()?;
    let packet = vec![0x55; size];
    let send = |_, number: Option<u64>| match number {
        Some(_) => from.send(&packet).map(|_| ()),
        None => Ok(()),
    };
    run(Load { rate, time }, Span::MAX, &to, send, |_| 1).map_err(message_error(size))
}

/// Sends messages in bundles; the receiver iterates over the messages.
fn bundled(rate: f64, time: Span) -> Result<LoadResult, StudyError> {
    let (from, to) = sockets()?;
    let timing = Timing::Adaptive { ordinary: BUNDLE_DELAY, priority: Span::ZERO, gap: None };
    let mut bundler = Bundler::new(None, BUNDLE, timing);
    let (message, mut buffer) = ([0x55; MESSAGE], vec![0; BUNDLE]);
    let mut send_ready = |bundler: &mut Bundler, now: Instant| {
        while let Some(octets) = bundler.write_next(now, &mut buffer) {
            from.send(&buffer[..octets])?;
        }
        Ok(())
    };
    let send = |now: Instant, number: Option<u64>| {
        match number {
            Some(_) => _ = bundler.push(now, host_bit(1), &message, false, None),
            None => bundler.close_if_due(now),
        }
        send_ready(&mut bundler, now)
    };
    let count = |bytes: &[u8]| {
        let subscribed = |bundle: ClassicBundle<'_>| {
            bundle.messages().filter(|message| message.address & host_bit(1) != 0).count() as u64
        };
        ClassicBundle::read(bytes).map_or(0, subscribed)
    };
    run(Load { rate, time }, Span::from_ms(1), &to, send, count).map_err(message_error(MESSAGE))
}

/// Returns where the curves of plain and bundled messages cross, by linear interpolation between two loads.
fn break_even(bundling: &[Bundling]) -> Option<f64> {
    let difference = |point: &Bundling| {
        let (plain, bundled) = (median(&point.plain_percent)?, median(&point.bundled_percent)?);
        Some((f64::from(point.rate_per_s), plain - bundled))
    };
    let known: Vec<(f64, f64)> = bundling.iter().filter_map(difference).collect();
    // The last crossing: below it the differences are those of a few packets.
    known.windows(2).rev().find(|pair| pair[0].1 <= 0.0 && pair[1].1 > 0.0).map(|pair| {
        let [(from, below), (to, above)] = [pair[0], pair[1]];
        from + (to - from) * -below / (above - below)
    })
}

fn median(samples: &[Option<f64>]) -> Option<f64> {
    let known: Vec<f64> = samples.iter().flatten().copied().collect();
    (!known.is_empty()).then(|| super::median(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(rate_per_s: u32, plain: f64, bundled: f64) -> Bundling {
        Bundling { rate_per_s, plain_percent: vec![Some(plain)], bundled_percent: vec![Some(bundled)] }
    }

    #[test]
    fn break_even_is_where_the_curves_cross() {
        let points = [point(100, 1.0, 2.0), point(200, 2.0, 2.0), point(400, 4.0, 2.0)];
        assert_eq!(break_even(&points), Some(200.0));
        assert_eq!(break_even(&points[..2]), None, "nowhere");
        assert_eq!(break_even(&points[2..]), None, "everywhere");
        let gap = [point(100, 1.0, 3.0), point(300, 5.0, 3.0)];
        assert_eq!(break_even(&gap), Some(200.0));
    }

    #[test]
    fn plain_and_bundled_messages_arrive() {
        for result in [plain(2_000.0, MESSAGE, MIN_DURATION), bundled(2_000.0, MIN_DURATION)] {
            let result = result.expect("the loopback carries them");
            assert!(result.received == result.sent && result.sent > 1, "{result:?}");
        }
    }
}
