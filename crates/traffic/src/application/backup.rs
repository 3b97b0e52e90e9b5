//! Backups: files one after the other, with pauses.

use trunkline_units::Instant;

use super::definition::values::{exponential, lognormal, mixture, pareto, truncated};
use super::{Definition, Draws, Interval, Item, Model, Next, Parameter, QuantityId, Since, Unit};
use crate::Variable;

/// 512 MiB, where the tail begins, and the longest item, just below 4 GiB.
const TAIL: f64 = 536_870_912.0;
const LONGEST: f64 = 4_294_967_040.0;

/// The sizes of files by count.
fn file_size() -> Variable {
    let body = truncated(lognormal(9.48, 2.46), 32.0, TAIL);
    mixture(0.99994, body, truncated(pareto(0.91, TAIL), TAIL, LONGEST))
}

pub(super) static BACKUP: Definition = Definition {
    name: "backup",
    summary: "Files of a file system one after the other: sizes with a lognormal body and a Pareto tail, pauses between their begins.",
    choice: None,
    parameters: &[
        Parameter::new(
            "item",
            "a file",
            Unit::Bytes,
            file_size,
            "Agrawal, Arpaci-Dusseau and Arpaci-Dusseau 2009, Generating realistic Impressions, FAST, table 2; the ends are a choice. Roughly lognormal too in Downey 2001, MASCOTS",
        )
        .with_mean(),
        Parameter::new(
            "pause",
            "time from the begin of a file to that of the next",
            Unit::Seconds,
            || exponential(0.1),
            "a choice",
        )
        .with_mean(),
    ],
    max_outstanding: 0,
    needs_stream: false,
    start: |start, draws| Box::new(Backup::new(start, draws)),
};

#[derive(Debug)]
struct Backup {
    item: QuantityId,
    pause: QuantityId,
    due: Instant,
    since: Option<Interval>,
}

impl Backup {
    fn new(start: Instant, draws: &Draws) -> Backup {
        Backup { item: draws.id("item"), pause: draws.id("pause"), due: start, since: None }
    }
}

impl Model for Backup {
    fn next(&mut self, draws: &mut Draws) -> Next {
        let mut item = Item::new(self.due, draws.size(self.item));
        if let Some(pause) = self.since {
            item = item.after(pause, Since::Departure(0));
        }
        let pause = draws.interval(self.pause);
        self.due += pause.span();
        self.since = Some(pause);
        Next::Item(item)
    }

    fn offered_bps(&self, draws: &Draws) -> Option<f64> {
        Some(draws.mean(self.item)? * 8.0 / draws.mean(self.pause)?)
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::super::Application;
    use super::super::definition::values::constant;
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_files_and_the_tail_exists() {
        let start = |parameters: &[(String, Variable)]| {
            let application = Application::named("backup").unwrap();
            let draws = Draws::new(application, None, parameters, Seed(4), "a-b").unwrap();
            (Backup::new(Instant::ZERO, &draws), draws)
        };
        let (mut model, mut draws) = start(&[]);
        // Of a lognormal variable below TAIL and of a Pareto variable from TAIL to LONGEST.
        let normal = |z: f64| 0.5 * libm::erfc(-z / std::f64::consts::SQRT_2);
        let z = (libm::log(TAIL) - 9.48) / 2.46;
        let body = libm::exp(9.48 + 2.46 * 2.46 / 2.0) * normal(z - 2.46) / normal(z);
        let (ratio, shape): (f64, f64) = (LONGEST / TAIL, 0.91);
        let tail =
            TAIL * shape / (1.0 - shape) * (ratio.powf(1.0 - shape) - 1.0) / (1.0 - ratio.powf(-shape));
        let (mean, expected) = (draws.mean(model.item).unwrap(), 0.99994 * body + 0.00006 * tail);
        // The body is from 32 B on.
        assert!((mean / expected - 1.0).abs() < 0.01, "{mean} for {expected}");
        let n = 200_000;
        let (mut tail, mut longest) = (0, 0);
        for _ in 0..n {
            let Next::Item(item) = model.next(&mut draws) else { panic!("an item") };
            tail += u32::from(f64::from(item.size.bytes()) >= TAIL);
            longest = longest.max(item.size.bytes());
        }
        // 12 are expected.
        assert!((3..27).contains(&tail) && f64::from(longest) <= LONGEST, "{tail} {longest}");
        let (mut model, mut draws) =
            start(&[("item".to_owned(), exponential(50e3)), ("pause".to_owned(), constant(0.2))]);
        let mut bytes = 0.0;
        for k in 0..n {
            let Next::Item(item) = model.next(&mut draws) else { panic!("an item") };
            assert_eq!(item.due, Instant::from_ns(200_000_000 * k));
            bytes += f64::from(item.size.bytes());
        }
        let (rate, offered) = (bytes * 8.0 / (0.2 * n as f64), model.offered_bps(&draws).unwrap());
        assert!((rate / offered - 1.0).abs() < 0.01, "{rate} for {offered}");
    }
}
