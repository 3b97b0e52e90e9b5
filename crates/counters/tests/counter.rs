//! Growth is correct for any traffic, polling, cache, restart, wrap and loss.

use std::time::Duration;

use crate::support::agent::{AgentConfig, Simulation, refresh_period, simulate};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use trunkline_counters::counter::column::Update;
use trunkline_counters::counter::{
    Answer, Column, ColumnTracker, Event, OutOfOrder, RawValue, RefreshPeriod, Response, TableTracker,
    Timestamp, ValueKind,
};

fn agent_configs() -> impl Strategy<Value = AgentConfig> {
    let chances = [0u64, 0, 0, 30, 100];
    let chance = move || prop::sample::select(chances.to_vec());
    let times = (
        prop::sample::select(vec![500u64, 1_000, 5_000, 15_000]),
        prop::sample::select(vec![0u64, 1_000, 3_300]),
    );
    let first = (any::<u64>(), times, any::<bool>(), chance(), chance());
    (first, chance(), chance(), chance(), chance(), chance()).prop_map(
        |(
            (seed, (period_ms, refresh_ms), on_demand, restart, discontinuity),
            unannounced_reset,
            lost,
            absent,
            late,
            reset,
        )| AgentConfig {
            seed,
            polls: 120,
            period_ms,
            refresh_ms,
            on_demand,
            restart,
            reset: reset * 5,
            discontinuity,
            unannounced_reset,
            lost,
            absent,
            late,
            no_wrap: false,
        },
    )
}

/// Returns the updates of every column for every response.
fn steps(simulation: &Simulation, refresh: RefreshPeriod, period_ms: u64) -> Vec<Vec<Update>> {
    let mut table_tracker = TableTracker::new(Duration::from_millis(period_ms), refresh);
    let mut trackers = vec![ColumnTracker::default(); simulation.columns.len()];
    let step = |response: &Response| {
        let status = table_tracker.update(&simulation.columns, response).expect("in order");
        let values = response.answer.as_ref().map_or(vec![None; trackers.len()], |a| a.values.clone());
        let one = |(at, tracker): (usize, &mut ColumnTracker)| {
            let discontinuity = simulation.columns[at].discontinuity.and_then(|m| values[m]);
            tracker.update(&simulation.columns[at], &status, values[at], discontinuity)
        };
        trackers.iter_mut().enumerate().map(one).collect()
    };
    simulation.responses.iter().map(step).collect()
}

/// Returns the response that arrived at a given time.
fn response(simulation: &Simulation, latest: Timestamp) -> usize {
    let has_answer_at = |r: &Response| r.answer.as_ref().is_some_and(|a| a.answered_at == latest);
    simulation.responses.iter().position(has_answer_at).expect("growth ends with an answer")
}

fn check(config: &AgentConfig, refresh: RefreshPeriod) -> Result<(), TestCaseError> {
    let simulation = simulate(config);
    let steps = steps(&simulation, refresh, config.period_ms);
    for column in 0..3 {
        for step in &steps {
            let step = &step[column];
            let Some(growth) = step.growth else { continue };
            let ends = [growth.from, growth.to].map(|window| response(&simulation, window.latest));
            let [first, last] = ends.map(|at| simulation.sampled_at[at].expect("it was answered"));
            prop_assert_eq!(
                simulation.epochs[ends[0]][column],
                simulation.epochs[ends[1]][column],
                "growth over a reset"
            );
            // The growth equals the true count.
            let truth = simulation.count(column, last) - simulation.count(column, first);
            prop_assert_eq!(u128::from(growth.amount), truth, "column {} from {} to {}", column, first, last);
            // The windows contain the sampling times, so the bounds contain the rate.
            for (window, at) in [(growth.from, first), (growth.to, last)] {
                prop_assert!(window.earliest.0 <= at && at <= window.latest.0, "{} not in {:?}", at, window);
            }
            if last > first {
                let rate = truth as f64 * 1e9 / (last - first) as f64;
                prop_assert!(growth.min_rate() <= rate * 1.000_001, "{} <= {}", growth.min_rate(), rate);
                prop_assert!(growth.max_rate() >= rate * 0.999_999, "{} >= {}", growth.max_rate(), rate);
            }
            // No rate exceeds the true peak.
            prop_assert!(growth.min_rate() <= simulation.peak(column) + 1.0);
        }
    }
    Ok(())
}

/// A few cases, always the same, or as many random ones as `PROPTEST_CASES` requests.
fn config() -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        default
    } else {
        ProptestConfig { cases: 48, rng_seed: RngSeed::Fixed(1996), ..default }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn growth_bounds_hold_with_a_configured_refresh_period(config in agent_configs()) {
        check(&config, RefreshPeriod::Configured(refresh_period(&config)))?;
    }

    #[test]
    fn growth_bounds_hold_with_a_learned_refresh_period(config in agent_configs()) {
        check(&config, RefreshPeriod::default())?;
    }

    #[test]
    fn growth_is_contiguous_without_counter_events(seed in any::<u64>(), refresh_ms in prop::sample::select(vec![0u64, 1_000, 3_300]),
                                                  period_ms in prop::sample::select(vec![500u64, 10_000]), lost in 0u64..200) {
        let config = AgentConfig { seed, polls: 100, period_ms, refresh_ms, on_demand: seed % 2 == 0, restart: 50, reset: 0,
                          discontinuity: 0, unannounced_reset: 0, lost, absent: 0, late: 50, no_wrap: true };
        let simulation = simulate(&config);
        let steps = steps(&simulation, RefreshPeriod::Configured(refresh_period(&config)), period_ms);
        for column in 0..2 {
            let growths: Vec<_> = steps.iter().filter_map(|s| s[column].growth).collect();
            for pair in growths.windows(2) {
                prop_assert_eq!(pair[0].to, pair[1].from, "restarts and losses leave no gap in 64-bit counters");
            }
            let answered: Vec<i64> = simulation.sampled_at.iter().flatten().copied().collect();
            let sum: u128 = growths.iter().map(|g| u128::from(g.amount)).sum();
            // Except for repeated answers at the end.
            let end = growths.last().map_or(answered[0], |g| simulation.sampled_at[response(&simulation, g.to.latest)].unwrap());
            prop_assert_eq!(sum, simulation.count(column, end) - simulation.count(column, answered[0]));
            prop_assert!(simulation.count(column, *answered.last().unwrap()) == simulation.count(column, end) || refresh_ms > 0);
        }
    }
}

#[test]
fn a_cache_that_discontinuities_refresh_early_teaches_no_period() {
    let seed = 17_934_251_345_286_175_326;
    let config = AgentConfig {
        seed,
        polls: 120,
        period_ms: 500,
        refresh_ms: 3_300,
        on_demand: false,
        restart: 0,
        reset: 0,
        discontinuity: 30,
        unannounced_reset: 0,
        lost: 0,
        absent: 0,
        late: 30,
        no_wrap: false,
    };
    check(&config, RefreshPeriod::default()).expect("the bounds hold");
}

// Single cases

const S: i64 = 1_000_000_000;

/// Returns growth and events of polls one second apart; readings are uptime in hundredths of a second and value.
fn growth_of(
    column: Column,
    readings: &[(i64, Option<(u32, u64)>)],
) -> Vec<(Option<u64>, Vec<&'static str>)> {
    let columns = [column, Column::new(ValueKind::Gauge)];
    let mut table_tracker =
        TableTracker::new(Duration::from_secs(1), RefreshPeriod::Configured(Duration::ZERO));
    let mut tracker = ColumnTracker::default();
    let step = |&(at, reading): &(i64, Option<(u32, u64)>)| {
        let answer = reading.map(|(uptime, value)| Answer {
            answered_at: Timestamp(at * S + 1_000),
            uptime: Some(uptime),
            values: vec![Some(RawValue(value)), None],
        });
        let requested_at = Timestamp(at * S);
        let response = Response { due_at: requested_at, requested_at, answer };
        let status = table_tracker.update(&columns, &response).unwrap();
        let step = tracker.update(&columns[0], &status, reading.map(|(_, value)| RawValue(value)), None);
        (step.growth.map(|g| g.amount), step.events.iter().map(Event::name).collect())
    };
    readings.iter().map(step).collect()
}

const GIGABIT: Column =
    Column { kind: ValueKind::Counter32, ceiling: Some(125_000_000), discontinuity: None };

#[test]
fn only_an_unambiguous_wrap_is_counted() {
    let near = (1u64 << 32) - 100;
    let steps = growth_of(GIGABIT, &[(0, Some((0, near))), (1, Some((100, 50))), (61, Some((6_100, 60)))]);
    assert_eq!(steps[1], (Some(150), vec!["wrap"]));
    assert_eq!(steps[2], (None, vec!["ambiguous", "missed"]), "a minute at a gigabit may be a wrap and ten");
    let unknown = Column { ceiling: None, ..GIGABIT };
    let steps = growth_of(unknown, &[(0, Some((0, near))), (1, Some((100, 50)))]);
    assert_eq!(steps[1], (None, vec!["ambiguous"]));
}

#[test]
fn a_decreased_counter_is_a_reset_not_a_wrap() {
    let steps = growth_of(GIGABIT, &[(0, Some((500, 2_000_000_000))), (1, Some((600, 10)))]);
    assert_eq!(steps[1], (None, vec!["reset-unsaid"]), "2.3 GB in a second is more than the line carries");
    let wide = Column { kind: ValueKind::Counter64, ..GIGABIT };
    let steps =
        growth_of(wide.clone(), &[(0, Some((500, 2_000))), (1, Some((600, 10))), (2, Some((700, 30)))]);
    assert_eq!(steps[1], (None, vec!["reset-unsaid"]));
    assert_eq!(steps[2], (Some(20), vec![]));
    let steps = growth_of(wide, &[(0, Some((500, 2_000))), (1, Some((20, 10)))]);
    assert_eq!(steps[1], (None, vec!["reset-restart"]));
}

#[test]
fn a_restart_that_keeps_its_counters_loses_no_growth() {
    let wide = Column { kind: ValueKind::Counter64, ..GIGABIT };
    let steps =
        growth_of(wide, &[(0, Some((90_000, 2_000))), (1, Some((30, 2_500))), (2, Some((130, 2_600)))]);
    assert_eq!(steps[1], (Some(500), vec!["restart"]));
    assert_eq!(steps[2], (Some(100), vec![]));
}

#[test]
fn the_wrap_of_the_uptime_is_no_restart() {
    let wide = Column { kind: ValueKind::Counter64, ..GIGABIT };
    let steps = growth_of(wide, &[(0, Some((u32::MAX - 50, 5))), (1, Some((49, 6)))]);
    assert_eq!(steps[1], (Some(1), vec![]));
}

/// The agent restarted within the second in which its uptime would have wrapped.
#[test]
fn an_uptime_wrap_with_an_impossible_counter_change_is_a_restart() {
    let end = |values: [u64; 2], columns: [Column; 2]| {
        let mut table_tracker =
            TableTracker::new(Duration::from_secs(1), RefreshPeriod::Configured(Duration::ZERO));
        let mut tracker = ColumnTracker::default();
        let mut step = |at: i64, uptime: u32, values: [u64; 2]| {
            let values: Vec<Option<RawValue>> = values.into_iter().map(|v| Some(RawValue(v))).collect();
            let requested_at = Timestamp(at * S);
            let answer = Answer {
                answered_at: Timestamp(at * S + 1_000),
                uptime: Some(uptime),
                values: values.clone(),
            };
            let response = Response { due_at: requested_at, requested_at, answer: Some(answer) };
            let status = table_tracker.update(&columns, &response).unwrap();
            let step = tracker.update(&columns[0], &status, values[0], None);
            (step.growth.map(|g| g.amount), step.events.iter().map(Event::name).collect::<Vec<_>>())
        };
        step(0, u32::MAX - 50, [(1 << 32) - 100, 5_000_000]);
        step(1, 49, values)
    };
    let wide = Column { kind: ValueKind::Counter64, ..GIGABIT };
    assert_eq!(end([50, 5_000_001], [GIGABIT, GIGABIT]), (Some(150), vec!["wrap"]));
    assert_eq!(end([50, 0], [GIGABIT, wide]), (None, vec!["reset-restart"]), "a 64-bit counter decreased");
    assert_eq!(end([50, 0], [GIGABIT, GIGABIT]), (None, vec!["reset-restart"]), "4.29 GB in a second");
}

#[test]
fn an_object_missing_after_a_reset_has_no_growth_across_it() {
    let columns = [GIGABIT, Column { kind: ValueKind::Counter64, ..GIGABIT }];
    let mut table_tracker =
        TableTracker::new(Duration::from_secs(1), RefreshPeriod::Configured(Duration::ZERO));
    let mut tracker = ColumnTracker::default();
    let mut step = |at: i64, uptime: u32, values: [Option<u64>; 2]| {
        let values: Vec<Option<RawValue>> = values.into_iter().map(|v| v.map(RawValue)).collect();
        let requested_at = Timestamp(at * S);
        let answer =
            Answer { answered_at: Timestamp(at * S + 1_000), uptime: Some(uptime), values: values.clone() };
        let response = Response { due_at: requested_at, requested_at, answer: Some(answer) };
        let status = table_tracker.update(&columns, &response).unwrap();
        tracker.update(&columns[0], &status, values[0], None).growth.map(|g| g.amount)
    };
    assert_eq!(step(0, 90_000, [Some((1 << 32) - 100), Some(7_000)]), None);
    assert_eq!(step(1, 10, [None, Some(3)]), None);
    assert_eq!(step(2, 110, [Some(50), Some(4)]), None, "the apparent wrap spans the reset");
    assert_eq!(step(3, 210, [Some(60), Some(5)]), Some(10));
}

#[test]
fn growth_over_a_gap_is_known_and_the_gap_is_reported() {
    let wide = Column { kind: ValueKind::Counter64, ..GIGABIT };
    let steps = growth_of(wide, &[(0, Some((0, 5))), (1, None), (2, None), (3, Some((300, 50)))]);
    assert_eq!(steps[1], (None, vec!["silent"]));
    assert_eq!(steps[3], (Some(45), vec![]));
}

/// net-snmp 5.9.3 refreshes its counters every three seconds, however often it is polled.
#[test]
fn a_learned_refresh_period_prevents_false_zero_and_double_rates() {
    let columns = [Column::new(ValueKind::Counter64)];
    let mut table_tracker = TableTracker::new(Duration::from_secs(1), RefreshPeriod::default());
    let mut tracker = ColumnTracker::default();
    assert_eq!(table_tracker.refresh(), Duration::from_secs(5));
    let (mut growths, mut stale) = (Vec::new(), 0);
    for at in 0..60i64 {
        let requested_at = Timestamp(at * S);
        let value = RawValue((at / 3 * 3) as u64 * 1_000);
        let answer = Answer { answered_at: Timestamp(at * S + 1), uptime: None, values: vec![Some(value)] };
        let status = table_tracker
            .update(&columns, &Response { due_at: requested_at, requested_at, answer: Some(answer) })
            .unwrap();
        let step = tracker.update(&columns[0], &status, Some(value), None);
        growths.extend(step.growth);
        stale += usize::from(step.events.contains(Event::Stale));
    }
    assert_eq!(growths.len(), 19);
    assert!(
        growths.iter().all(|g| g.amount == 3_000 && g.min_rate() <= 1_000.0 && g.max_rate() >= 1_000.0),
        "{growths:?}"
    );
    assert_eq!(stale, 38, "every answer with unchanged values, from the first change on");
    let learned = table_tracker.refresh();
    assert!(Duration::from_secs(3) <= learned && learned < Duration::from_millis(4_100), "{learned:?}");
}

#[test]
fn an_idle_table_is_not_stale() {
    let columns = [Column::new(ValueKind::Counter64)];
    let mut table_tracker = TableTracker::new(Duration::from_secs(10), RefreshPeriod::default());
    let mut tracker = ColumnTracker::default();
    for at in 0..20i64 {
        let requested_at = Timestamp(at * 10 * S);
        let values = vec![Some(RawValue(77))];
        let answer =
            Answer { answered_at: Timestamp(requested_at.0 + 1_000), uptime: None, values: values.clone() };
        let status = table_tracker
            .update(&columns, &Response { due_at: requested_at, requested_at, answer: Some(answer) })
            .unwrap();
        let step = tracker.update(&columns[0], &status, values[0], None);
        assert!(step.events.is_empty());
        assert_eq!(step.growth.map(|g| g.amount), (at > 0).then_some(0));
    }
}

#[test]
fn responses_out_of_order_are_refused() {
    let columns = [Column::new(ValueKind::Counter64)];
    let mut table_tracker = TableTracker::new(Duration::from_secs(1), RefreshPeriod::default());
    let poll = |requested_at: i64, answered: i64| Response {
        due_at: Timestamp(requested_at),
        requested_at: Timestamp(requested_at),
        answer: Some(Answer {
            answered_at: Timestamp(answered),
            uptime: None,
            values: vec![Some(RawValue(1))],
        }),
    };
    table_tracker.update(&columns, &poll(10, 20)).unwrap();
    for (requested_at, answered) in [(10, 30), (15, 30), (20, 19), (5, 6), (20, 20)] {
        assert_eq!(
            table_tracker.update(&columns, &poll(requested_at, answered)),
            Err(OutOfOrder),
            "{requested_at} {answered}"
        );
    }
    table_tracker.update(&columns, &poll(20, 21)).unwrap();
}
