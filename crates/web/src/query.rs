//! What was asked for, within bounds.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use trunkline_counters::archive::{self, SeriesId};
use trunkline_counters::counter::Moment;

/// Most series of a question.
pub const MOST_SERIES: usize = 8;
/// Most octets of a question.
const LONGEST: usize = 8_192;

/// Why a question is not answered.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It is wrong.
    #[error("{0}")]
    Bad(String),
    /// There is no such thing.
    #[error("{0}")]
    None(String),
    /// Too many ask.
    #[error("too many questions at once: try again")]
    Busy,
    /// It took too long.
    #[error("the answer takes too long: ask for less")]
    Slow,
    /// The archive could not be read.
    #[error("{0}")]
    Archive(archive::Error),
    /// The server itself.
    #[error("the question was not answered")]
    Lost,
}

impl From<archive::Error> for Refused {
    fn from(error: archive::Error) -> Refused {
        match error {
            archive::Error::None { what, .. } => Refused::None(format!("there is no {what}")),
            error => Refused::Archive(error),
        }
    }
}

/// Names and values of a question.
#[derive(Debug, Default)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    /// Reads what stands behind `?`. Names that nobody knows, or that stand there twice, are refused.
    pub fn parse(text: &str, known: &[&str]) -> Result<Query, Refused> {
        if text.len() > LONGEST {
            return Err(Refused::Bad(format!("the question is longer than {LONGEST} octets")));
        }
        let mut query = Query::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (plain(name)?, plain(value)?);
            if !known.contains(&name.as_str()) {
                return Err(Refused::Bad(format!("there is no parameter `{name}` here")));
            }
            if query.0.insert(name.clone(), value).is_some() {
                return Err(Refused::Bad(format!("`{name}` is there twice")));
            }
        }
        Ok(query)
    }

    /// A value that may be missing.
    pub fn optional(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A value that may not.
    pub fn text(&self, name: &str) -> Result<&str, Refused> {
        self.optional(name).ok_or_else(|| Refused::Bad(format!("`{name}` is missing")))
    }

    /// A whole number.
    pub fn count(&self, name: &str, default: usize, within: RangeInclusive<usize>) -> Result<usize, Refused> {
        let Some(text) = self.optional(name) else { return Ok(default) };
        let count = text.parse().ok().filter(|count| within.contains(count));
        let (low, high) = (within.start(), within.end());
        count.ok_or_else(|| Refused::Bad(format!("`{name}` is a whole number from {low} to {high}")))
    }

    fn moment(&self, name: &str) -> Result<Option<Moment>, Refused> {
        let bad = |_| Refused::Bad(format!("`{name}` is a whole number of nanoseconds since 1970"));
        self.optional(name).map(|text| text.parse().map(Moment).map_err(bad)).transpose()
    }

    /// From when to when: `from_ns` and `to_ns`, the last hour where nothing is said.
    pub fn span(&self, now: Moment) -> Result<(Moment, Moment), Refused> {
        let to = self.moment("to_ns")?.unwrap_or(now);
        let hour = std::time::Duration::from_secs(3_600);
        let from = self.moment("from_ns")?.unwrap_or_else(|| to.before(hour));
        if from < to { Ok((from, to)) } else { Err(Refused::Bad("`from_ns` must be before `to_ns`".into())) }
    }

    /// Numbers of series: `series=1,2`, each once, at most [`MOST_SERIES`].
    pub fn series(&self) -> Result<Vec<SeriesId>, Refused> {
        let bad = || Refused::Bad(format!("`series` are 1 to {MOST_SERIES} different numbers, with commas"));
        let mut all = Vec::new();
        for number in self.text("series")?.split(',') {
            let id = SeriesId(number.parse().map_err(|_| bad())?);
            if all.contains(&id) || all.len() == MOST_SERIES {
                return Err(bad());
            }
            all.push(id);
        }
        Ok(all)
    }
}

/// What an escaped text of an address stands for.
fn plain(text: &str) -> Result<String, Refused> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    let digit = |octet: Option<u8>| octet.and_then(|octet| char::from(octet).to_digit(16));
    while let Some(octet) = rest.next() {
        octets.push(match octet {
            b'+' => b' ',
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return Err(Refused::Bad("`%` stands before two hexadecimal digits".into())),
            },
            octet => octet,
        });
    }
    String::from_utf8(octets).map_err(|_| Refused::Bad("the question is not UTF-8".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["series", "from_ns", "to_ns", "device", "buckets"];

    fn parse(text: &str) -> Result<Query, Refused> {
        Query::parse(text, KNOWN)
    }

    #[test]
    fn values_are_unescaped_once() {
        let query = parse("device=a%2Fb+%25%C3%BC&buckets=").unwrap();
        assert_eq!((query.text("device").unwrap(), query.optional("buckets")), ("a/b %ü", Some("")));
        assert!(query.text("from_ns").is_err());
        for wrong in ["device=%", "device=%2", "device=%zz", "device=%ff", "device=1&device=1", "other=1"] {
            assert!(matches!(parse(wrong), Err(Refused::Bad(_))), "{wrong}");
        }
        assert!(parse(&"x".repeat(LONGEST + 1)).is_err());
    }

    #[test]
    fn numbers_have_bounds() {
        let count = |text: &str| parse(text).unwrap().count("buckets", 5, 1..=10).ok();
        assert_eq!([count(""), count("buckets=10"), count("buckets=0")], [Some(5), Some(10), None]);
        assert_eq!([count("buckets=11"), count("buckets=x"), count("buckets=")], [None, None, None]);
        let series = |text: &str| parse(text).unwrap().series().ok().map(|ids| ids.len());
        assert_eq!([series("series=3"), series("series=1,2,3,4,5,6,7,8")], [Some(1), Some(8)]);
        for wrong in [
            "",
            "series=",
            "series=1,",
            "series=1,1",
            "series=1,2,3,4,5,6,7,8,9",
            "series=99999999999999999999",
        ] {
            assert_eq!(series(wrong), None, "{wrong}");
        }
        let span = |text: &str| parse(text).unwrap().span(Moment(7_200_000_000_000)).ok();
        assert_eq!(span(""), Some((Moment(3_600_000_000_000), Moment(7_200_000_000_000))));
        assert_eq!(span("from_ns=1&to_ns=2"), Some((Moment(1), Moment(2))));
        assert_eq!([span("from_ns=2&to_ns=2"), span("from_ns=x"), span("to_ns=1e9")], [None, None, None]);
    }
}
