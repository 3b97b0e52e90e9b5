//! A source, its monitor, and the file of recorded samples.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use trunkline_capture::exchange::Judgement;
use trunkline_capture::filter::{BadFilter, Filter};
use trunkline_capture::flow::By;
use trunkline_capture::load::Sample;
use trunkline_capture::monitor::{Config, Limits};
use trunkline_capture::source::{Looked, NoSource};
use trunkline_capture::table::Count;
use trunkline_capture::{Monitor, Source};
use trunkline_io::Clock;
use trunkline_io::packet::Ring;
use trunkline_units::Span;

use super::graph::{self, Graph};
use crate::failure::Failure;
use crate::flags::Top;

/// Maximum number of packets of a file, or blocks of an interface, processed per call.
const MAX_PACKETS: usize = 5_000;
const MAX_BLOCKS: usize = 32;

/// A source and its monitor.
pub struct Session {
    source: Source,
    /// The counters.
    pub monitor: Monitor,
    /// The initial filter, as typed.
    pub filter: String,
    clock: Clock,
    duration: Option<Span>,
    stop: Arc<AtomicBool>,
    /// Whether the source has ended.
    pub ended: bool,
    /// A problem of the source: interface down, file truncated.
    pub note: Option<String>,
    /// Frames that the kernel received, and dropped.
    pub kernel: Option<(u64, u64)>,
    recorder: Option<Recorder>,
    graph: Option<Graph>,
    /// Number of samples returned and recorded so far.
    reported: u64,
    /// Total of matching packets in all samples, across resets.
    pub total: Count,
}

/// The outcome of a call to [`Session::watch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It processed packets or waited; there may be more.
    Running,
    /// The duration is over, or a signal arrived.
    Stopped,
    /// The source has ended.
    Ended,
}

/// A completed sample, and the total at its end.
pub struct ClosedSample {
    /// The sample.
    pub sample: Sample,
    /// Total of matching packets up to the end of the sample.
    pub total: Count,
}

impl Session {
    /// Opens the source and the file of recorded samples. `flags` sets the limit of the trace.
    pub fn open(flags: &Top, limits: Limits, flows_by: By) -> Result<Session, Failure> {
        let (text, filter) = parse_filter(&flags.filter.join(" ")).map_err(Failure::input)?;
        let config = Config {
            interval_ns: flags.interval.as_ns(),
            filter,
            llc_port: flags.llc_udp,
            judgement: Judgement {
                patience_ns: flags.timeout.as_ns(),
                deadline_ns: flags.deadline.map(Span::as_ns),
            },
            limits: Limits { trace: flags.events as usize, ..limits },
            flows_by,
        };
        let source = Source::open(&flags.source, (flags.buffer as usize) << 20).map_err(|e| match e {
            NoSource::Forbidden(_) | NoSource::Io { .. } => Failure::run(e),
            _ => Failure::input(e),
        })?;
        if let Some(path) = flags.write.as_ref().filter(|path| path.exists()) {
            return Err(Failure::input(format!("{} already exists", path.display())));
        }
        let record = flags.record.as_ref();
        let recorder =
            record.map(|path| Recorder::create(path).map_err(|e| failed(path.display(), &e))).transpose()?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, stop.clone())
                .map_err(|e| Failure::run(format!("cannot handle signals: {e}")))?;
        }
        Ok(Session {
            source,
            monitor: Monitor::new(config),
            filter: text,
            clock: Clock::start(),
            duration: flags.duration,
            stop,
            ended: false,
            note: None,
            kernel: None,
            recorder,
            graph: flags.graph.as_ref().map(|_| Graph::new(flags.interval.as_ns())),
            reported: 0,
            total: Count::default(),
        })
    }

    /// Returns the name of the source.
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// Returns an error if the source ended because of a problem.
    pub fn outcome(&self) -> Result<(), Failure> {
        match &self.note {
            Some(note) if self.ended => Err(Failure::run(format!("{}: {note}", self.name()))),
            _ => Ok(()),
        }
    }

    /// Processes available packets, or waits for packets for at most `limit`.
    pub fn watch(&mut self, limit: Span) -> Result<Progress, Failure> {
        let over = self
            .duration
            .is_some_and(|limit| self.clock.now().since(trunkline_units::Instant::ZERO) >= limit);
        if over || self.stop.load(Ordering::Relaxed) {
            self.drain();
            return Ok(Progress::Stopped);
        }
        if self.ended {
            return Ok(Progress::Ended);
        }
        self.ended = match &mut self.source {
            Source::Live(_) => self.watch_interface(limit)?,
            Source::File(file) => match file.look(&mut self.monitor, MAX_PACKETS) {
                Ok(looked) => looked == Looked::End,
                Err(e) => {
                    let is_truncated = e.kind() == io::ErrorKind::UnexpectedEof;
                    self.note =
                        Some(if is_truncated { "the file is truncated".into() } else { e.to_string() });
                    true
                }
            },
        };
        Ok(if self.ended { Progress::Ended } else { Progress::Running })
    }

    /// Processes the packets that the kernel has captured so far.
    fn drain(&mut self) {
        /// Maximum number of waits for frames in the kernel, which may hand them over late on a busy machine.
        const WAITS: usize = 50;
        let Source::Live(live) = &mut self.source else { return };
        let mut waits = 0;
        self.kernel = live.counted().ok().or(self.kernel);
        while live.waiting() > 0 && waits < WAITS {
            if live.look(&mut self.monitor) == Looked::None {
                waits += 1;
                let _ = live.wait(Ring::LAG * 2);
            }
        }
        self.kernel = live.counted().ok().or(self.kernel);
    }

    /// Processes packets of an interface; returns true once the interface is gone.
    fn watch_interface(&mut self, limit: Span) -> Result<bool, Failure> {
        let Source::Live(live) = &mut self.source else { return Ok(false) };
        for block in 0..MAX_BLOCKS {
            if live.look(&mut self.monitor) == Looked::Some {
                self.note = None;
                continue;
            }
            if block == 0 {
                match live.wait(limit) {
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::NetworkDown && live.exists() => {
                        self.note = Some("the interface is down".into());
                    }
                    Err(e) if e.kind() == io::ErrorKind::NetworkDown => {
                        self.note = Some("the interface is gone".into());
                        return Ok(true);
                    }
                    Err(e) => return Err(failed(live.name(), &e)),
                }
            } else {
                break;
            }
        }
        self.kernel = Some(live.counted().map_err(|e| failed(live.name(), &e))?);
        let now_ns = u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or_default();
        // Frames captured before this time have been handed over.
        self.monitor.advance(now_ns.saturating_sub((Ring::LAG * 2).as_ns()));
        Ok(false)
    }

    /// Closes the current sample if it has packets.
    pub fn close_sample(&mut self) {
        let load = self.monitor.load();
        if load.running() == Count::default() {
            return;
        }
        self.monitor.advance(load.now_ns().saturating_add(load.interval_ns()));
    }

    /// Records the samples closed since the last call and returns them.
    pub fn take_samples(&mut self) -> Result<Vec<ClosedSample>, Failure> {
        let load = self.monitor.load();
        let new = load.closed().saturating_sub(self.reported) as usize;
        self.reported = load.closed();
        if new == 0 {
            return Ok(Vec::new());
        }
        let newest_first: Vec<Sample> = load.samples().rev().take(new).copied().collect();
        let closed = |sample: Sample| {
            self.total += sample.shown;
            ClosedSample { sample, total: self.total }
        };
        let closed_samples: Vec<_> = newest_first.into_iter().rev().map(closed).collect();
        if let Some(graph) = &mut self.graph {
            closed_samples.iter().for_each(|closed| graph.add(&closed.sample));
        }
        if let Some(recorder) = &mut self.recorder {
            let written =
                closed_samples.iter().try_for_each(|closed| recorder.row(closed, &self.monitor, self.kernel));
            let written = written.and_then(|()| recorder.file.flush());
            written.map_err(|e| failed(&recorder.name, &e))?;
        }
        Ok(closed_samples)
    }

    /// Resets the counters, optionally with another filter. Recorded totals continue.
    pub fn restart(&mut self, filter: Option<Option<Filter>>) -> Result<(), Failure> {
        self.close_sample();
        self.take_samples()?;
        match filter {
            Some(filter) => self.monitor.set_filter(filter),
            None => self.monitor.reset(),
        }
        self.reported = 0;
        Ok(())
    }

    /// Writes the last samples, the graph and the trace, if requested. Each is attempted even if another fails.
    pub fn finish(&mut self, flags: &Top) -> Result<(), Failure> {
        self.close_sample();
        let recorded = self.take_samples().map(drop);
        let drawn = self.graph.as_ref().zip(flags.graph.as_ref()).map_or(Ok(()), |(graph, path)| {
            let svg =
                graph.svg(&format!("trunkline top {}", self.name()), &graph::note(self.total, self.kernel));
            std::fs::write(path, svg).map_err(|e| failed(path.display(), &e))
        });
        let written = flags.write.as_ref().map_or(Ok(()), |path| {
            let written = self.monitor.trace().write(path);
            written.map(drop).map_err(|e| failed(path.display(), &e))
        });
        recorded.and(drawn).and(written)
    }
}

/// Parses a filter and returns its text. `@FILE` reads the text from a file, without lines that start with `#`. An empty
/// text is no filter.
pub fn parse_filter(text: &str) -> Result<(String, Option<Filter>), String> {
    /// Maximum size of a filter file, in bytes.
    const MAX_FILTER: u64 = 64 << 10;
    let mut text = text.trim().to_owned();
    if let Some(name) = text.strip_prefix('@').map(str::to_owned) {
        text.clear();
        let file = File::open(&name).and_then(|file| file.take(MAX_FILTER).read_to_string(&mut text));
        let length = file.map_err(|e| format!("{name}: {e}"))?;
        if length as u64 == MAX_FILTER {
            return Err(format!("{name}: the file is too long for a filter"));
        }
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        text = lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    }
    let filter =
        if text.is_empty() { None } else { Some(text.parse().map_err(|e: BadFilter| e.to_string())?) };
    Ok((text, filter))
}

/// Returns a failure of the system that concerns `name`.
fn failed(name: impl Display, error: &io::Error) -> Failure {
    Failure::run(format!("{name}: {error}"))
}

/// Writes samples as CSV.
struct Recorder {
    name: String,
    file: BufWriter<File>,
}

impl Recorder {
    fn create(path: &std::path::Path) -> io::Result<Recorder> {
        let mut file = BufWriter::new(File::create(path)?);
        writeln!(
            file,
            "time_s,interval_s,packets,bytes,packets_per_s,bits_per_s,unfiltered_packets,unfiltered_bytes,\
             total_packets,total_bytes,kernel_frames,kernel_dropped,llc_messages,llc_repeats,llc_unanswered,\
             llc_late,llc_answer_mean_us,llc_answer_max_us,token_rotation_mean_us,token_rotation_max_us"
        )?;
        Ok(Recorder { name: path.display().to_string(), file })
    }

    fn row(
        &mut self,
        closed: &ClosedSample,
        monitor: &Monitor,
        kernel: Option<(u64, u64)>,
    ) -> io::Result<()> {
        let (ClosedSample { sample, total }, load) = (closed, monitor.load());
        let (packets_s, bits_s) = load.rates(sample.shown);
        let (tally, rotation) = (monitor.exchanges().total(), monitor.ring().rotation());
        let of_kernel = |pick: fn((u64, u64)) -> u64| kernel.map(|k| pick(k).to_string()).unwrap_or_default();
        let us = |ns: Option<u64>| ns.map(|ns| format!("{:.3}", ns as f64 / 1e3)).unwrap_or_default();
        let max = |times: trunkline_capture::exchange::Times| (times.count > 0).then_some(times.max_ns);
        writeln!(
            self.file,
            "{:.6},{},{},{},{packets_s:.3},{bits_s:.3},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            sample.at_ns as f64 / 1e9,
            load.interval_ns() as f64 / 1e9,
            sample.shown.packets,
            sample.shown.bytes,
            sample.all.packets,
            sample.all.bytes,
            total.packets,
            total.bytes,
            of_kernel(|k| k.0),
            of_kernel(|k| k.1),
            tally.messages,
            tally.repeats,
            tally.unanswered,
            tally.late,
            us(tally.answers.mean_ns()),
            us(max(tally.answers)),
            us(rotation.mean_ns()),
            us(max(rotation)),
        )
    }
}
