//! Query parameters of requests, with limits.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use trunkline_counters::archive::{self, SeriesId};
use trunkline_counters::counter::Timestamp;

/// Maximum number of series of a query.
pub const MAX_SERIES: usize = 8;
/// Maximum length of a query string in octets.
const MAX_QUERY_LENGTH: usize = 8_192;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// A parameter is invalid.
    #[error("{0}")]
    InvalidRequest(String),
    /// The requested object does not exist.
    #[error("{0}")]
    NotFound(String),
    /// Too many queries wait.
    #[error("too many requests: try again")]
    Overloaded,
    /// The query exceeded the time limit.
    #[error("the request takes too long: request less")]
    Timeout,
    /// The archive could not be read.
    #[error("{0}")]
    Archive(archive::Error),
    /// An internal error.
    #[error("internal error")]
    Internal,
}

impl From<archive::Error> for ApiError {
    fn from(error: archive::Error) -> ApiError {
        match error {
            archive::Error::NotFound(_, what) => ApiError::NotFound(format!("unknown {what}")),
            error => ApiError::Archive(error),
        }
    }
}

/// The parameters of a query.
#[derive(Debug, Default)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    /// Parses a query string. Unknown and repeated parameters are errors.
    pub fn parse(text: &str, known: &[&str]) -> Result<Query, ApiError> {
        if text.len() > MAX_QUERY_LENGTH {
            return Err(invalid(format!("the query is longer than {MAX_QUERY_LENGTH} octets")));
        }
        let mut query = Query::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (percent_decode(name)?, percent_decode(value)?);
            if !known.contains(&name.as_str()) {
                return Err(invalid(format!("unknown parameter `{name}`")));
            }
            if query.0.insert(name.clone(), value).is_some() {
                return Err(invalid(format!("`{name}` is given twice")));
            }
        }
        Ok(query)
    }

    /// Returns an optional parameter.
    pub fn optional(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns a required parameter.
    pub fn required(&self, name: &str) -> Result<&str, ApiError> {
        self.optional(name).ok_or_else(|| invalid(format!("`{name}` is missing")))
    }

    /// Returns an integer parameter.
    pub fn count(
        &self,
        name: &str,
        default: usize,
        within: RangeInclusive<usize>,
    ) -> Result<usize, ApiError> {
        let Some(text) = self.optional(name) else { return Ok(default) };
        let count = text.parse().ok().filter(|count| within.contains(count));
        let (low, high) = (within.start(), within.end());
        count.ok_or_else(|| invalid(format!("`{name}` must be an integer from {low} to {high}")))
    }

    fn timestamp(&self, name: &str) -> Result<Option<Timestamp>, ApiError> {
        let bad = |_| invalid(format!("`{name}` must be an integer in nanoseconds since 1970"));
        self.optional(name).map(|text| text.parse().map(Timestamp).map_err(bad)).transpose()
    }

    /// Returns the time range of `from_ns` and `to_ns`; the default is the last hour.
    pub fn time_range(&self, now: Timestamp) -> Result<(Timestamp, Timestamp), ApiError> {
        let to = self.timestamp("to_ns")?.unwrap_or(now);
        let hour = std::time::Duration::from_secs(3_600);
        let from = self.timestamp("from_ns")?.unwrap_or_else(|| to.saturating_sub(hour));
        if from < to { Ok((from, to)) } else { Err(invalid("`from_ns` must be before `to_ns`")) }
    }

    /// Returns the series of `series=1,2`, each once, at most [`MAX_SERIES`].
    pub fn series(&self) -> Result<Vec<SeriesId>, ApiError> {
        let bad =
            || invalid(format!("`series` must be 1 to {MAX_SERIES} different numbers, separated by commas"));
        let mut all = Vec::new();
        for number in self.required("series")?.split(',') {
            let id = SeriesId(number.parse().map_err(|_| bad())?);
            if all.contains(&id) || all.len() == MAX_SERIES {
                return Err(bad());
            }
            all.push(id);
        }
        Ok(all)
    }
}

fn invalid(reason: impl Into<String>) -> ApiError {
    ApiError::InvalidRequest(reason.into())
}

/// Decodes a percent-encoded text.
fn percent_decode(text: &str) -> Result<String, ApiError> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    let digit = |octet: Option<u8>| octet.and_then(|octet| char::from(octet).to_digit(16));
    while let Some(octet) = rest.next() {
        octets.push(match octet {
            b'+' => b' ',
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => {
                    return Err(invalid("`%` must be followed by two hexadecimal digits"));
                }
            },
            octet => octet,
        });
    }
    String::from_utf8(octets).map_err(|_| invalid("the query is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["series", "from_ns", "to_ns", "device", "buckets"];

    fn parse(text: &str) -> Result<Query, ApiError> {
        Query::parse(text, KNOWN)
    }

    #[test]
    fn values_are_decoded_once() {
        let query = parse("device=a%2Fb+%25%C3%BC&buckets=").unwrap();
        assert_eq!((query.required("device").unwrap(), query.optional("buckets")), ("a/b %ü", Some("")));
        assert!(query.required("from_ns").is_err());
        for wrong in ["device=%", "device=%2", "device=%zz", "device=%ff", "device=1&device=1", "other=1"] {
            assert!(matches!(parse(wrong), Err(ApiError::InvalidRequest(_))), "{wrong}");
        }
        assert!(parse(&"x".repeat(MAX_QUERY_LENGTH + 1)).is_err());
    }

    #[test]
    fn numbers_are_limited() {
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
        let span = |text: &str| parse(text).unwrap().time_range(Timestamp(7_200_000_000_000)).ok();
        assert_eq!(span(""), Some((Timestamp(3_600_000_000_000), Timestamp(7_200_000_000_000))));
        assert_eq!(span("from_ns=1&to_ns=2"), Some((Timestamp(1), Timestamp(2))));
        assert_eq!([span("from_ns=2&to_ns=2"), span("from_ns=x"), span("to_ns=1e9")], [None, None, None]);
    }
}
