//! Which series are meant: `sw1:port/eth0/in/octets`, or with `*` for any text `sw1:port/*/in/*`.

use std::ops::ControlFlow;

use super::{Error, Reader, SeriesInfo, TableId, TableInfo};

/// Tables that are looked up at once.
const PAGE: usize = 1_000;

/// A text of the form `DEVICE:SERIES`, in which `*` stands for any text. Without a series all of the device are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// From a text; any is one.
    pub fn new(text: &str) -> Pattern {
        Pattern(text.to_owned())
    }

    /// Whether a series of a device is meant.
    pub fn matches(&self, device: &str, series: &str) -> bool {
        alike(self.0.as_bytes(), device.as_bytes())
            || alike(self.0.as_bytes(), format!("{device}:{series}").as_bytes())
    }
}

/// Whether a text is as the pattern says.
fn alike(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // The last `*`, and where in the text what it stands for ends.
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
    pub fn each_table<B>(
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

    /// Every table with those of its series that one of the patterns means; without patterns all. Tables without any are
    /// left out. A table's series are in memory at a time.
    pub fn each_chosen<B>(
        &self,
        patterns: &[Pattern],
        mut each: impl FnMut(&TableInfo, &[SeriesInfo]) -> Result<ControlFlow<B>, Error>,
    ) -> Result<ControlFlow<B>, Error> {
        self.each_table(|table| {
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
    fn patterns_mean_what_they_say() {
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
            prop_assert!(alike(pattern.as_bytes(), text.as_bytes()));
            prop_assert!(!alike((pattern + "c").as_bytes(), text.as_bytes()));
        }
    }
}
