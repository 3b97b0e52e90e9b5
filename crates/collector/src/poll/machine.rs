//! This machine's interfaces, from `/proc/net/dev`.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use trunkline_counters::archive::{Direction, Object, SeriesName, SeriesSpec};
use trunkline_counters::counter::{RawValue, ValueKind};

use super::config::Machine;
use super::report::{Context, DeviceText, Report};
use super::table::{PollTimes, TableBuffer};
use crate::time::Schedule;

/// Counters of `/proc/net/dev`: direction, quantity, unit, column.
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
/// Number of series of an interface: counters, speed, state, number.
const WIDTH: usize = QUANTITIES.len() + 3;
/// Values of `/sys/class/net/…/operstate`, in the order of the `ifOperStatus` values from 1 (RFC 2863).
const STATES: [&str; 7] = ["up", "down", "testing", "unknown", "dormant", "notpresent", "lowerlayerdown"];

/// Polls until the task is dropped; with `once`, once.
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
        let requested_at = context.clock.now();
        let due = if once { requested_at } else { schedule.due() };
        let text = fs::read_to_string("/proc/net/dev").unwrap_or_default();
        let uptime = uptime(&fs::read_to_string("/proc/uptime").unwrap_or_default());
        let mut texts = Vec::new();
        for (name, counts) in interfaces(&text) {
            if !machine.interfaces.is_empty() && !machine.interfaces.iter().any(|wanted| wanted == name) {
                continue;
            }
            let Some(values) = table.row(name, (), |()| series(name)) else { continue };
            for ((.., at), value) in QUANTITIES.iter().zip(values.iter_mut()) {
                *value = counts.get(*at).map(|n| RawValue(*n));
            }
            let attribute =
                |file: &str| fs::read_to_string(format!("/sys/class/net/{name}/{file}")).unwrap_or_default();
            let speed = attribute("speed").trim().parse::<i64>().ok().filter(|mbps| *mbps > 0);
            let state = attribute("operstate").trim().to_owned();
            let [speed_value, state_value, number_value] = &mut values[QUANTITIES.len()..] else { continue };
            *speed_value = speed.map(|mbps| RawValue::from_gauge(mbps.saturating_mul(1_000_000)));
            *state_value = (1..)
                .zip(STATES)
                .find(|(_, text)| *text == state)
                .map(|(number, _)| RawValue::from_gauge(number));
            *number_value = attribute("ifindex").trim().parse().ok().map(RawValue::from_gauge);
            texts.push(DeviceText {
                object: Object::Port(name.into()).to_string(),
                key: "state",
                text: state,
            });
        }
        table.send(
            PollTimes {
                due,
                requested_at,
                answered_at: Some(context.clock.now().max(requested_at.saturating_add(ONE_NS))),
                uptime,
            },
            &context.sink,
        );
        let new: Vec<DeviceText> = texts.iter().filter(|text| !states.contains(text)).cloned().collect();
        states = texts;
        if !new.is_empty() {
            context.sink.send(Report::Texts { device: device.clone(), texts: new, at: context.clock.now() });
        }
        if once {
            return;
        }
        schedule.advance(context.clock.now());
    }
}

/// Answers must arrive after their request.
const ONE_NS: Duration = Duration::from_nanos(1);

/// Parses the names and counters of all interfaces.
fn interfaces(text: &str) -> impl Iterator<Item = (&str, Vec<u64>)> {
    text.lines().skip(2).filter_map(|line| {
        let (name, counts) = line.rsplit_once(": ").or_else(|| line.rsplit_once(':'))?;
        Some((name.trim(), counts.split_ascii_whitespace().map_while(|n| n.parse().ok()).collect()))
    })
}

/// Parses `/proc/uptime` into hundredths of a second, the unit of `sysUpTime`.
fn uptime(text: &str) -> Option<u32> {
    let seconds = text.split_ascii_whitespace().next()?;
    let (whole, part) = seconds.split_once('.')?;
    Some((whole.parse::<u64>().ok()? * 100 + part.get(..2)?.parse::<u64>().ok()?) as u32)
}

fn series(port: &str) -> Vec<SeriesSpec> {
    let named = |direction, quantity: &str| {
        SeriesName { object: Object::Port(port.into()), direction, quantity: quantity.into() }.to_string()
    };
    // A recreated interface has another number and counts from 0.
    let number = named(None, "number");
    let counter = |(direction, quantity, unit, _): (Direction, &str, &str, usize)| SeriesSpec {
        discontinuity: Some(number.clone()),
        ..SeriesSpec::new(named(Some(direction), quantity), ValueKind::Counter64, unit)
    };
    let gauges = [(named(None, "speed"), "bit/s"), (named(None, "state"), ""), (number.clone(), "")]
        .map(|(name, unit)| SeriesSpec::new(name, ValueKind::Gauge, unit));
    QUANTITIES.into_iter().map(counter).chain(gauges).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_net_dev_and_uptime_are_parsed() {
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
