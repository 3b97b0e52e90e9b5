//! This machine's interfaces, from `/proc/net/dev`.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use trunkline_counters::archive::{Direction, Object, SeriesName, SeriesSpec};
use trunkline_counters::counter::{RawValue, ValueKind};

use super::config::Machine;
use super::context::Context;
use super::report::{DeviceText, Report};
use super::table::{PollTimes, TableBuffer};
use crate::time::Schedule;

/// What `/proc/net/dev` counts: which way, what, in which unit, and in which column.
const QUANTITIES: [(Direction, &str, &str, usize); 9] = [
    (Direction::In, "octets", "octets", 0),
    (Direction::In, "packets", "packets", 1),
    (Direction::In, "multicast-packets", "packets", 7),
    (Direction::In, "discards", "packets", 3),
    (Direction::In, "errors", "packets", 2),
    (Direction::Out, "octets", "octets", 8),
    (Direction::Out, "packets", "packets", 9),
    (Direction::Out, "discards", "packets", 11),
    (Direction::Out, "errors", "packets", 10),
];
/// Series of an interface: counters, speed, state, number.
const WIDTH: usize = QUANTITIES.len() + 3;
/// States as `/sys/class/net/…/operstate` has them, by their numbers from 1 on (RFC 2863, `ifOperStatus`).
const STATES: [&str; 7] = ["up", "down", "testing", "unknown", "dormant", "notpresent", "lowerlayerdown"];

/// Polls until it is ended; with `once` once.
pub async fn run(machine: Machine, context: Context, number: usize, phase: f64, once: bool) {
    let every = (machine.period, Some(Duration::ZERO));
    let mut table: TableBuffer<()> = TableBuffer::new(number, &machine.name, "interfaces", every, WIDTH);
    let mut schedule = Schedule::new(context.clock.now(), machine.period, phase);
    let device: Arc<str> = Arc::from(machine.name.as_str());
    let mut states: Vec<DeviceText> = Vec::new();
    loop {
        if !once {
            context.clock.sleep_until(schedule.due()).await;
        }
        let asked = context.clock.now();
        let due = if once { asked } else { schedule.due() };
        let text = fs::read_to_string("/proc/net/dev").unwrap_or_default();
        let uptime = uptime(&fs::read_to_string("/proc/uptime").unwrap_or_default());
        let mut words = Vec::new();
        for (name, counts) in interfaces(&text) {
            if !machine.interfaces.is_empty() && !machine.interfaces.iter().any(|wanted| wanted == name) {
                continue;
            }
            let Some(values) = table.row(name, (), |()| series(name)) else { continue };
            for ((.., at), value) in QUANTITIES.iter().zip(values.iter_mut()) {
                *value = counts.get(*at).map(|n| RawValue(*n));
            }
            let about =
                |file: &str| fs::read_to_string(format!("/sys/class/net/{name}/{file}")).unwrap_or_default();
            let speed = about("speed").trim().parse::<i64>().ok().filter(|mega| *mega > 0);
            let state = about("operstate").trim().to_owned();
            let [to_speed, to_state, to_number] = &mut values[QUANTITIES.len()..] else { continue };
            *to_speed = speed.map(|mega| RawValue::from_gauge(mega.saturating_mul(1_000_000)));
            *to_state = (1..)
                .zip(STATES)
                .find(|(_, word)| *word == state)
                .map(|(number, _)| RawValue::from_gauge(number));
            *to_number = about("ifindex").trim().parse().ok().map(RawValue::from_gauge);
            words.push(DeviceText {
                object: Object::Port(name.into()).to_string(),
                key: "state",
                text: state,
            });
        }
        table.send(
            PollTimes {
                due,
                requested_at: asked,
                answered_at: Some(context.clock.now().max(asked.saturating_add(ONE))),
                uptime,
            },
            &context.sink,
        );
        let new: Vec<DeviceText> = words.iter().filter(|word| !states.contains(word)).cloned().collect();
        states = words;
        if !new.is_empty() {
            context.sink.send(Report::Texts { device: device.clone(), texts: new, at: context.clock.now() });
        }
        if once {
            return;
        }
        schedule.advance(context.clock.now());
    }
}

const ONE: Duration = Duration::from_nanos(1);

/// Names and counts of all interfaces.
fn interfaces(text: &str) -> impl Iterator<Item = (&str, Vec<u64>)> {
    text.lines().skip(2).filter_map(|line| {
        let (name, counts) = line.rsplit_once(": ").or_else(|| line.rsplit_once(':'))?;
        Some((name.trim(), counts.split_ascii_whitespace().map_while(|n| n.parse().ok()).collect()))
    })
}

/// Of `/proc/uptime`, in hundredths of a second as `sysUpTime` is.
fn uptime(text: &str) -> Option<u32> {
    let seconds = text.split_ascii_whitespace().next()?;
    let (whole, part) = seconds.split_once('.')?;
    Some((whole.parse::<u64>().ok()? * 100 + part.get(..2)?.parse::<u64>().ok()?) as u32)
}

fn series(port: &str) -> Vec<SeriesSpec> {
    let named = |direction, quantity: &str| {
        SeriesName { object: Object::Port(port.into()), direction, quantity: quantity.into() }.to_string()
    };
    // An interface that was made anew has another number, and counts from 0.
    let mark = named(None, "number");
    let counter = |(direction, quantity, unit, _): (Direction, &str, &str, usize)| SeriesSpec {
        name: named(Some(direction), quantity),
        kind: ValueKind::Counter64,
        unit: unit.into(),
        ceiling: None,
        discontinuity: Some(mark.clone()),
    };
    let gauge = |name: String, unit: &str| SeriesSpec {
        name,
        kind: ValueKind::Gauge,
        unit: unit.into(),
        ceiling: None,
        discontinuity: None,
    };
    let gauges =
        [gauge(named(None, "speed"), "bit/s"), gauge(named(None, "state"), ""), gauge(mark.clone(), "")];
    QUANTITIES.into_iter().map(counter).chain(gauges).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read() {
        let text = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 2776770   11307    0    0    0     0          0         0  2776770   11307    0    0    0     0       0          0
  eth0:18446744073709551615    1    2    3    4     5          6         7  8   9    10    11    0     0       0          0
eth0:1:   1    1    2    3    4     5          6         7  8   9    10    11    0     0       0          0
";
        let all: Vec<_> = interfaces(text).collect();
        assert_eq!(all.iter().map(|(n, _)| *n).collect::<Vec<_>>(), ["lo", "eth0", "eth0:1"]);
        assert_eq!(all[0].1[8], 2_776_770);
        assert_eq!(all[1].1[..12], [u64::MAX, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(uptime("350735.47 234388.90\n"), Some(35_073_547));
        assert_eq!(uptime(""), None);
        assert_eq!(series("a").len(), WIDTH);
    }
}
