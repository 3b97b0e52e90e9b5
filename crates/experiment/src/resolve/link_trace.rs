//! `trace = "FILE"` of a link: delivery opportunities as mahimahi has them, or a rate over time as CSV.

use trunkline_units::{Rate, Size, Span};

use super::Context;
use super::quantity::{LONGEST_S, single};
use crate::FileError;
use crate::diagnostic::Diagnostic;
use crate::parse::shorten;
use crate::plan::{Trace, TracePoints};
use crate::tree::{PartKind, Value};

/// Larger traces are refused: each point takes 16 bytes.
const MOST_POINTS: usize = 5_000_000;
/// Bytes of an IP packet in an opportunity of 1,504 bytes: mahimahi counts 4 of its TUN device. The models have the same; a
/// test of the simulator compares them.
const PACKET: u64 = 1500;
/// Higher rates are taken for mistakes.
const LARGEST_BPS: f64 = 9e15;

/// Reads the file of a trace.
pub(crate) fn read_trace(cx: &mut Context<'_>, value: &Value) -> Option<Trace> {
    let part = single(cx, value, "a file name")?;
    if part.kind != PartKind::Text || part.arguments.is_some() {
        let error = Diagnostic::error(part.location, "expected a file name in quotes");
        return cx.refuse(error.label("expected `\"FILE\"`"));
    }
    match (cx.files)(&part.text).and_then(|text| points(&text)) {
        Ok(points) => Some(Trace { file: part.text.clone(), points }),
        Err(cause) => {
            let message = format!("cannot use `{}`: {cause}", shorten(&part.text));
            let error = Diagnostic::error(part.location, message);
            cx.refuse(error.label("expected a trace: milliseconds, or `SECONDS, BITS PER SECOND`"))
        }
    }
}

/// Reads the lines of a trace. Lines without a separator are milliseconds; `#` begins a comment.
fn points(text: &str) -> Result<TracePoints, FileError> {
    let is_content = |line: &str| !line.is_empty() && !line.starts_with('#');
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| is_content(line));
    let lines: Vec<(usize, &str)> = lines.take(MOST_POINTS + 1).collect();
    if lines.len() > MOST_POINTS {
        return Err(FileError::TooManyLines(MOST_POINTS));
    }
    let separator = |c: char| [',', ';', '\t'].contains(&c);
    match lines.first() {
        None => Err(FileError::NoNumber),
        Some((_, first)) if first.contains(separator) => rates(&lines, separator),
        Some(_) => opportunities(&lines),
    }
}

/// `MILLISECONDS` on each line.
fn opportunities(lines: &[(usize, &str)]) -> Result<TracePoints, FileError> {
    let mut times: Vec<Span> = Vec::with_capacity(lines.len());
    for (line, content) in lines {
        let ms: u64 = content.parse().map_err(|_| FileError::NotANumber(line + 1))?;
        if ms as f64 / 1e3 > LONGEST_S {
            return Err(FileError::OutOfRange(line + 1));
        }
        let time = Span::from_ms(ms);
        if times.last().is_some_and(|last| *last > time) {
            return Err(FileError::NotAscending(line + 1));
        }
        times.push(time);
    }
    if times.last().is_none_or(|last| last.is_zero()) {
        return Err(FileError::AllZero);
    }
    Ok(TracePoints::Opportunities(times.into()))
}

/// `SECONDS, BITS PER SECOND` on each line; a first line without numbers is a heading.
fn rates(lines: &[(usize, &str)], separator: impl Fn(char) -> bool) -> Result<TracePoints, FileError> {
    let mut steps: Vec<(Span, Rate)> = Vec::with_capacity(lines.len());
    for (position, (line, content)) in lines.iter().enumerate() {
        let mut fields = content.split(&separator).map(|field| field.trim().trim_matches('"').parse::<f64>());
        let (seconds, bps) = match (fields.next(), fields.next()) {
            (Some(Ok(seconds)), Some(Ok(bps))) => (seconds, bps),
            _ if position == 0 => continue,
            _ => return Err(FileError::NotANumber(line + 1)),
        };
        if !(0.0..=LONGEST_S).contains(&seconds) || !(0.0..=LARGEST_BPS).contains(&bps) {
            return Err(FileError::OutOfRange(line + 1));
        }
        let time = Span::from_seconds(seconds);
        if steps.last().is_some_and(|(last, _)| *last >= time) {
            return Err(FileError::NotAscending(line + 1));
        }
        steps.push((time, Rate::from_bps(bps.round() as u64)));
    }
    if steps.is_empty() {
        return Err(FileError::NoNumber);
    }
    if steps.iter().all(|(_, rate)| rate.as_bps() == 0) {
        return Err(FileError::AllZero);
    }
    Ok(TracePoints::Rates(steps.into()))
}

/// Returns the mean rate of a trace, which stands for the rate of the link: until its end, or until its last step.
pub(crate) fn mean_rate(points: &TracePoints) -> Rate {
    let rate = match points {
        TracePoints::Opportunities(times) => {
            let period = times.last().copied().unwrap_or_default();
            Rate::of(Size::from_bytes(PACKET * times.len() as u64), period)
        }
        TracePoints::Rates(steps) => {
            let end = steps.last().map_or(Span::ZERO, |(at, _)| *at);
            let begin = steps.first().map_or(Span::ZERO, |(at, _)| *at);
            let bits: f64 =
                steps.windows(2).map(|pair| pair[0].1.as_bps() as f64 * (pair[1].0 - pair[0].0).as_s()).sum();
            let largest = steps.iter().map(|(_, rate)| *rate).max().unwrap_or_default();
            let mean = bits / (end - begin).as_s();
            if mean.is_finite() && mean >= 1.0 { Rate::from_bps(mean as u64) } else { largest }
        }
    };
    rate.max(Rate::from_bps(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TracePoints, String> {
        points(text).map_err(|error| error.to_string())
    }

    #[test]
    fn both_formats_are_read() {
        let times = [0, 1, 1, 4].map(Span::from_ms);
        let opportunities = TracePoints::Opportunities(times.into());
        assert_eq!(read("# up\n0\n1\n1\n\n4\n"), Ok(opportunities.clone()));
        assert_eq!(mean_rate(&opportunities).as_bps(), 12_000_000);
        let step = |ms, bps| (Span::from_ms(ms), Rate::from_bps(bps));
        let rates = TracePoints::Rates([step(0, 1_000_000), step(500, 0), step(2000, 5_000_000)].into());
        assert_eq!(read("time,rate\n0, 1e6\n0.5;0\n2.0\t\"5000000\"\n"), Ok(rates.clone()));
        assert_eq!(mean_rate(&rates).as_bps(), 250_000);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, wanted) in [
            ("", "it holds no number"),
            ("# nothing\n", "it holds no number"),
            ("0\n0\n", "it holds no number above 0"),
            ("5\n4\n", "line 2 is out of order"),
            ("5\nx\n", "line 2 is not a number"),
            ("1.5\n", "line 1 is not a number"),
            ("-1\n", "line 1 is not a number"),
            ("99999999999999\n", "line 1 is out of range"),
            ("0,1e6\n0,2e6\n", "line 2 is out of order"),
            ("0,1e6\n1,-5\n", "line 2 is out of range"),
            ("0,1e6\n1,inf\n", "line 2 is out of range"),
            ("0,1e6\n1\n", "line 2 is not a number"),
            ("0,0\n1,0\n", "it holds no number above 0"),
            ("time,rate\n", "it holds no number"),
        ] {
            assert_eq!(read(text), Err(wanted.to_owned()), "{text:?}");
        }
        assert_eq!(
            read(&"1\n".repeat(MOST_POINTS + 1)),
            Err(format!("it has more than {MOST_POINTS} lines"))
        );
    }
}
