//! The memory that models need, by an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use trunkline_traffic::application::Application;
use trunkline_traffic::source::{Bounds, Limit, Step};
use trunkline_traffic::{Pattern, Source, Variable};
use trunkline_units::{Instant, Seed};

/// Counts the bytes that are allocated, and their maximum.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are passed on to the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let allocated = ALLOCATED.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(allocated, Relaxed);
        // SAFETY: as this function is called.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as this function is called.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the estimate of a pattern, and the maximum that its source needs for so many messages.
fn measure(model: &str, set: &[(&str, f64)], messages: u64) -> (u64, u64) {
    let model = Application::named(model).unwrap();
    let mut parameters = model.defaults(None);
    for (name, value) in set {
        parameters.iter_mut().find(|(other, _)| other == name).unwrap().1 = Variable::Constant(*value);
    }
    let size_bytes = Variable::Constant(1_400.0);
    let pattern = Pattern::Application { model, variant: None, size_bytes, parameters };
    let before = ALLOCATED.load(Relaxed);
    PEAK.store(before, Relaxed);
    let limit = Limit { messages: Some(messages), ..Limit::default() };
    let bounds = Bounds::new(32, 65_507);
    let mut source = Source::new(&pattern, limit, bounds, Instant::ZERO, Seed(1), "a-b").unwrap();
    let mut now = Instant::ZERO;
    loop {
        match source.next(now) {
            Step::Send(message) if message.first => source.departed(now),
            Step::Send(_) => {}
            Step::Wait(until) => now = until,
            Step::Done => break,
        }
    }
    (pattern.memory(), (PEAK.load(Relaxed) - before) as u64)
}

// One test, because the counts are those of the process.
#[test]
fn estimates_are_above_what_models_need_and_not_far() {
    let many = 200_000.0;
    // Sessions that do not end within the test, and sizes just above a power of two, at which memory is largest.
    let sessions = [("maxSessions", many), ("interarrival", 1.0), ("duration", 1e6), ("period", 1e3)];
    for (model, set, messages) in [
        ("mginf", &sessions[..], 150_000),
        ("sensor", &[("sources", 140_000.0)], 150_000),
        ("onoff", &[("sources", 70_000.0)], 150_000),
        ("fgn", &[("intervals", 131_073.0)], 1_000),
        ("fgn", &[("intervals", 131_072.0)], 1_000),
    ] {
        let (estimate, needed) = measure(model, set, messages);
        // Samples for the comparison with the laws are bounded otherwise.
        let needed = needed.saturating_sub(2 << 20);
        println!("{model}: {estimate} B estimated, {needed} B needed");
        assert!(estimate >= needed && estimate <= 4 * needed, "{model}: {estimate} B for {needed} B");
    }
}
