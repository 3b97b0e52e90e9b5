//! Every law of every model: what leaves and what arrives follows it.

use std::collections::VecDeque;

use trunkline_traffic::application::{Application, MODELS, Outcome, ReceivedItems, reference};
use trunkline_traffic::source::{Bounds, LawFit, Limit, Step};
use trunkline_traffic::{Law, Pattern, Source, Variable};
use trunkline_units::{Instant, Seed, Span};

const BOUNDS: Bounds = Bounds { smallest: 32, largest: 1 << 30 };
/// Values of each law, fewer than a source retains exactly.
const VALUES: u64 = 60_000;
/// More messages than any model needs for that many values.
const MAX_MESSAGES: u64 = 80_000_000;

/// What left and what arrived of one source.
struct Traffic {
    sent: Vec<LawFit>,
    received: Vec<LawFit>,
    differing: u64,
}

fn pattern(model: Application, variant: Option<&str>) -> Pattern {
    Pattern::Application {
        model,
        variant: variant.map(str::to_owned),
        size_bytes: Variable::Constant(65_536.0),
        parameters: model.defaults(variant),
    }
}

/// Runs a source whose sender is never late, until every law that is drawn has `values` values. Messages and responses take a
/// constant time.
fn run(sent: &Pattern, expected: &Pattern, seed: u64, values: u64) -> Traffic {
    let delay = Span::from_ms(10);
    let (seed, start) = (Seed(seed), Instant::ZERO + Span::from_s(1));
    let mut source = Source::new(sent, Limit::default(), BOUNDS, start, seed, "a-b").unwrap();
    let mut receiver = ReceivedItems::new(expected, BOUNDS, seed, "a-b");
    let mut pending: VecDeque<Outcome> = VecDeque::new();
    let (mut now, mut requests) = (Instant::ZERO, 0);
    for sequence in 0..MAX_MESSAGES {
        let message = loop {
            match source.next(now) {
                Step::Send(message) => break Some(message),
                Step::Done => break None,
                Step::Wait(until) => match pending.pop_front() {
                    Some(outcome) => {
                        now = now.max(outcome.at);
                        source.feedback(&outcome);
                    }
                    None => now = until,
                },
            }
        };
        let Some(message) = message else { break };
        if message.first {
            source.departed(now);
        }
        if message.response > 0 {
            let (due, at, bytes) = (message.due, now + delay, Some(message.response));
            pending.push_back(Outcome { request: requests, due, sent_at: now, at, bytes });
            requests += 1;
        }
        if let Some(receiver) = &mut receiver {
            receiver.record(sequence, message.size, now + delay);
        }
        if sequence % 65_536 == 0 && enough(&source.fits(), values) {
            break;
        }
    }
    let received = receiver.as_ref().map(ReceivedItems::fits).unwrap_or_default();
    Traffic { sent: source.fits(), received, differing: receiver.map_or(0, |r| r.differing()) }
}

fn enough(fits: &[LawFit], values: u64) -> bool {
    !fits.is_empty() && fits.iter().all(|fit| fit.goodness_of_fit.samples >= values)
}

fn variants() -> impl Iterator<Item = (Application, Option<&'static str>)> {
    MODELS.iter().flat_map(|definition| {
        let model = Application::named(definition.name).unwrap();
        let names =
            definition.choice.map_or(Vec::new(), |c| c.variants.iter().map(|v| Some(v.name)).collect());
        let names = if names.is_empty() { vec![None] } else { names };
        names.into_iter().map(move |name| (model, name))
    })
}

/// Checks that the values follow the law at a level that 1 in 10,000 correct ones miss, and their mean within `tolerance`.
fn follows(fit: &LawFit, tolerance: f64) -> bool {
    let p = fit.goodness_of_fit.p_value;
    let mean = fit.requested_mean.expect("a law with a mean");
    let fits = p.map_or(fit.goodness_of_fit.distance < 1e-9, |p| p > 1e-4);
    fits && (fit.sent_mean / mean - 1.0).abs() < tolerance
}

#[test]
fn every_law_of_every_model_is_followed() {
    for (model, variant) in variants() {
        let pattern = pattern(model, variant);
        let traffic = run(&pattern, &pattern, 1, VALUES);
        let name = format!("{} {}", model.name(), variant.unwrap_or_default());
        assert!(enough(&traffic.sent, VALUES), "{name}: too few values: {:?}", traffic.sent);
        assert_eq!(traffic.differing, 0, "{name}");
        for fit in traffic.sent.iter().chain(&traffic.received) {
            assert!(follows(fit, 0.03), "{name} {} {}: {fit:?}", fit.name, fit.law);
        }
        let is_visible = |fit: &&LawFit| matches!(fit.unit, "us" | "bytes");
        if model.definition().max_outstanding == 0 {
            let visible = traffic.sent.iter().filter(is_visible).map(|fit| fit.name);
            assert!(visible.eq(traffic.received.iter().map(|fit| fit.name)), "{name}");
        }
    }
}

/// A sender whose law is wrong by 5 % is noticed: by the law at the sender, and by the receiver, which knows the right one.
#[test]
fn a_law_that_is_wrong_by_5_percent_is_detected() {
    let mut checked = 0;
    for (model, variant) in variants() {
        let right = pattern(model, variant);
        for parameter in model.definition().parameters {
            let Some((wrong, law)) = wrong_by_5_percent(&right, parameter.name) else { continue };
            let traffic = run(&wrong, &right, 1, VALUES);
            let of = |fits: &[LawFit]| fits.iter().find(|fit| fit.name == parameter.name).cloned();
            let Some(sent) = of(&traffic.sent) else { continue };
            let scale = if sent.unit == "us" { 1e6 } else { 1.0 };
            let difference = |&(x, _, share): &(f64, f64, f64)| (law.cdf(x / scale) - share).abs();
            let distance = sent.goodness_of_fit.curve.iter().map(difference).fold(0.0, f64::max);
            // 1.63 / sqrt(60,000) is the critical distance at 1 %.
            let name = format!("{} {}", model.name(), parameter.name);
            assert!(distance > 0.0067, "{name}: {distance}");
            if let Some(received) = of(&traffic.received) {
                assert_eq!(received.goodness_of_fit.follows(), Some(false), "{name}: {received:?}");
            }
            checked += 1;
        }
    }
    assert!(checked > 1);
}

/// Returns the pattern with the scale of a random parameter 5 % larger, and the law of the parameter before that.
fn wrong_by_5_percent(pattern: &Pattern, name: &str) -> Option<(Pattern, Law)> {
    let mut wrong = pattern.clone();
    let Pattern::Application { parameters, model, .. } = &mut wrong else { return None };
    let (_, value) = parameters.iter_mut().find(|(parameter, _)| parameter == name)?;
    let floor = model.definition().parameter(name)?.unit.floor();
    let law = Law::new(value.clone(), floor).unwrap();
    stretch(value).then_some((wrong, law))
}

fn stretch(value: &mut Variable) -> bool {
    match value {
        Variable::Constant(_) | Variable::Empirical { .. } => return false,
        Variable::Uniform { a, b } => (*a, *b) = (*a * 1.05, *b * 1.05),
        Variable::Exponential { mean } | Variable::Normal { mean, .. } => *mean *= 1.05,
        Variable::Lognormal { mean, sd } => (*mean, *sd) = (*mean * 1.05, *sd * 1.05),
        Variable::Pareto { shape, .. } => *shape *= 1.05,
        Variable::Weibull { scale, .. } => *scale *= 1.05,
        Variable::Truncated { of, .. } | Variable::Clamped { of, .. } => return stretch(of),
        Variable::Mixture { first, second, .. } => return stretch(first) && stretch(second),
    }
    true
}

/// As CONTRIBUTING.md says: `BLESS=1 cargo test -p trunkline-traffic models_page` rewrites the tables of the page.
#[test]
fn the_models_page_has_the_tables_of_the_models() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/traffic-models.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let mark = "<!-- The rest is printed from the tables of the models. -->\n";
    let (text, tables) = page.split_once(mark).expect("the mark before the tables");
    let expected = format!("\n{}", reference::tables());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, format!("{text}{mark}{expected}")).expect("the page can be written");
    } else {
        assert!(tables == expected, "run this test with BLESS=1 and read the difference of {path}");
    }
}
