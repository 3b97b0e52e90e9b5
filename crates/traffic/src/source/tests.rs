use super::*;
use crate::Application;

const ANY: Bounds = Bounds::new(32, 65_507);
const START: Instant = Instant::from_ns(5_000);

fn source(pattern: &Pattern, limit: Limit) -> Source {
    Source::new(pattern, limit, ANY, START, Seed::default(), "a-b").unwrap()
}

fn constant(x: f64) -> Variable {
    Variable::Constant(x)
}

fn burst(size: f64, count: f64) -> Burst {
    Burst { size_bytes: constant(size), count: constant(count) }
}

/// Returns all messages of a source whose sender is never late.
fn send_all(source: &mut Source) -> Vec<Message> {
    let (mut now, mut sent) = (Instant::ZERO, Vec::new());
    loop {
        match source.next(now) {
            Step::Send(m) => {
                if m.first {
                    source.departed(now);
                }
                sent.push(m);
            }
            Step::Wait(until) => {
                assert!(until > now, "a wait must end later");
                now = until;
            }
            Step::Done => return sent,
        }
    }
}

fn seconds(s: u64) -> Limit {
    Limit { time: Some(Span::from_s(s)), ..Limit::default() }
}

#[test]
fn replay_has_the_sizes_and_the_scaled_times() {
    let messages = vec![(7_000, 100), (7_000, 8), (1_007_000, 70_000), (1_007_003, 500)];
    let recording = Recording::new(messages).unwrap();
    let request = crate::RecordingRequest {
        path: "x".into(),
        column: String::new(),
        filter: String::new(),
        values: crate::recording::RecordedValues::Sizes,
        message_bytes: 1_400.0,
    };
    for (scale, times) in [(1.0, [0, 0, 1_000_000, 1_000_003]), (10.0, [0, 0, 100_000, 100_000])] {
        let pattern = Pattern::Replay {
            request: request.clone(),
            recording: recording.clone(),
            scale,
            size_bytes: constant(70_000.0),
        };
        let mut s = source(&pattern, Limit::default());
        let sent = send_all(&mut s);
        assert_eq!(sent.iter().map(|m| m.size).collect::<Vec<_>>(), [100, 32, 65_507, 500]);
        let due: Vec<u64> = sent.iter().map(|m| m.due.since(START).as_ns()).collect();
        assert_eq!(due, times);
        let last = sent.last().unwrap().due;
        assert_eq!(s.sending_time(last), last.since(START));
        assert_eq!(s.fits()[0].goodness_of_fit.distance, 0.0);
        let rate = 70_608.0 * 8.0 / (1_000_003e-9 / scale);
        assert!((s.offered_bps().unwrap() / rate - 1.0).abs() < 1e-9);
        // A limit ends it earlier.
        let limit = Limit { time: Some(Span::from_us(50)), ..Limit::default() };
        assert_eq!(send_all(&mut source(&pattern, limit)).len(), 2);
    }
}

#[test]
fn cbr_sends_a_burst_every_period() {
    // Figure 9 of NetSpec (1996): 5 messages of 18,432 bytes every 20 ms are 36.864 Mb/s.
    let mut s = source(&Pattern::Cbr { burst: burst(18_432.0, 5.0), period_s: constant(0.02) }, seconds(10));
    let sent = send_all(&mut s);
    assert_eq!(sent.len(), 500 * 5);
    assert_eq!(s.sending_time(sent.last().unwrap().due), Span::from_s(10));
    assert_eq!(s.offered_bps(), Some(36_864_000.0));
    assert!(sent.chunks(5).enumerate().all(|(i, b)| {
        b.iter().all(|m| m.due == START + Span::from_ms(20) * i as u64) && b[0].first && !b[1].first
    }));
    let fits = s.fits();
    assert_eq!((fits.len(), fits[0].name, fits[0].goodness_of_fit.distance), (1, "gap", 0.0));
    assert!((fits[0].sent_mean - 20_000.0).abs() < 1e-6);
}

#[test]
fn a_late_cbr_catches_up_and_a_late_burst_is_skipped() {
    for (skip, want) in [(false, 100), (true, 50)] {
        let (burst, period_s) = (burst(100.0, 1.0), constant(0.01));
        let pattern =
            if skip { Pattern::Burst { burst, period_s } } else { Pattern::Cbr { burst, period_s } };
        let mut s = source(&pattern, seconds(1));
        let mut count = 0;
        // The sender is delayed for the first half.
        let mut now = START + Span::from_ms(505);
        loop {
            match s.next(now) {
                Step::Send(_) => count += 1,
                Step::Wait(until) => now = until,
                Step::Done => break,
            }
        }
        assert_eq!((count, s.skipped_and_late().0), (want, 100 - want));
    }
}

#[test]
fn due_messages_that_were_not_sent_are_counted() {
    // The sender is delayed for the last third, until after the end.
    let mut s = source(&Pattern::Cbr { burst: burst(1000.0, 1.0), period_s: constant(0.01) }, seconds(1));
    let (mut now, mut count, mut last) = (START, 0, START);
    loop {
        match s.next(now) {
            Step::Send(_) => (count, last) = (count + 1, now),
            Step::Wait(until) if until >= START + Span::from_ms(660) => now = START + Span::from_ms(1100),
            Step::Wait(until) => now = until,
            Step::Done => break,
        }
    }
    assert_eq!((count, s.skipped_and_late().0), (66, 34));
    assert_eq!(s.sending_time(last), Span::from_s(1));
}

#[test]
fn a_limit_in_bytes_is_met_exactly() {
    // The transfer of 14 million bytes of NetSpec (1996), and a remainder too small for a separate message.
    for (size, bytes) in [(65_000.0, 14_000_000), (1000.0, 10_010), (1000.0, 100)] {
        let limit = Limit { bytes: Some(bytes), ..Limit::default() };
        let sent = send_all(&mut source(&Pattern::Full { size_bytes: constant(size) }, limit));
        assert_eq!(sent.iter().map(|m| u64::from(m.size)).sum::<u64>(), bytes);
        assert!(sent.iter().all(|m| m.size >= ANY.smallest));
    }
}

#[test]
fn batches_and_single_messages_add_up() {
    for (size, bytes) in [(1400.0, 14_000_000), (1000.0, 10_010)] {
        let limit = Limit { bytes: Some(bytes), ..Limit::default() };
        let mut s = source(&Pattern::Full { size_bytes: constant(size) }, limit);
        let mut sent = 0;
        loop {
            if let Some((size, count)) = s.batch(START, 46) {
                assert!(count <= 46);
                sent += u64::from(size) * count;
            } else if let Step::Send(m) = s.next(START) {
                sent += u64::from(m.size);
            } else {
                break;
            }
        }
        assert_eq!(sent, bytes);
    }
    let mut s = source(&Pattern::Full { size_bytes: constant(1400.0) }, seconds(1));
    assert_eq!(s.batch(START, 46), Some((1400, 46)));
    assert_eq!(s.batch(START + Span::from_s(1), 46), None);
    let mut s = source(
        &Pattern::Full { size_bytes: constant(1400.0) },
        Limit { messages: Some(50), ..Limit::default() },
    );
    assert_eq!(
        (s.batch(START, 46), s.batch(START, 46), s.batch(START, 46)),
        (Some((1400, 46)), Some((1400, 4)), None)
    );
}

#[test]
fn stairs_hold_each_rate() {
    let rates_bps = vec![constant(1e6), constant(2e6)];
    let pattern = Pattern::Stairs { size_bytes: constant(1250.0), rates_bps, hold_s: constant(3.0) };
    let mut s = source(&pattern, Limit::default());
    let sent = send_all(&mut s);
    let half = START + Span::from_s(3);
    assert_eq!(sent.iter().filter(|m| m.due < half).count(), 300);
    assert_eq!(sent.iter().filter(|m| m.due >= half).count(), 600);
    assert_eq!(s.offered_bps(), Some(1.5e6));
    assert!(s.fits()[0].goodness_of_fit.distance < 1e-9);
}

#[test]
fn poisson_traffic_is_poisson_and_depends_only_on_seed_and_name() {
    let pattern =
        Pattern::Poisson { size_bytes: Variable::Uniform { a: 100.0, b: 200.0 }, rate_per_s: constant(1e3) };
    let mut s = source(&pattern, seconds(20));
    let sent = send_all(&mut s);
    assert!((19_500..20_500).contains(&sent.len()), "{}", sent.len());
    for LawFit { name, goodness_of_fit, .. } in s.fits() {
        assert!(goodness_of_fit.p_value.unwrap() > 0.001, "{name} {:?}", goodness_of_fit.p_value);
    }
    assert_eq!(send_all(&mut source(&pattern, seconds(20))), sent);
    let other = Source::new(&pattern, seconds(20), ANY, START, Seed::default(), "a-c");
    assert_ne!(send_all(&mut other.unwrap()), sent);
}

proptest::proptest! {
    /// The sender is sometimes late.
    #[test]
    fn on_time_is_equivalent_to_next_and_departed(
        period_us in 1u64..200,
        size in 1u32..70_000,
        skip in proptest::bool::ANY,
        late_us in proptest::collection::vec(proptest::option::weighted(0.2, 0u64..500), 0..80),
    ) {
        let (burst, period_s) = (burst(size.into(), 1.0), constant(period_us as f64 / 1e6));
        let pattern = match skip {
            true => Pattern::Burst { burst, period_s },
            false => Pattern::Cbr { burst, period_s },
        };
        let limit = Limit { time: Some(Span::from_us(25 * period_us)), ..Limit::default() };
        let (mut fast, mut plain) = (source(&pattern, limit), source(&pattern, limit));
        let mut now = START;
        for late in late_us {
            now += Span::from_us(late.unwrap_or(0));
            let step = plain.next(now);
            if let Step::Send(_) = step {
                plain.departed(now);
            }
            let other = fast.on_time(now).map(Step::Send).unwrap_or_else(|| {
                let step = fast.next(now);
                if let Step::Send(_) = step {
                    fast.departed(now);
                }
                step
            });
            assert_eq!(step, other);
            assert_eq!(plain.due_after(now), fast.due_after(now));
            if let Step::Wait(until) = step {
                now = until;
            }
        }
        let results = |s: &Source| {
            let fit = s.fits().remove(0);
            (s.sent(), s.sending_time(now), s.skipped_and_late(), fit.sent_mean, fit.goodness_of_fit)
        };
        assert_eq!(results(&plain), results(&fast));
    }
}

#[test]
fn unpaced_patterns_wait_only_for_their_start_and_obey_every_limit() {
    let full = Pattern::Full { size_bytes: constant(1400.0) };
    let mut s = source(&full, Limit { messages: Some(3), ..Limit::default() });
    assert_eq!(s.next(Instant::ZERO), Step::Wait(START));
    assert_eq!(send_all(&mut s).len(), 3);
    let mut s = source(&full, seconds(1));
    assert!(matches!(s.next(START), Step::Send(_)));
    assert_eq!(s.next(START + Span::from_s(1)), Step::Done);
    let request = Pattern::Request { request_bytes: constant(1.0), response_bytes: constant(1e9) };
    let Step::Send(m) = source(&request, seconds(1)).next(START) else { panic!("a message is due") };
    assert_eq!((m.size, m.response), (ANY.smallest, ANY.largest));
}

/// `ftp` begins without sessions and has a heavy tail, so that no short run has its mean rate.
#[test]
fn a_model_is_compared_with_the_bytes_that_were_due() {
    let model = Application::named("ftp").unwrap();
    let size_bytes = Variable::Constant(1_400.0);
    let pattern = Pattern::Application { model, variant: None, size_bytes, parameters: model.defaults(None) };
    let limit = Limit { time: Some(Span::from_s(10)), ..Limit::default() };
    let source = || Source::new(&pattern, limit, ANY, Instant::ZERO, Seed(1), "a-b").unwrap();
    let mut punctual = source();
    let mut now = Instant::ZERO;
    loop {
        match punctual.next(now) {
            Step::Send(_) => {}
            Step::Wait(until) => now = until,
            Step::Done => break,
        }
    }
    let (_, all) = punctual.sent();
    let mean_rate = all as f64 * 8.0 / 10.0 / punctual.offered_bps().unwrap() - 1.0;
    assert!(mean_rate.abs() > 0.2, "a false alarm: {mean_rate}");
    assert_eq!(punctual.due_error(), Some(0.0));
    // A sender that stands still after the first message of its first item.
    let mut late = source();
    assert!(matches!(late.next(Instant::ZERO), Step::Send(_)));
    for _ in 0..2 {
        assert_eq!(late.next(Instant::ZERO + Span::from_s(20)), Step::Done);
    }
    let (_, sent) = late.sent();
    let error = late.due_error().unwrap();
    assert!((error - (sent as f64 / all as f64 - 1.0)).abs() < 1e-9, "{error}: {sent} of {all}");
}
