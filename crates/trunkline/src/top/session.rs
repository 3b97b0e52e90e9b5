//! A source, its monitor, and the file that samples are recorded in.

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

/// Packets of a file, or blocks of an interface, that are taken before anything else is looked at.
const MOST_PACKETS: usize = 5_000;
const MOST_BLOCKS: usize = 32;

/// What is watched, and all that is known of it.
pub struct Session {
    source: Source,
    /// What was seen.
    pub monitor: Monitor,
    /// The filter that it began with, as it was written.
    pub filter: String,
    clock: Clock,
    duration: Option<Span>,
    stop: Arc<AtomicBool>,
    /// Whether the source has ended.
    ended: bool,
    /// What must be known of the source: it is down, cut off.
    pub note: Option<String>,
    /// What the kernel had, and of that dropped.
    pub kernel: Option<(u64, u64)>,
    recorder: Option<Recorder>,
    graph: Option<Graph>,
    /// Samples of the monitor's load that were told and recorded.
    told: u64,
    /// What the filter passed in all samples told, whatever was reset meanwhile.
    pub total: Count,
}

/// What a session did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// It saw packets or waited; there may be more.
    Watched,
    /// The time is over, or a signal asked for the end.
    Stopped,
    /// The source has ended.
    Ended,
}

/// A sample that has ended, and the totals then.
pub struct Told {
    /// The sample.
    pub sample: Sample,
    /// All that the filter passed until then.
    pub total: Count,
}

impl Session {
    /// Opens the source and the file to record in.
    pub fn open(flags: &Top) -> Result<Session, Failure> {
        Session::open_with(flags, Limits::default(), By::default())
    }

    /// As [`Session::open`], with these limits but for the trace's, and so told flows apart.
    pub fn open_with(flags: &Top, limits: Limits, flows_by: By) -> Result<Session, Failure> {
        let (text, filter) = asked(&flags.filter.join(" ")).map_err(Failure::input)?;
        let config = Config {
            interval_ns: flags.interval.as_ns(),
            filter,
            llc_port: flags.llc_udp,
            judgement: Judgement {
                patience_ns: flags.patience.as_ns(),
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
            return Err(Failure::input(format!("{} exists already", path.display())));
        }
        let recorder = match &flags.record {
            Some(path) => Some(Recorder::create(path).map_err(|e| failed(&path.display().to_string(), &e))?),
            None => None,
        };
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, stop.clone())
                .map_err(|e| Failure::run(format!("cannot listen for signals: {e}")))?;
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
            told: 0,
            total: Count::default(),
        })
    }

    /// What is watched.
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// Whether the source has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Sees what is there, or waits for it at most `limit`.
    pub fn watch(&mut self, limit: Span) -> Result<Did, Failure> {
        let over = self
            .duration
            .is_some_and(|limit| self.clock.now().since(trunkline_units::Instant::ZERO) >= limit);
        if over || self.stop.load(Ordering::Relaxed) {
            self.drain();
            return Ok(Did::Stopped);
        }
        if self.ended {
            return Ok(Did::Ended);
        }
        self.ended = match &mut self.source {
            Source::Live(_) => self.watch_interface(limit)?,
            Source::File(file) => match file.look(&mut self.monitor, MOST_PACKETS) {
                Ok(looked) => looked == Looked::End,
                Err(e) => {
                    let cut = e.kind() == io::ErrorKind::UnexpectedEof;
                    self.note = Some(if cut { "the file is cut off".into() } else { e.to_string() });
                    true
                }
            },
        };
        Ok(if self.ended { Did::Ended } else { Did::Watched })
    }

    /// Sees what the kernel has captured until now and still holds.
    fn drain(&mut self) {
        /// How often frames are waited for that the kernel has: on a crowded machine it is late to hand them over.
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

    /// True once the interface is gone.
    fn watch_interface(&mut self, limit: Span) -> Result<bool, Failure> {
        let Source::Live(live) = &mut self.source else { return Ok(false) };
        for block in 0..MOST_BLOCKS {
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
        // What was captured until then has been handed over.
        self.monitor.advance(now_ns.saturating_sub((Ring::LAG * 2).as_ns()));
        Ok(false)
    }

    /// Ends the sample that runs, so that its packets are told, if it has any.
    pub fn close(&mut self) {
        let load = self.monitor.load();
        if load.running() == Count::default() {
            return;
        }
        self.monitor.advance(load.now_ns().saturating_add(load.interval_ns()));
    }

    /// The samples that have ended since this was last asked; they are recorded.
    pub fn tell(&mut self) -> Result<Vec<Told>, Failure> {
        let load = self.monitor.load();
        let news = load.closed().saturating_sub(self.told) as usize;
        self.told = load.closed();
        if news == 0 {
            return Ok(Vec::new());
        }
        let mut samples: Vec<Sample> = load.samples().rev().take(news).copied().collect();
        samples.reverse();
        let mut told = Vec::with_capacity(samples.len());
        for sample in samples {
            self.total += sample.shown;
            told.push(Told { sample, total: self.total });
        }
        if let Some(graph) = &mut self.graph {
            told.iter().for_each(|told| graph.add(&told.sample));
        }
        if let Some(recorder) = &mut self.recorder {
            let wrote = told.iter().try_for_each(|told| recorder.row(told, &self.monitor, self.kernel));
            let wrote = wrote.and_then(|()| recorder.file.flush());
            wrote.map_err(|e| failed(&recorder.name, &e))?;
        }
        Ok(told)
    }

    /// Forgets what was counted, perhaps for another filter. Totals that are recorded go on.
    pub fn restart(&mut self, filter: Option<Option<Filter>>) -> Result<(), Failure> {
        self.close();
        self.tell()?;
        match filter {
            Some(filter) => self.monitor.set_filter(filter),
            None => self.monitor.reset(),
        }
        self.told = 0;
        Ok(())
    }

    /// Writes what was asked for: the last samples, the graph, what the trace keeps. Each though another fails.
    pub fn finish(&mut self, flags: &Top) -> Result<(), Failure> {
        self.close();
        let told = self.tell().map(drop);
        let drawn = self.graph.as_ref().zip(flags.graph.as_ref()).map_or(Ok(()), |(graph, path)| {
            let svg =
                graph.svg(&format!("trunkline top {}", self.name()), &graph::note(self.total, self.kernel));
            std::fs::write(path, svg).map_err(|e| failed(&path.display().to_string(), &e))
        });
        let written = flags.write.as_ref().map_or(Ok(()), |path| {
            let written = self.monitor.trace().write(path);
            written.map(drop).map_err(|e| failed(&path.display().to_string(), &e))
        });
        told.and(drawn).and(written)
    }
}

/// A filter and its text, which after `@` is that of a file: words, lines that begin with `#` left out. Nothing passes
/// everything.
pub fn asked(text: &str) -> Result<(String, Option<Filter>), String> {
    /// Longer than the text of any filter.
    const MOST: u64 = 64 << 10;
    let mut text = text.trim().to_owned();
    if let Some(name) = text.strip_prefix('@').map(str::to_owned) {
        text.clear();
        let file = File::open(&name).and_then(|file| file.take(MOST).read_to_string(&mut text));
        let length = file.map_err(|e| format!("{name}: {e}"))?;
        if length as u64 == MOST {
            return Err(format!("{name}: longer than any filter"));
        }
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        text = lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    }
    let filter =
        if text.is_empty() { None } else { Some(text.parse().map_err(|e: BadFilter| e.to_string())?) };
    Ok((text, filter))
}

/// Something outside went wrong with `what`.
pub fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::run(format!("{what}: {error}"))
}

/// Samples as CSV.
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

    fn row(&mut self, told: &Told, monitor: &Monitor, kernel: Option<(u64, u64)>) -> io::Result<()> {
        let (Told { sample, total }, load) = (told, monitor.load());
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
