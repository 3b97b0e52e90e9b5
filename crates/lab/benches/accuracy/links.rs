//! Rates, delays and losses of a link as Debian's iperf3 and ping see them.

use crate::{Outcome, ends, iperf3, lateness, run, start};

/// Payload of a TCP segment with timestamps, and bytes of its Ethernet frame with preamble and gap.
const PAYLOAD: f64 = 1448.0;
const FRAME: f64 = 1538.0;
/// Pings of a delay.
const PINGS: usize = 1000;

/// The rate of a link, from the goodput of a TCP transfer.
pub fn rates() -> Outcome<()> {
    println!("\nrate of the link   iperf3 goodput   rate of the frames   error");
    for mbps in [10, 100, 1000] {
        let lab = start(&format!(
            "host a, b; switch s (buffer = 500 packets); link a - s (rate = 10 Gb/s); link s - b (rate = {mbps} Mb/s, delay = 1 ms);"
        ))?;
        let (a, b) = ends(&lab)?;
        let address = b.address.to_string();
        // The first second, with slow start, is omitted.
        let client = || a.command("iperf3");
        let json = iperf3(b.command("iperf3"), &client, &["-t", "5", "-O", "1", "-c", &address])?;
        let goodput = json["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or_default() / 1e6;
        let rate = goodput * FRAME / PAYLOAD;
        let report = lab.finish().map_err(|error| error.to_string())?;
        let error = (rate / f64::from(mbps) - 1.0) * 100.0;
        println!(
            "{mbps:11} Mb/s  {goodput:10.2} Mb/s  {rate:14.2} Mb/s  {error:+.2} %   {}",
            lateness(&report)
        );
    }
    Ok(())
}

/// The delay of a link, from the round-trip times of pings.
pub fn delays() -> Outcome<()> {
    println!("\nround trip of the link   ping: median       p99   above the link: median    p99");
    for delay_ms in [1, 10, 100] {
        let lab = start(&format!("host a, b; link a - b (rate = 10 Gb/s, delay = {delay_ms} ms);"))?;
        let (a, b) = ends(&lab)?;
        let mut ping = a.command("ping");
        let ping = ping.args(["-i", "0.005", "-c", &PINGS.to_string()]).arg(b.address.to_string());
        let text = run(ping)?;
        let mut times: Vec<f64> = text
            .lines()
            .filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse().ok())
            .collect();
        if times.len() < PINGS {
            return Err(format!("{} of {PINGS} pings were answered", times.len()));
        }
        times.sort_by(f64::total_cmp);
        let report = lab.finish().map_err(|error| error.to_string())?;
        let (median, p99, link) = (times[PINGS / 2], times[PINGS * 99 / 100], f64::from(2 * delay_ms));
        println!(
            "{link:19} ms  {median:12.3} ms  {p99:7.3} ms  {:14.0} us  {:9.0} us   {}",
            (median - link) * 1e3,
            (p99 - link) * 1e3,
            lateness(&report)
        );
    }
    Ok(())
}

/// The losses of a link in both directions, from unanswered pings.
pub fn losses() -> Outcome<()> {
    println!("\nloss of the link   unanswered of {PINGS}0 pings   expected, with four standard deviations");
    for loss in [0.01, 0.1] {
        let lab = start(&format!("host a, b; link a - b (rate = 10 Gb/s, loss = {loss});"))?;
        let (a, b) = ends(&lab)?;
        let count = PINGS * 10;
        let mut ping = a.command("ping");
        let ping = ping.args(["-q", "-i", "0.0005", "-W", "0.2", "-c", &count.to_string()]);
        let text = run(ping.arg(b.address.to_string()))?;
        let received =
            text.split(" received").next().and_then(|text| text.rsplit(' ').next()?.parse::<f64>().ok());
        let lost = count as f64 - received.unwrap_or_default();
        let both = 1.0 - (1.0 - loss) * (1.0 - loss);
        let (mean, bound) = (count as f64 * both, 4.0 * (count as f64 * both * (1.0 - both)).sqrt());
        lab.finish().map_err(|error| error.to_string())?;
        println!("{:13} %  {lost:16}  {mean:.0} ± {bound:.0}", loss * 100.0);
    }
    Ok(())
}
