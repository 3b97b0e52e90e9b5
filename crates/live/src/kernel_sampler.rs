//! Reads counters of the kernel over time, for the statement `measure`.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use trunkline_experiment::plan::Measure;
use trunkline_io::Clock;
use trunkline_io::kernel_counters::{self, Metric};
use trunkline_record::schema::Measured;
use trunkline_units::{Instant, Span};

use crate::wire::{AgentMessage, AgentWriter};

/// A shorter interval would disturb what is measured.
const SHORTEST: Span = Span::from_ms(10);
/// Time between reports to the controller.
const REPORT_INTERVAL: Span = Span::from_ms(500);
/// Maximum number of rows in the record.
const MAX_ROWS: usize = 1_200;

/// The thread of a measurement. Its last report is sent when it is finished.
pub(crate) struct KernelSampler {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl KernelSampler {
    /// Starts to read.
    pub fn start(measure: Measure, clock: Clock, writer: AgentWriter) -> std::io::Result<KernelSampler> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("measure".into())
            .spawn(move || sample(&measure, clock, &writer, &stopped))?;
        Ok(KernelSampler { stop, thread: Some(thread) })
    }

    /// Ends the measurement.
    pub fn finish(mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads what is measured.
fn read(measure: &Measure) -> Vec<Metric> {
    let mut metrics = Vec::new();
    if measure.interface {
        metrics.extend(kernel_counters::interfaces());
    }
    if measure.tcp {
        metrics.extend(kernel_counters::protocols());
    }
    if measure.kernel {
        metrics.extend(kernel_counters::kernel());
    }
    metrics
}

fn sample(measure: &Measure, clock: Clock, writer: &AgentWriter, stopped: &Receiver<()>) {
    let interval = measure.every.max(SHORTEST);
    let start = clock.now();
    let end = measure.duration.map(|duration| start + duration);
    let names: Vec<String> = read(measure).into_iter().map(|(name, _)| name).collect();
    let mut last = vec![0.0; names.len()];
    let mut rows = Vec::new();
    let (mut next, mut reported_at) = (start, start);
    loop {
        let now = clock.now();
        if end.is_some_and(|end| now > end) {
            break;
        }
        if now >= next {
            // A metric that has disappeared, such as an interface, keeps its last value.
            let metrics = read(measure);
            for (name, value) in names.iter().zip(&mut last) {
                let found = metrics.iter().find(|(known, _)| known == name);
                *value = found.map_or(*value, |(_, read)| *read);
            }
            rows.push((now.since(Instant::ZERO).as_s(), last.clone()));
            // Missed readings are not made up for.
            next = (next + interval).max(now);
        }
        if now.since(reported_at) >= REPORT_INTERVAL {
            reported_at = now;
            let rows = std::mem::take(&mut rows);
            writer.send(&AgentMessage::Measured(Measured { names: names.clone(), rows }));
        }
        let wait = next.max(now).since(now);
        if stopped.recv_timeout(wait.into()) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    writer.send(&AgentMessage::Measured(Measured { names, rows }));
}

/// The rows of a host that the controller has received.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    measured: Measured,
    /// Of so many rows one is kept; less one.
    skip: usize,
    received: usize,
}

impl Collected {
    /// Adds rows; drops every other when there are too many.
    pub fn add(&mut self, report: Measured) {
        if self.measured.names.is_empty() {
            self.measured.names = report.names;
        }
        let width = self.measured.names.len();
        for row in report.rows.into_iter().filter(|(_, values)| values.len() == width) {
            if self.received.is_multiple_of(self.skip + 1) {
                self.measured.rows.push(row);
            }
            self.received += 1;
            if self.measured.rows.len() > MAX_ROWS {
                let mut number = 0;
                self.measured.rows.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
                self.skip = 2 * self.skip + 1;
            }
        }
    }

    /// Returns the rows, if there are any.
    pub fn measured(&self) -> Option<Measured> {
        (!self.measured.rows.is_empty()).then(|| self.measured.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_thinned_evenly_and_malformed_ones_dropped() {
        let mut collected = Collected::default();
        assert_eq!(collected.measured(), None);
        for number in 0..20_000 {
            let rows = vec![(f64::from(number), vec![1.0, 2.0]), (0.5, vec![1.0])];
            collected.add(Measured { names: vec!["a".into(), "b".into()], rows });
        }
        let measured = collected.measured().unwrap();
        assert!((MAX_ROWS / 2..=MAX_ROWS).contains(&measured.rows.len()), "{}", measured.rows.len());
        let step = measured.rows[1].0 - measured.rows[0].0;
        assert!(measured.rows.windows(2).all(|pair| pair[1].0 - pair[0].0 == step), "every {step}");
        assert!(measured.rows.last().unwrap().0 > 19_900.0);
    }
}
