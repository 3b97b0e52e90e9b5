//! Results of the runs of a sweep in files, so that it can be interrupted, resumed, split between machines and merged.
//!
//! A file has a line of JSON for the sweep, then one for each run, appended when the run ends: nothing is lost when the process is
//! killed, except the runs that it was simulating. A run has an id, the hash of its plan, its seed, the version of the program
//! and the figures that are stored, so that files of different sweeps never mix.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use trunkline_report::sweep::{MAX_PROBLEMS, Parameter, Point, Spread, Sweep, VERSION};

use super::MAX_VARIED;
use crate::failure::Failure;
use crate::flags::Shard;

/// Maximum number of runs: their figures are stored in memory.
pub const MAX_RUNS: usize = 1_000_000;

/// The folder of the files below the folder of the results.
const FOLDER: &str = "runs";
const EXTENSION: &str = "jsonl";

/// A sweep whose points have no figures yet: the first line of a file.
#[derive(Serialize, Deserialize)]
pub struct Request {
    /// Name and version of the program that ran it.
    program: String,
    sweep: Sweep,
}

/// The figures of a run, and its problem, if any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    pub figures: Vec<Option<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The line of a run.
#[derive(Serialize, Deserialize)]
struct Line {
    id: String,
    /// For readers of the file.
    seed: u64,
    #[serde(flatten)]
    result: RunResult,
}

impl Request {
    /// A request for all points of `sweep`, whose seeds have a first one.
    pub fn new(sweep: Sweep) -> Request {
        Request { program: concat!("trunkline ", env!("CARGO_PKG_VERSION")).to_owned(), sweep }
    }

    /// Adds the points, without figures.
    pub fn set_points(&mut self, points: Vec<Point>) {
        self.sweep.points = points;
    }

    pub fn sweep(&self) -> &Sweep {
        &self.sweep
    }

    /// The number of runs. Those of a point follow each other, in the order of the seeds.
    pub fn runs(&self) -> usize {
        self.sweep.points.len() * self.seeds()
    }

    /// The number of runs of a point.
    pub fn seeds(&self) -> usize {
        self.sweep.seeds.count as usize
    }

    /// Returns the seed of a run.
    pub fn seed(&self, run: usize) -> u64 {
        self.sweep.seeds.first.unwrap_or_default() + (run % self.seeds()) as u64
    }

    /// Identifies the sweep.
    fn id(&self) -> String {
        hash(&[&serde_json::to_string(self).expect("a sweep has text keys only")])
    }

    /// Identifies a run: equal for equal plans, seeds, versions of the program and figures.
    fn run_id(&self, run: usize) -> String {
        let figures = self.sweep.metrics.join(" ");
        hash(&[
            &self.program,
            &self.sweep.points[run / self.seeds()].hash,
            &self.seed(run).to_string(),
            &figures,
        ])
    }

    /// Returns the runs by their ids. Points with the same plan share them.
    fn by_id(&self) -> BTreeMap<String, Vec<usize>> {
        let mut by_id: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        (0..self.runs()).for_each(|run| by_id.entry(self.run_id(run)).or_default().push(run));
        by_id
    }

    /// Whether a shard has this run. It has whole points if the results of a point decide how many runs it needs.
    pub fn belongs_to(&self, run: usize, shard: Shard) -> bool {
        let unit = if self.sweep.until.is_some() { run / self.seeds() } else { run };
        unit % shard.count == shard.index
    }

    /// Returns the runs to do next, in order: all that are missing, or, if the results decide, as many seeds of each open point as
    /// keep the threads busy. `too_few` has a number of seeds of each point that is known not to be enough, and is updated.
    pub fn needed(
        &self,
        results: &[Option<RunResult>],
        shard: Option<Shard>,
        threads: usize,
        too_few: &mut [usize],
    ) -> Vec<usize> {
        let is_own = |run: &usize| shard.is_none_or(|shard| self.belongs_to(*run, shard));
        if self.sweep.until.is_none() {
            return (0..results.len()).filter(|run| results[*run].is_none()).filter(is_own).collect();
        }
        let mut open: Vec<(usize, &[Option<RunResult>])> = results.chunks(self.seeds()).enumerate().collect();
        open.retain(|(point, results)| {
            is_own(&(point * self.seeds())) && self.seeds_used(results, too_few[*point]).is_none()
        });
        for (point, results) in &open {
            too_few[*point] = results.iter().take_while(|result| result.is_some()).count();
        }
        let each = threads.div_ceil(open.len().max(1));
        let missing = |(point, results): &(usize, &[Option<RunResult>])| {
            let missing = results.iter().enumerate().filter(|(_, result)| result.is_none()).take(each);
            missing.map(|(seed, _)| point * self.seeds() + seed).collect::<Vec<_>>()
        };
        open.iter().flat_map(missing).collect()
    }

    /// Returns the number of seeds that a point uses, or `None` if it is not complete. That depends only on the results in the
    /// order of the seeds, never on which run ended first. `too_few` seeds are known not to be enough.
    fn seeds_used(&self, results: &[Option<RunResult>], too_few: usize) -> Option<usize> {
        let Some(share) = self.sweep.until else {
            return results.iter().all(Option::is_some).then_some(results.len());
        };
        let known: Vec<&RunResult> = results.iter().map_while(Option::as_ref).collect();
        let is_narrow = |n: &usize| self.spreads(&known[..*n]).iter().all(|spread| spread.is_within(share));
        let narrow = (too_few + 1..=known.len()).find(is_narrow);
        narrow.or_else(|| (known.len() == results.len()).then_some(known.len()))
    }

    fn spreads(&self, runs: &[&RunResult]) -> Vec<Spread> {
        let samples = |figure: usize| runs.iter().map(|run| run.figures[figure]).collect();
        (0..self.sweep.metrics.len()).map(|figure| Spread::of(samples(figure))).collect()
    }

    /// Returns the sweep with the figures of all complete points.
    pub fn report(&self, results: &[Option<RunResult>]) -> Sweep {
        let (mut points, mut problems) = (Vec::new(), Vec::new());
        for (point, results) in self.sweep.points.iter().zip(results.chunks(self.seeds())) {
            let used = self.seeds_used(results, 0);
            let runs: Vec<&RunResult> = results[..used.unwrap_or(results.len())].iter().flatten().collect();
            problems.extend(runs.iter().filter_map(|run| run.problem.clone()));
            if used.is_some() {
                points.push(Point { spreads: self.spreads(&runs), ..point.clone() });
            }
        }
        if let Some(more) = problems.len().checked_sub(MAX_PROBLEMS).filter(|more| *more > 0) {
            problems.truncate(MAX_PROBLEMS);
            problems.push(format!("and {more} more runs"));
        }
        let partial = points.len() < self.sweep.points.len();
        Sweep { partial, problems, points, ..self.sweep.clone() }
    }
}

/// Returns the SHA-256 of texts in hexadecimal.
fn hash(texts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update(text);
        digest.update("\n");
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The file to which a process appends its results. Locked while it is open.
pub struct RunFile {
    path: PathBuf,
    file: Mutex<File>,
}

impl RunFile {
    /// Opens the file of the sweep, or of one of its shards, below `out`; creates it if necessary. A line that was cut by the end
    /// of its process is removed, and with `fresh` all of them.
    ///
    /// # Errors
    /// If another process has it open, or on an error of the file system.
    pub fn open(
        out: &Path,
        request: &Request,
        shard: Option<Shard>,
        fresh: bool,
    ) -> Result<RunFile, Failure> {
        let shard = shard.map_or(String::new(), |shard| format!("-{}-of-{}", shard.index + 1, shard.count));
        let folder = out.join(FOLDER);
        let path = folder.join(format!("{}{shard}.{EXTENSION}", &request.id()[..16]));
        let fail = |doing: &str, error: io::Error| {
            Failure::run(format!("cannot {doing} {}: {error}", path.display()))
        };
        fs::create_dir_all(&folder).map_err(|error| fail("create", error))?;
        let file = File::options().read(true).append(true).create(true).open(&path);
        let file = file.map_err(|error| fail("open", error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::run(format!("another process appends to {}", path.display())));
            }
            Err(TryLockError::Error(error)) => return Err(fail("lock", error)),
        }
        let complete = if fresh { Ok(0) } else { complete_lines(&file) };
        let complete = complete.map_err(|error| fail("read", error))?;
        file.set_len(complete).map_err(|error| fail("shorten", error))?;
        let opened = RunFile { path, file: Mutex::new(file) };
        if complete == 0 {
            opened.write(request)?;
        }
        Ok(opened)
    }

    /// Appends the result of a run.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn append(&self, request: &Request, run: usize, result: &RunResult) -> Result<(), Failure> {
        let (id, seed) = (request.run_id(run), request.seed(run));
        self.write(&Line { id, seed, result: result.clone() })
    }

    /// Writes a line with one call, so that a killed process leaves at most its last line incomplete.
    fn write(&self, line: &impl Serialize) -> Result<(), Failure> {
        let mut text = serde_json::to_vec(line).expect("a line has text keys only");
        text.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let written = file.write_all(&text);
        written.map_err(|error| Failure::run(format!("cannot write {}: {error}", self.path.display())))
    }
}

/// Returns the length of all complete lines.
fn complete_lines(file: &File) -> io::Result<u64> {
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(0))?;
    let (mut length, mut complete, mut line) = (0, 0, Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        length += line.len() as u64;
        if line.ends_with(b"\n") {
            complete = length;
        }
        line.clear();
    }
    Ok(complete)
}

/// Returns the results that are stored below `out`, by run.
///
/// # Errors
/// If a file cannot be read.
pub fn stored(out: &Path, request: &Request) -> Result<Vec<Option<RunResult>>, Failure> {
    collect(&files(out)?, request)
}

/// Returns the sweep of files and folders of results, and its runs.
///
/// # Errors
/// If there is none, if they are of different sweeps, or on an error of the file system.
pub fn merge(places: &[PathBuf]) -> Result<(Request, Vec<Option<RunResult>>), Failure> {
    let mut paths = Vec::new();
    for place in places {
        let found = if place.is_dir() { files(place)? } else { vec![place.clone()] };
        if found.is_empty() {
            return Err(Failure::input(format!("{} has no results of a sweep", place.display())));
        }
        paths.extend(found);
    }
    let mut first: Option<(&Path, Request)> = None;
    for path in &paths {
        let request = read_request(path)?;
        match &first {
            None => first = Some((path, request)),
            Some((other, known)) if known.id() != request.id() => {
                return Err(Failure::input(format!(
                    "{} and {} are of different sweeps; name the files of one",
                    other.display(),
                    path.display()
                )));
            }
            Some(_) => {}
        }
    }
    let (_, request) = first.ok_or_else(|| Failure::input("no results to merge"))?;
    let results = collect(&paths, &request)?;
    Ok((request, results))
}

fn read_error(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::input(format!("cannot read {}: {error}", path.display()))
}

/// Whether a sweep can have this number of runs and these points.
fn is_possible(sweep: &Sweep) -> bool {
    let runs = (sweep.points.len() as u64).checked_mul(sweep.seeds.count);
    let last = sweep.seeds.first.unwrap_or_default().checked_add(sweep.seeds.count);
    let is_even = |parameter: &Parameter| parameter.numbers.len() == parameter.values.len();
    let has_place = |point: &Point| {
        let lengths = sweep.parameters.iter().map(|parameter| parameter.values.len());
        point.indices.len() == sweep.parameters.len()
            && point.indices.iter().zip(lengths).all(|(index, length)| *index < length)
    };
    runs.is_some_and(|runs| (1..=MAX_RUNS as u64).contains(&runs))
        && last.is_some()
        && (1..=MAX_VARIED).contains(&sweep.parameters.len())
        && sweep.parameters.iter().all(is_even)
        && sweep.points.iter().all(has_place)
}

/// Reads the first line of a file.
fn read_request(path: &Path) -> Result<Request, Failure> {
    let mut line = Vec::new();
    let file = File::open(path).map_err(|error| read_error(path, error))?;
    BufReader::new(file).read_until(b'\n', &mut line).map_err(|error| read_error(path, error))?;
    let request: Option<Request> = serde_json::from_slice(&line).ok();
    let request = request.filter(|request| request.sweep.version == VERSION && is_possible(&request.sweep));
    request
        .ok_or_else(|| Failure::input(format!("{} has no results of this version's sweeps", path.display())))
}

/// Returns the files below a folder of results, in the order of their names.
fn files(out: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = match fs::read_dir(out.join(FOLDER)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(read_error(&out.join(FOLDER), error)),
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
    let mut paths = paths.map_err(|error| read_error(out, error))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
    paths.sort();
    Ok(paths)
}

/// Reads the runs of `request` that files have. Other lines, incomplete ones too, are runs that are missing.
fn collect(paths: &[PathBuf], request: &Request) -> Result<Vec<Option<RunResult>>, Failure> {
    let mut results = vec![None; request.runs()];
    let runs = request.by_id();
    for path in paths {
        let file = File::open(path).map_err(|error| read_error(path, error))?;
        for line in BufReader::new(file).split(b'\n').skip(1) {
            let line = line.map_err(|error| read_error(path, error))?;
            let Ok(Line { id, result, .. }) = serde_json::from_slice(&line) else { continue };
            if result.figures.len() == request.sweep.metrics.len() {
                for run in runs.get(&id).into_iter().flatten() {
                    results[*run].get_or_insert_with(|| result.clone());
                }
            }
        }
    }
    Ok(results)
}
