//! The planned times of an entry. Runs are numbered from 1, and a number is converted to a time and back by arithmetic,
//! so that a timetable of a million runs takes no memory.

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, Zoned, tz::TimeZone};

/// Shortest interval between rounds and between steps.
const MIN_INTERVAL: SignedDuration = SignedDuration::from_secs(1);
/// Above the number of any run.
const END: u64 = 1 << 40;

/// When the runs of an entry are planned: rounds at an interval, each with one run or with several in steps.
#[derive(Clone, Debug)]
pub struct Timetable {
    /// The first round, in the time zone that days are counted in.
    first: Zoned,
    /// The interval between rounds; zero: there is one round. A day has 24 hours in UTC only.
    every: Span,
    /// Number of runs per round and the interval between them.
    steps: (u64, SignedDuration),
    /// Number of the last run; `None`: without end.
    last: Option<u64>,
}

/// Why there is no such timetable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimetableError {
    /// A time cannot be read.
    #[error("`{0}` is no time such as 2026-12-04T14:00:00Z or 2026-12-04T14:00[Europe/Berlin]: {1}")]
    Time(String, String),
    /// A duration cannot be read.
    #[error("`{0}` is no duration such as `30 min` or `1 d`")]
    Duration(String),
    /// An interval is too short.
    #[error("`{0}` must be at least 1 s")]
    TooShort(&'static str),
    /// The steps take longer than the interval.
    #[error("the steps take longer than `every`")]
    StepsTooLong,
    /// Rounds are repeated without an interval.
    #[error("`{0}` needs `every`, the interval between rounds, such as `every = \"1 d\"`")]
    NoInterval(&'static str),
    /// Steps have no interval.
    #[error("`steps` needs `every`, the interval between its runs, such as `every = \"1 min\"`")]
    NoStepInterval,
    /// Two options state the end.
    #[error("both `count` and `end` state the end")]
    TwoEnds,
    /// There is no run.
    #[error("there is no run before the end")]
    Empty,
}

/// The texts of a timetable, as the schedule file has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimetableTexts<'a> {
    /// The first round: RFC 3339, or RFC 9557 with a time zone.
    pub first: &'a str,
    /// The interval between rounds.
    pub every: Option<&'a str>,
    /// Number of rounds.
    pub count: Option<u64>,
    /// No round begins at this time or later.
    pub end: Option<&'a str>,
    /// Number of runs per round and the interval between them.
    pub steps: Option<(usize, &'a str)>,
}

/// Parses a duration, such as `30 min`. A day has 24 hours.
pub fn parse_duration(text: &str) -> Result<SignedDuration, TimetableError> {
    let invalid = || TimetableError::Duration(text.into());
    let span: Span = text.parse().map_err(|_| invalid())?;
    span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| invalid())
}

fn parse_time(text: &str) -> Result<Zoned, TimetableError> {
    // Without a time zone in brackets it is an instant.
    let parsed = match text.contains('[') {
        true => text.parse::<Zoned>(),
        false => text.parse::<Timestamp>().map(|time| time.to_zoned(TimeZone::UTC)),
    };
    parsed.map_err(|e| TimetableError::Time(text.into(), e.to_string()))
}

impl Timetable {
    /// Reads a timetable.
    pub fn new(texts: &TimetableTexts<'_>) -> Result<Timetable, TimetableError> {
        let every = match texts.every {
            Some(text) => text.parse().map_err(|_| TimetableError::Duration(text.into()))?,
            None => Span::new(),
        };
        let steps = match texts.steps {
            Some((runs, text)) => (runs as u64, parse_duration(text)?),
            None => (1, MIN_INTERVAL),
        };
        let first = parse_time(texts.first)?;
        let mut timetable = Timetable { first, every, steps, last: None };
        timetable.check(texts)?;
        let rounds = match (texts.every, texts.count, texts.end) {
            (None, ..) => Some(1),
            (_, Some(_), Some(_)) => return Err(TimetableError::TwoEnds),
            (_, Some(count), None) => Some(count),
            (_, None, Some(end)) => {
                let end = parse_time(end)?.timestamp();
                // The runs of a round that began before the end are planned, too.
                let rounds = Timetable { steps: (1, MIN_INTERVAL), ..timetable.clone() };
                Some(rounds.first_from(end, 1) - 1)
            }
            (_, None, None) => None,
        };
        timetable.last = rounds.map(|rounds| rounds.saturating_mul(timetable.steps.0));
        if timetable.last == Some(0) { Err(TimetableError::Empty) } else { Ok(timetable) }
    }

    fn check(&self, texts: &TimetableTexts<'_>) -> Result<(), TimetableError> {
        let (runs, interval) = self.steps;
        if runs == 0 {
            return Err(TimetableError::Empty);
        }
        if interval < MIN_INTERVAL {
            return Err(TimetableError::TooShort("steps.every"));
        }
        if texts.every.is_none() {
            let repeated = [("count", texts.count.is_some()), ("end", texts.end.is_some())];
            let repeated = repeated.into_iter().find(|(_, given)| *given);
            return repeated.map_or(Ok(()), |(option, _)| Err(TimetableError::NoInterval(option)));
        }
        // Of two days, at most one has 23 hours.
        let lengths = [0, 1].map(|at| Some(self.round(at + 1)?.duration_since(self.round(at)?)));
        let length = lengths.into_iter().flatten().max();
        match length {
            Some(length) if length < MIN_INTERVAL => Err(TimetableError::TooShort("every")),
            Some(length) if interval.checked_mul(runs as i32).is_none_or(|steps| steps > length) => {
                Err(TimetableError::StepsTooLong)
            }
            Some(_) => Ok(()),
            None => Err(TimetableError::Duration(texts.every.unwrap_or_default().into())),
        }
    }

    /// Returns the start of a round, counted from 0; `None` beyond the year 9999.
    fn round(&self, number: u64) -> Option<Timestamp> {
        let offset = self.every.checked_mul(i64::try_from(number).ok()?).ok()?;
        Some(self.first.checked_add(offset).ok()?.timestamp())
    }

    /// Returns the planned time of a run; `None` if there is no such run. Times never decrease with the number.
    pub fn time(&self, number: u64) -> Option<Timestamp> {
        let index = number.checked_sub(1)?;
        if number >= END || self.last.is_some_and(|last| number > last) {
            return None;
        }
        let (round, step) = (index / self.steps.0, index % self.steps.0);
        let begin = self.round(round)?;
        if step == 0 {
            return Some(begin);
        }
        let planned = begin.checked_add(self.steps.1 * step as i32).ok()?;
        // A day of 23 hours may be shorter than its steps.
        let next = if self.every.is_zero() { None } else { self.round(round + 1) };
        Some(next.map_or(planned, |next| next.min(planned)))
    }

    /// Returns the number of the first run, from `least` on, that is planned at `time` or later; one above the last run if
    /// there is none.
    pub fn first_from(&self, time: Timestamp, least: u64) -> u64 {
        let is_before = |number: u64| self.time(number).is_some_and(|planned| planned < time);
        let (mut low, mut width) = (least, 1);
        while is_before(low + width) {
            width *= 2;
        }
        // The first run that is not before `time` is in low..=low + width.
        let mut high = low + width;
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(middle) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Returns the step of a run within its round, from 0.
    pub fn step(&self, number: u64) -> usize {
        (number.saturating_sub(1) % self.steps.0) as usize
    }

    /// Whether every run of both is planned at the same time, as long as both have it.
    pub fn agrees_with(&self, other: &Timetable) -> bool {
        self.first == other.first
            && self.steps == other.steps
            && self.every.fieldwise() == other.every.fieldwise()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = "2026-12-04T14:00:00Z";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn new(texts: TimetableTexts<'_>) -> Result<Timetable, TimetableError> {
        Timetable::new(&TimetableTexts { first: START, ..texts })
    }

    fn every(every: &str) -> TimetableTexts<'_> {
        TimetableTexts { every: Some(every), ..TimetableTexts::default() }
    }

    #[test]
    fn a_stair_step_repeats() {
        let texts = TimetableTexts { count: Some(2), steps: Some((5, "1 min")), ..every("30 min") };
        let stairs = new(texts).unwrap();
        let times: Vec<String> = (1..=11).filter_map(|n| stairs.time(n)).map(|t| t.to_string()).collect();
        let minutes = [0, 1, 2, 3, 4, 30, 31, 32, 33, 34].map(|m| format!("2026-12-04T14:{m:02}:00Z"));
        assert_eq!(times, minutes);
        assert_eq!([1, 5, 6, 10].map(|n| stairs.step(n)), [0, 4, 0, 4]);
        assert_eq!(stairs.time(0), None);
    }

    #[test]
    fn numbers_are_found_by_time() {
        let texts =
            TimetableTexts { steps: Some((3, "10 s")), end: Some("2026-12-04T14:03:01Z"), ..every("1 min") };
        let timetable = new(texts).unwrap();
        for (time, number) in [
            ("2020-01-01T00:00:00Z", 1),
            (START, 1),
            ("2026-12-04T14:00:00.5Z", 2),
            ("2026-12-04T14:00:20Z", 3),
            ("2026-12-04T14:00:21Z", 4),
            ("2026-12-04T14:02:10Z", 8),
            ("2026-12-04T14:03:20Z", 12),
            ("2026-12-04T14:03:21Z", 13),
            ("2999-01-01T00:00:00Z", 13),
        ] {
            assert_eq!(timetable.first_from(at(time), 1), number, "{time}");
        }
        assert_eq!(timetable.first_from(at(START), 9), 9);
        assert!(timetable.time(12).is_some() && timetable.time(13).is_none());
        // Two million years of seconds end in the year 9999.
        let endless = new(every("1 s")).unwrap();
        assert_eq!(endless.first_from(at("2026-12-16T03:46:40Z"), 1), 1_000_001);
        assert!(endless.first_from(Timestamp::MAX, 1) < END);
    }

    #[test]
    fn days_keep_the_local_time() {
        if TimeZone::get("Europe/Berlin").is_err() {
            eprintln!("skipped: this system has no time zones");
            return;
        }
        let texts = TimetableTexts {
            first: "2026-03-28T03:00[Europe/Berlin]",
            steps: Some((48, "30 min")),
            ..every("1 d")
        };
        let daily = Timetable::new(&texts).unwrap();
        let times = [1, 49, 97].map(|n| daily.time(n).unwrap().to_string());
        assert_eq!(times, ["2026-03-28T02:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T01:00:00Z"]);
        assert!((1..200).all(|n| daily.time(n) <= daily.time(n + 1)));
        let hours = Timetable::new(&TimetableTexts { every: Some("24 h"), steps: None, ..texts }).unwrap();
        assert_eq!(hours.time(2).unwrap().to_string(), "2026-03-29T02:00:00Z");
    }

    #[test]
    fn impossible_timetables_are_refused() {
        for (texts, words) in [
            (
                TimetableTexts { count: Some(2), ..Default::default() },
                "`count` needs `every`, the interval between rounds, such as `every = \"1 d\"`",
            ),
            (every("0 s"), "`every` must be at least 1 s"),
            (every("-1 h"), "`every` must be at least 1 s"),
            (every("often"), "`often` is no duration"),
            (every("20000 years"), "`20000 years` is no duration"),
            (every("9998 years"), "`9998 years` is no duration"),
            (TimetableTexts { count: Some(0), ..every("1 h") }, "there is no run before the end"),
            (TimetableTexts { end: Some(START), ..every("1 h") }, "there is no run before the end"),
            (TimetableTexts { end: Some(START), count: Some(1), ..every("1 h") }, "both `count` and `end`"),
            (TimetableTexts { steps: Some((61, "1 min")), ..every("1 h") }, "the steps take longer"),
            (
                TimetableTexts { steps: Some((2, "0 s")), ..every("1 h") },
                "`steps.every` must be at least 1 s",
            ),
        ] {
            let error = new(texts).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        for first in ["", "tomorrow", "2026-12-04", "2026-12-04T14:00", "2026-12-04T14:00[Mars/Olympus]"] {
            let error = Timetable::new(&TimetableTexts { first, ..every("1 h") }).unwrap_err();
            assert!(matches!(error, TimetableError::Time(..)), "{error}");
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
    }
}
