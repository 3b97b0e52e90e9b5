//! Rates, delays and losses of a link as Debian's iperf3 and ping see them.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use trunkline_io::{Clock, icmp};
use trunkline_lab::Host;
use trunkline_units::Instant;

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

/// The delay of a link: one way, from the call that sends a datagram to the return of the one that receives it, and the round-trip
/// times of ICMP echo messages. The summary of `ping` has their mean only.
pub fn delays() -> Outcome<()> {
    println!(
        "\ndelay of the link   above it, one way: median      p99   round trip: median      p99   ping: mean"
    );
    for delay_ms in [1, 10, 100] {
        let lab = start(&format!("host a, b; link a - b (rate = 10 Gb/s, delay = {delay_ms} ms);"))?;
        let (a, b) = ends(&lab)?;
        let one_way = datagrams(a, b).map_err(|error| format!("datagrams: {error}"))?;
        let times = echo(a, b).map_err(|error| format!("echo: {error}"))?;
        let mut ping = a.command("ping");
        let text = run(ping.args(["-q", "-i", "0.005", "-c", "200"]).arg(b.address.to_string()))?;
        // `rtt min/avg/max/mdev = 2.041/2.057/…`
        let mean = text.split("= ").nth(1).and_then(|times| times.split('/').nth(1)).unwrap_or("?");
        let report = lab.finish().map_err(|error| error.to_string())?;
        let link = f64::from(delay_ms) * 1e3;
        println!(
            "{delay_ms:14} ms {:23.0} us {:5.0} us {:16.0} us {:5.0} us {mean:>8} ms   {}",
            one_way[PINGS / 2] - link,
            one_way[PINGS * 99 / 100] - link,
            times[PINGS / 2] - 2.0 * link,
            times[PINGS * 99 / 100] - 2.0 * link,
            lateness(&report)
        );
    }
    Ok(())
}

/// Sends a datagram every 5 ms; returns the delays in microseconds, in ascending order.
fn datagrams(from: &Host, to: &Host) -> io::Result<Vec<f64>> {
    let receiver = to.namespace.run(|| UdpSocket::bind((to.address, 9)))?;
    receiver.set_read_timeout(Some(Duration::from_secs(1)))?;
    let sender = from.namespace.run(|| UdpSocket::bind((from.address, 9)))?;
    let to = (to.address, 9);
    let clock = Clock::start();
    let sending = std::thread::spawn(move || {
        for _ in 0..PINGS {
            sender.send_to(&clock.now().as_ns().to_be_bytes(), to)?;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok::<(), io::Error>(())
    });
    let mut times = Vec::new();
    while times.len() < PINGS {
        let mut sent_at = [0; 8];
        receiver.recv(&mut sent_at)?;
        times.push(clock.now().since(Instant::from_ns(u64::from_be_bytes(sent_at))).as_us());
    }
    sending.join().map_err(|_| io::Error::other("the sender panicked"))??;
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Sends an echo request every 5 ms; returns the round-trip times in microseconds, in ascending order.
fn echo(from: &Host, to: &Host) -> io::Result<Vec<f64>> {
    let (socket, echo) = from.namespace.run(|| icmp::open(false))?;
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let clock = Clock::start();
    let sending = socket.try_clone()?;
    let to = SocketAddr::from((to.address, 0));
    let sent_at: Arc<Vec<AtomicU64>> = Arc::new((0..PINGS).map(|_| AtomicU64::new(0)).collect());
    let sent = Arc::clone(&sent_at);
    let sender = std::thread::spawn(move || {
        for (number, sent_at) in (0u16..).zip(sent.iter()) {
            sent_at.store(clock.now().as_ns(), Ordering::Release);
            sending.send_to(&echo.request(number), to)?;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok::<(), io::Error>(())
    });
    let (mut times, mut buffer) = (Vec::new(), [0; 256]);
    while times.len() < PINGS {
        let length = socket.recv(&mut buffer)?;
        let now = clock.now();
        if let Some(number) = echo.answer(&buffer[..length]) {
            let sent_at = Instant::from_ns(sent_at[usize::from(number)].load(Ordering::Acquire));
            times.push(now.since(sent_at).as_us());
        }
    }
    sender.join().map_err(|_| io::Error::other("the sender panicked"))??;
    times.sort_by(f64::total_cmp);
    Ok(times)
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
