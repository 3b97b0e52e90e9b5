//! Captures, as tshark reads them, beside the counters of the record and the simulator's captures.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use trunkline_io::must::skip;
use trunkline_lab::{CaptureOptions, Lab, LabBackend};
use trunkline_record::Record;
use trunkline_run::message::Header;
use trunkline_sim::Sim;
use trunkline_units::Seed;

use crate::backend::{self, run};
use crate::{HOLD_CAPTURE, plan};

/// Octets of an Ethernet header.
const ETHERNET: u64 = 14;

/// Returns fields of the packets of a capture that a display filter of tshark selects; `None` without tshark.
fn tshark(file: &Path, filter: &str, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-Y", filter, "-T", "fields"]);
    // Where the configuration of root cannot be read.
    command.env("HOME", file.parent().unwrap()).env_remove("XDG_CONFIG_HOME");
    for field in fields {
        command.args(["-e", field]);
    }
    let output = match command.stderr(Stdio::piped()).output() {
        Ok(output) => output,
        Err(error) => {
            skip(format!("tshark: {error}"));
            return None;
        }
    };
    assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

/// Returns the number of packets in a capture and the sum of their octets without Ethernet headers.
fn totals(file: &Path) -> Option<(u64, u64)> {
    let lengths = tshark(file, "frame", &["frame.len"])?;
    let octets: u64 = lengths.iter().map(|fields| fields[0].parse::<u64>().unwrap() - ETHERNET).sum();
    Some((lengths.len() as u64, octets))
}

/// Returns the frames and octets that a node has sent into a link, and the frames lost there.
fn counters(record: &Record, link: &str, node: &str) -> (u64, u64, u64) {
    let link = record.links.iter().find(|other| other.name == link).unwrap();
    let end = link.ends.iter().find(|end| end.node == node).unwrap();
    let &(_, octets, frames, dropped) = end.counts.last().unwrap();
    (frames, octets, dropped)
}

/// Returns the sequence numbers of the measurement messages in a capture, in its order.
fn sequences(file: &Path) -> Option<Vec<u64>> {
    let payloads = tshark(file, "udp", &["udp.payload"])?;
    let sequence = |fields: &Vec<String>| {
        let digits = fields[0].as_bytes().chunks(2);
        let bytes = digits.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap());
        Header::peek(&bytes.collect::<Vec<u8>>()).unwrap().1.sequence
    };
    Some(payloads.iter().map(sequence).collect())
}

/// A capture has what the link has counted, in order; its packets are those of the simulator's capture, with the same losses.
pub fn a_capture_has_what_the_link_carried() {
    let text = "experiment \"capture\" { network {
            host a, b; switch s; link a - s (rate = 100 Mb/s); link s - b (rate = 10 Mb/s, delay = 2 ms, loss = 0.05);
        }
        connection x { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 500, period = 2 ms); messages = 500; }
    }";
    let trace: Vec<String> = ["a-s:a", "a-s:s", "s-b", "b"].map(str::to_owned).into();
    let [sim, lab] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    run(&mut Sim { trace: trace.clone(), ..Sim::default() }, sim.path(), text);
    let record = run(&mut LabBackend { trace, ..backend::lab() }, lab.path(), text);
    assert_eq!((record.problems.len(), record.environment.get("captures_lost")), (0, None));
    let file = |name: &str| lab.path().join(format!("{name}.pcapng"));
    let (frames, octets, _) = counters(&record, "a-s", "a");
    let Some(sent) = totals(&file("a-s_a")) else { return };
    assert_eq!(sent, (frames, octets));
    let (frames, octets, _) = counters(&record, "a-s", "s");
    assert_eq!(totals(&file("a-s_s")), Some((frames, octets)));
    // Frames that are lost on the line are not in the capture.
    let ([s, b], lost) = (["s", "b"].map(|node| counters(&record, "s-b", node)), record.links[1].dropped);
    assert!(lost > 5, "{lost}");
    assert_eq!(totals(&file("s-b")).unwrap().0, s.0 + b.0 - lost);
    // What arrives at the host, and what it sends.
    assert_eq!(totals(&file("b")).unwrap().0, s.0 + b.0 - s.2);
    for name in ["a-s_a", "s-b", "b"] {
        let stamps = tshark(&file(name), "frame", &["frame.time_epoch"]).unwrap();
        assert!(stamps.iter().map(|fields| &fields[0]).is_sorted(), "{name}");
        let malformed = tshark(&file(name), "_ws.malformed || ip.checksum.status == 0", &["frame.number"]);
        assert_eq!(malformed, Some(Vec::new()), "{name}");
    }
    let [ours, simulated] = [lab.path(), sim.path()].map(|folder| sequences(&folder.join("s-b.pcapng")));
    assert_eq!(ours.as_ref().map(Vec::len), Some(500 - lost as usize));
    assert_eq!(ours, simulated);
}

/// A capture can be read while its lab runs, and after the lab was killed.
pub fn the_capture_of_a_killed_lab_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut lab = Command::new(std::env::current_exe().unwrap());
    let mut lab = lab.arg(HOLD_CAPTURE).arg(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0; 5];
    std::io::Read::read_exact(lab.stdout.as_mut().unwrap(), &mut line).unwrap();
    let file = folder.path().join("a-b.pcapng");
    let length = || fs::metadata(&file).unwrap().len();
    // The writer writes what it has before this ends.
    let complete = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        length() > 6 * 64
    });
    let count = || tshark(&file, "icmp", &["frame.number"]).map(|packets| packets.len());
    let before = count();
    lab.kill().unwrap();
    lab.wait().unwrap();
    assert!(complete, "{} bytes", length());
    assert!(before.is_none_or(|before| before > 0) && count() >= before, "{before:?} {:?}", count());
}

/// Captures pings until the process is killed.
pub fn hold(folder: &Path) -> ! {
    let options = CaptureOptions { names: vec!["a-b".into()], folder: folder.into() };
    let plan = plan("host a, b; link a - b (rate = 10 Mb/s);");
    let lab = Lab::start_captured(&plan, Seed(1), &options).unwrap();
    let mut ping = lab.host("a").unwrap().command("ping");
    let status = ping.args(["-q", "-c", "3", "-i", "0.05", "10.0.0.2"]).stdout(Stdio::null()).status();
    assert!(status.unwrap().success());
    println!("ready");
    loop {
        std::thread::park();
    }
}
