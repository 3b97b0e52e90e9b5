//! The schedule file: a list of entries in TOML.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::timetable::{Timetable, TimetableError, TimetableTexts, parse_duration};

/// Maximum size of a file in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Maximum number of entries.
const MAX_ENTRIES: usize = 1000;
/// Maximum number of values of an option.
const MAX_STEPS: usize = 100;
/// Default tolerance.
const DEFAULT_LATE: SignedDuration = SignedDuration::from_mins(5);

/// Which runs may run at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Runs alone.
    Exclusive,
    /// Runs beside others that have no host in common with it, and beside background runs.
    #[default]
    Normal,
    /// Runs beside all but exclusive runs.
    Background,
}

/// An entry of the file: an experiment and the times at which it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Name of the entry.
    pub name: String,
    /// The experiment file, relative to the schedule file.
    pub experiment: PathBuf,
    /// Backends.
    #[serde(default = "live")]
    pub on: String,
    /// Addresses or agents of hosts, as the flag `--at` has them.
    #[serde(default)]
    pub at: BTreeMap<String, String>,
    /// Overrides of options.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Seed of the random numbers.
    pub seed: Option<u64>,
    /// The first round: RFC 3339, or RFC 9557 with a time zone.
    pub first: String,
    /// The interval between rounds.
    pub every: Option<String>,
    /// Number of rounds.
    pub count: Option<u64>,
    /// No round begins at this time or later.
    pub end: Option<String>,
    /// An option that each run of a round sets to the next value.
    pub steps: Option<Steps>,
    /// Which runs may run at the same time.
    #[serde(default)]
    pub class: Class,
    /// Tolerance: how late a run may start.
    pub late: Option<String>,
    /// Time limit of a run.
    pub limit: Option<String>,
}

/// A load that is raised in steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    /// The option, as in `--set`.
    pub option: String,
    /// Its values, one per run.
    pub values: Vec<String>,
    /// The interval between the runs of a round; required.
    pub every: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    entry: Vec<Definition>,
}

/// Why a schedule is invalid, in one line.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    Io(#[from] std::io::Error),
    /// The file is too large.
    #[error("the file is larger than 1 MiB")]
    TooLarge,
    /// The text is not TOML, or has an unknown key or a value of the wrong type; in a line, from 1.
    #[error("line {0}: {1}")]
    Syntax(usize, String),
    /// There is no entry, or too many.
    #[error("expected 1 to {MAX_ENTRIES} tables `[[entry]]`, not {0}")]
    NumberOfEntries(usize),
    /// A name cannot be used.
    #[error(
        "the entry name `{0}` must have 1 to 64 letters, digits, `-`, `_` or `.`, and begin with a letter or digit"
    )]
    Name(String),
    /// Two entries have the same name.
    #[error("two entries have the name `{0}`")]
    DuplicateName(String),
    /// The number of steps is invalid.
    #[error("entry `{0}`: expected 1 to {MAX_STEPS} values in `steps`, not {1}")]
    NumberOfSteps(String, usize),
    /// A time or duration is invalid.
    #[error("entry `{0}`: {1}")]
    Timetable(String, TimetableError),
}

fn live() -> String {
    "live".into()
}

/// Reads a schedule file.
pub fn read(path: &Path) -> Result<Vec<Definition>, ScheduleError> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    std::io::Read::read_to_string(&mut std::io::Read::take(file, MAX_FILE + 1), &mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(ScheduleError::TooLarge);
    }
    parse(&text)
}

/// Parses the text of a schedule file.
pub fn parse(text: &str) -> Result<Vec<Definition>, ScheduleError> {
    let file: File = toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let line = text.get(..start).unwrap_or_default().matches('\n').count() + 1;
        let message = error.message().replace('\n', "; ");
        // TOML has times without quotes, which have no time zone in brackets.
        let is_bare_time = message == "invalid type: map, expected a string";
        ScheduleError::Syntax(line, if is_bare_time { "expected a text in quotes".into() } else { message })
    })?;
    let entries = file.entry;
    if !(1..=MAX_ENTRIES).contains(&entries.len()) {
        return Err(ScheduleError::NumberOfEntries(entries.len()));
    }
    let mut names = BTreeSet::new();
    for entry in &entries {
        entry.validate()?;
        if !names.insert(&entry.name) {
            return Err(ScheduleError::DuplicateName(entry.name.clone()));
        }
    }
    Ok(entries)
}

impl Definition {
    fn validate(&self) -> Result<(), ScheduleError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let begins = self.name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !begins || self.name.len() > 64 || !self.name.chars().all(is_plain) {
            return Err(ScheduleError::Name(self.name.chars().take(64).collect()));
        }
        if let Some(steps) = &self.steps
            && !(1..=MAX_STEPS).contains(&steps.values.len())
        {
            return Err(ScheduleError::NumberOfSteps(self.name.clone(), steps.values.len()));
        }
        self.timetable()?;
        self.late()?;
        self.limit().map(drop)
    }

    /// Returns the planned times.
    pub fn timetable(&self) -> Result<Timetable, ScheduleError> {
        let invalid = |error| ScheduleError::Timetable(self.name.clone(), error);
        let steps = self.steps.as_ref().map(|steps| {
            let every = steps.every.as_deref().ok_or(TimetableError::NoStepInterval)?;
            Ok((steps.values.len(), every))
        });
        let texts = TimetableTexts {
            first: &self.first,
            every: self.every.as_deref(),
            count: self.count,
            end: self.end.as_deref(),
            steps: steps.transpose().map_err(invalid)?,
        };
        Timetable::new(&texts).map_err(invalid)
    }

    /// Returns the tolerance: how late a run may start.
    pub fn late(&self) -> Result<SignedDuration, ScheduleError> {
        Ok(self.duration("late", self.late.as_deref())?.unwrap_or(DEFAULT_LATE))
    }

    /// Returns the time limit of a run, if the file has one.
    pub fn limit(&self) -> Result<Option<SignedDuration>, ScheduleError> {
        self.duration("limit", self.limit.as_deref())
    }

    /// Parses a duration of at least one second: a shorter tolerance would depend on the load of the machine.
    fn duration(
        &self,
        option: &'static str,
        text: Option<&str>,
    ) -> Result<Option<SignedDuration>, ScheduleError> {
        let parsed = text.map(parse_duration).transpose().and_then(|duration| match duration {
            Some(short) if short < SignedDuration::from_secs(1) => Err(TimetableError::TooShort(option)),
            duration => Ok(duration),
        });
        parsed.map_err(|error| ScheduleError::Timetable(self.name.clone(), error))
    }

    /// Returns the changes of a run: overrides of the entry, then the value of its step.
    pub fn overrides(&self, step: usize) -> impl Iterator<Item = (&str, &str)> {
        let steps = self.steps.as_ref().filter(|steps| step < steps.values.len());
        let step = steps.map(|steps| (steps.option.as_str(), steps.values[step].as_str()));
        self.set.iter().map(|(option, value)| (option.as_str(), value.as_str())).chain(step)
    }

    /// Returns the number of runs in a round.
    pub fn runs_per_round(&self) -> usize {
        self.steps.as_ref().map_or(1, |steps| steps.values.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAIRS: &str = r#"
        [[entry]]
        name = "stair-step"
        experiment = "stairs.ns"
        at = { client = "127.0.0.1" }
        set = { duration = "1 min" }
        first = "2026-12-04T14:00:00Z"
        every = "30 min"
        end = "2026-12-08T11:00:00Z"
        steps = { option = "rate", values = ["1 Mb/s", "2 Mb/s"], every = "1 min" }
        class = "exclusive"
        late = "2 min"
    "#;

    #[test]
    fn an_entry_is_read_with_its_defaults() {
        let [entry] = &parse(STAIRS).unwrap()[..] else { panic!("one entry") };
        assert_eq!((entry.class, entry.on.as_str()), (Class::Exclusive, "live"));
        assert_eq!(entry.late().unwrap(), SignedDuration::from_mins(2));
        assert_eq!(entry.limit().unwrap(), None);
        assert_eq!(entry.overrides(1).collect::<Vec<_>>(), [("duration", "1 min"), ("rate", "2 Mb/s")]);
        let short = "[[entry]]\nname = \"a\"\nexperiment = \"a.ns\"\nfirst = \"2026-12-04T14:00:00Z\"";
        let [entry] = &parse(short).unwrap()[..] else { panic!("one entry") };
        assert_eq!((entry.class, entry.late().unwrap()), (Class::Normal, SignedDuration::from_mins(5)));
        assert_eq!((entry.runs_per_round(), entry.overrides(0).count()), (1, 0));
    }

    #[test]
    fn bad_files_are_one_line() {
        let with = |from: &str, to: &str| parse(&STAIRS.replace(from, to)).unwrap_err().to_string();
        for (from, to, words) in [
            ("[[entry]]", "[entry", "line 2"),
            ("late =", "latest =", "line 12: unknown field `latest`"),
            ("\"exclusive\"", "\"urgent\"", "line 11: unknown variant `urgent`"),
            ("\"127.0.0.1\"", "7", "line 5: invalid type"),
            ("\"stair-step\"", "\"../x\"", "the entry name `../x`"),
            ("\"stair-step\"", "\"a#1\"", "the entry name `a#1`"),
            ("\"stair-step\"", "\"\"", "the entry name ``"),
            ("[\"1 Mb/s\", \"2 Mb/s\"]", "[]", "expected 1 to 100 values in `steps`, not 0"),
            ("\"2 min\"", "\"0 s\"", "entry `stair-step`: `late` must be at least 1 s"),
            ("\"30 min\"", "\"1 min\"", "entry `stair-step`: the steps take longer than `every`"),
            (
                ", every = \"1 min\" }",
                " }",
                "entry `stair-step`: `steps` needs `every`, the interval between its runs, such as `every = \"1 min\"`",
            ),
            ("\"2026-12-04T14:00:00Z\"", "2026-12-04T14:00:00Z", "line 7: expected a text in quotes"),
        ] {
            let error = with(from, to);
            assert!(error.contains(words), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        assert!(parse("").unwrap_err().to_string().contains("expected 1 to 1000 tables `[[entry]]`, not 0"));
        let twice = format!("{STAIRS}{STAIRS}");
        assert_eq!(parse(&twice).unwrap_err().to_string(), "two entries have the name `stair-step`");
        let many: String = (0..1001).map(|n| STAIRS.replace("stair-step", &n.to_string())).collect();
        assert!(parse(&many).unwrap_err().to_string().ends_with("not 1001"));
        assert!(matches!(read(Path::new("/dev/zero")), Err(ScheduleError::TooLarge)));
    }
}
