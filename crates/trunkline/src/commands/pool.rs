//! Runs side by side: a pool of threads that share out numbered runs, and a progress bar.

use std::io::{self, IsTerminal};
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};
use trunkline_run::Stop;

/// Makes `runs` runs on `threads` threads, and gives what each gave in its own place: neither the number of threads nor
/// their speed changes anything. Nothing where `one` gave nothing, or where the run was not begun because of `stop`.
/// `word` stands before the progress bar.
pub fn share<T: Send>(
    word: &str,
    runs: usize,
    threads: usize,
    stop: &Stop,
    one: impl Fn(usize) -> Option<T> + Sync,
) -> Vec<Option<T>> {
    let bar = bar(word, runs);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut mine = Vec::new();
        while !stop.asked() {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= runs {
                break;
            }
            mine.extend(one(run).map(|result| (run, result)));
            bar.inc(1);
        }
        mine
    };
    let mut results: Vec<Option<T>> = (0..runs).map(|_| None).collect();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.min(runs)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let mine = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            mine.into_iter().for_each(|(run, result)| results[run] = Some(result));
        }
    });
    bar.finish_and_clear();
    results
}

/// As many threads as asked for, else one for each processor.
pub fn threads(asked: Option<u16>) -> usize {
    asked.map_or_else(|| thread::available_parallelism().map_or(1, NonZero::get), usize::from)
}

/// A progress bar on a terminal, nothing on a pipe.
fn bar(word: &str, runs: usize) -> ProgressBar {
    let bar = if io::stderr().is_terminal() { ProgressBar::new(runs as u64) } else { ProgressBar::hidden() };
    match ProgressStyle::with_template(&format!("{word} [{{bar:40}}] {{pos}} of {{len}} runs, {{eta}} left"))
    {
        Ok(style) => bar.with_style(style.progress_chars("━╸ ")),
        Err(_) => bar,
    }
}
