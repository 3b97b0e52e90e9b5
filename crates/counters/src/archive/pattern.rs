//! Patterns that select series: `sw1:port/eth0/in/octets`, or with `*` for any text `sw1:port/*/in/*`.

use std::ops::ControlFlow;

use super::{Error, Reader, SeriesInfo, TableId, TableInfo};

/// Tables that are read in one query.
const PAGE: usize = 1_000;

/// A pattern of the form `DEVICE:SERIES` in which `*` stands for any text. A pattern without a series selects all
/// series of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Creates a pattern; every text is valid.
    pub fn new(text: &str) -> Pattern {
        Pattern(text.to_owned())
    }

    /// Returns whether the pattern matches a series of a device.
    pub fn matches(&self, device: &str, series: &str) -> bool {
        glob_match(self.0.as_bytes(), device.as_bytes())
            || glob_match(self.0.as_bytes(), format!("{device}:{series}").as_bytes())
    }
}

/// Returns whether a text matches a pattern in which `*` stands for any text.
fn glob_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // The last `*`, and the end of the text that it stands for.
    let mut star = None;
    while seen < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(octet) if *octet == text[seen] => (at, seen) = (at + 1, seen + 1),
            _ => {
                let Some((begin, end)) = star else { return false };
                star = Some((begin, end + 1));
                (at, seen) = (begin + 1, end + 1);
            }
        }
    }
    pattern[at..].iter().all(|octet| *octet == b'*')
}

impl Reader {
    /// Calls `each` for every table until it breaks.
    pub fn for_each_table<B>(
        &self,
        mut each: impl FnMut(&TableInfo) -> Result<ControlFlow<B>, Error>,
    ) -> Result<ControlFlow<B>, Error> {
        let mut after = TableId(i64::MIN);
        loop {
            let tables = self.tables(after, PAGE)?;
            let Some(last) = tables.last() else { return Ok(ControlFlow::Continue(())) };
            after = last.id;
            for table in &tables {
                if let ControlFlow::Break(with) = each(table)? {
                    return Ok(ControlFlow::Break(with));
                }
            }
        }
    }

    /// Calls `each` for every table with those of its series that match a pattern, or all if there are no patterns.
    /// Tables without such series are skipped. Only the series of one table are in memory at a time.
    pub fn for_each_selected<B>(
        &self,
        patterns: &[Pattern],
        mut each: impl FnMut(&TableInfo, &[SeriesInfo]) -> Result<ControlFlow<B>, Error>,
    ) -> Result<ControlFlow<B>, Error> {
        self.for_each_table(|table| {
            let mut series = self.series(table.id)?;
            let meant = |s: &SeriesInfo| patterns.iter().any(|p| p.matches(&table.device, &s.name));
            series.retain(|s| patterns.is_empty() || meant(s));
            if series.is_empty() { Ok(ControlFlow::Continue(())) } else { each(table, &series) }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        let is = |pattern: &str, series: &str| Pattern::new(pattern).matches("sw:1", series);
        assert!(is("sw:1:port/a/in/octets", "port/a/in/octets"));
        assert!(is("sw:1", "anything") && is("*", "anything") && is("sw*", "x"));
        assert!(is("*:port/*/in/octets", "port/a b/in/octets"));
        assert!(!is("*:port/*/in/octets", "port/a/out/octets"));
        assert!(!is("sw:1:port", "port/a") && !is("sw", "x") && !is("", "x"));
    }

    proptest! {
        #[test]
        fn stars_stand_for_any_text(parts in prop::collection::vec("[ab]{0,3}", 1..5), between in "[ab]{0,3}") {
            let (pattern, text) = (parts.join("*"), parts.join(&between));
            prop_assert!(glob_match(pattern.as_bytes(), text.as_bytes()));
            prop_assert!(!glob_match((pattern + "c").as_bytes(), text.as_bytes()));
        }
    }
}
