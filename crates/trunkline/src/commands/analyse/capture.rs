//! The packets of a capture, as messages and as a series.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use trunkline_capture::Filter;
use trunkline_capture::packet::Packet;
use trunkline_capture::source::CaptureFile;
use trunkline_traffic::Series;
use trunkline_traffic::recording::MOST_MESSAGES;
use trunkline_units::Span;

use super::column::Column;

/// About how many intervals a list of messages is divided into.
const INTERVALS: i64 = 4_096;
/// How captures begin: pcap with micro- and nanoseconds in both orders of bytes, and pcapng.
const CAPTURES: [[u8; 4]; 5] = [
    [0xA1, 0xB2, 0xC3, 0xD4],
    [0xD4, 0xC3, 0xB2, 0xA1],
    [0xA1, 0xB2, 0x3C, 0x4D],
    [0x4D, 0x3C, 0xB2, 0xA1],
    [0x0A, 0x0D, 0x0D, 0x0A],
];

/// Whether a file is a capture.
pub fn is_capture(path: &Path) -> bool {
    let mut head = [0; 4];
    // Opening a pipe or a device could wait.
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok()
        && CAPTURES.contains(&head)
}

/// Reads times, in nanoseconds since 1970, and payloads of UDP and TCP of the packets that a filter selects.
pub fn messages(path: &Path, filter: &str) -> Result<Vec<(i64, u32)>, String> {
    let filter = match filter {
        "" => None,
        words => Some(words.parse::<Filter>().map_err(|error| format!("`filter`: {error}"))?),
    };
    let mut capture = CaptureFile::open(path).map_err(|error| error.to_string())?;
    let (mut messages, mut packets) = (Vec::new(), 0_u64);
    loop {
        let next = capture.next_packet(|captured| {
            packets += 1;
            let packet = Packet::read(captured, None);
            let is_selected = filter.as_ref().is_none_or(|filter| filter.matches(&packet));
            if let Some(bytes) = packet.payload.filter(|bytes| *bytes > 0 && is_selected) {
                messages.push((i64::try_from(packet.at_ns).unwrap_or(i64::MAX), bytes));
            }
        });
        match next {
            Ok(true) if messages.len() > MOST_MESSAGES => {
                return Err(format!(
                    "more than {MOST_MESSAGES} packets are selected: select fewer with `filter`"
                ));
            }
            Ok(true) => {}
            Ok(false) => return Ok(messages),
            Err(error) => return Err(format!("after packet {packets}: {error}")),
        }
    }
}

/// Returns the bytes of sorted messages in equal intervals; `None` if they are all at one time, or over too long a time.
pub fn amounts(sorted: &[(i64, u32)], interval: Option<Span>) -> Option<Series> {
    let (first, last) = (sorted.first()?.0, sorted.last()?.0);
    // Times of a file may be anything: all others are between these two.
    let duration = last.checked_sub(first)?;
    let length = interval.map_or_else(|| round_up(duration / INTERVALS), |span| span.as_ns() as i64);
    let count = usize::try_from(duration.checked_div(length)?).ok()?;
    if !(2..=trunkline_traffic::series::LONGEST).contains(&count) {
        return None;
    }
    // The last interval is not complete.
    let mut values = vec![0.0; count];
    for (at, size) in sorted {
        if let Some(value) = values.get_mut(((at - first) / length) as usize) {
            *value += f64::from(*size);
        }
    }
    Series::new(first, Span::from_ns(length as u64), values.into_iter().map(Some).collect()).ok()
}

/// Returns the bytes of a capture in equal intervals as a column; none if its packets are all at one time.
pub fn columns(mut messages: Vec<(i64, u32)>, interval: Option<Span>) -> Vec<Column> {
    messages.sort_by_key(|(at, _)| *at);
    let column = |series: Series| {
        let ns =
            (0..series.values().len() as i64).map(|i| series.start_ns() + series.grain().as_ns() as i64 * i);
        Column::of_intervals("bytes".into(), ns.collect(), series.values().to_vec())
    };
    amounts(&messages, interval).map(column).into_iter().collect()
}

/// Returns 1, 2 or 5 times a power of ten, at least `ns`.
fn round_up(ns: i64) -> i64 {
    let mut power = 1_i64;
    while power < i64::MAX / 10 && power * 5 < ns {
        power *= 10;
    }
    [1, 2, 5, 10].into_iter().map(|m| m * power).find(|length| *length >= ns).unwrap_or(10 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_round() {
        for (ns, want) in [(1, 1), (3, 5), (6, 10), (51, 100), (60_000_000, 100_000_000), (200, 200)] {
            assert_eq!(round_up(ns), want, "{ns}");
        }
        assert!(round_up(i64::MAX / 4_096) > 0);
        assert!(amounts(&[(5, 1), (5, 1)], None).is_none());
        for times in [[i64::MIN, i64::MAX], [-2, i64::MAX], [i64::MIN, 0]] {
            assert!(amounts(&times.map(|at| (at, 1)), None).is_none(), "{times:?}");
        }
        let longest = amounts(&[(-1, 1), (i64::MAX - 1, 1)], None).unwrap();
        assert!(columns(vec![(i64::MAX - 1, 1), (-1, 1)], None).len() == 1 && longest.start_ns() == -1);
        let series = amounts(&[(0, 3), (10, 4), (25, 5)], Some(Span::from_ns(10))).unwrap();
        assert_eq!(series.values(), [Some(3.0), Some(4.0)]);
    }
}
