//! Two network namespaces with a line between them.
//!
//! The namespaces have no names. Nothing but this process holds them, so they go when it does, whatever ends it: nothing is
//! left to be removed after a failure or Ctrl-C.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread::{self, Scope, ScopedJoinHandle};

use nix::sched::{CloneFlags, setns, unshare};

/// What the device at either end is called.
const DEVICE: &str = "line";
/// Bits a second that cross the shaped line, Ethernet's headers included: what the ATM of 1998 left of 155.52 Mb/s.
const RATE: &str = "121.8mbit";
/// What makes packets longer than they are on the line, or joins them.
const OFFLOADS: [&str; 4] = ["tso", "gso", "gro", "tx-udp-segmentation"];

/// An end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    West,
    East,
}

/// Both, and the line.
pub struct Spaces {
    west: File,
    east: File,
}

/// Why there is no line, in a line.
pub type Refused = String;

impl Spaces {
    /// # Errors
    /// The system allows no namespaces, or a program is missing.
    pub fn new() -> Result<Spaces, Refused> {
        let spaces = Spaces { west: space()?, east: space()? };
        // A path to the other namespace that also the programs see.
        let east = format!("/proc/{}/fd/{}", std::process::id(), spaces.east.as_raw_fd());
        let link = ["link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", &east];
        spaces.run(Side::West, "ip", &link)?;
        for side in [Side::West, Side::East] {
            let address = format!("{}/24", side.ip());
            spaces.run(side, "ip", &["address", "add", &address, "dev", DEVICE])?;
            spaces.run(side, "ip", &["link", "set", DEVICE, "mtu", "1500", "up"])?;
            // A socket may have to reach itself.
            spaces.run(side, "ip", &["link", "set", "lo", "up"])?;
            let off: Vec<&str> = OFFLOADS.iter().flat_map(|offload| [*offload, "off"]).collect();
            spaces.run(side, "ethtool", &[&["-K", DEVICE][..], &off].concat())?;
        }
        Ok(spaces)
    }

    /// Gives the line its rate, or takes it away, and the share of packets that it loses either way.
    ///
    /// # Errors
    /// A program is missing, or the kernel cannot do that.
    pub fn shape(&self, shaped: bool, loss: f64) -> Result<(), Refused> {
        for side in [Side::West, Side::East] {
            // There may be none of either.
            let _ = self.run(side, "tc", &["qdisc", "delete", "dev", DEVICE, "root"]);
            let _ = self.run(side, "iptables", &["-F", "INPUT"]);
            if shaped {
                let bucket = ["tbf", "rate", RATE, "burst", "30kb", "latency", "10ms"];
                self.run(side, "tc", &[&["qdisc", "add", "dev", DEVICE, "root"][..], &bucket].concat())?;
            }
            if loss > 0.0 {
                // Not on the loopback, where a socket reaches itself.
                let which = ["-A", "INPUT", "-i", DEVICE, "-m", "statistic", "--mode", "random"];
                let what = ["--probability", &loss.to_string(), "-j", "DROP"];
                self.run(side, "iptables", &[&which[..], &what].concat())?;
            }
        }
        Ok(())
    }

    /// A thread at one end: its sockets, and those of threads that it starts, are there.
    pub fn spawn<'scope, T: Send + 'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        side: Side,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        scope.spawn(move || {
            setns(self.space(side), CloneFlags::CLONE_NEWNET).expect("a namespace of ours");
            work()
        })
    }

    fn space(&self, side: Side) -> &File {
        match side {
            Side::West => &self.west,
            Side::East => &self.east,
        }
    }

    fn run(&self, side: Side, program: &str, words: &[&str]) -> Result<(), Refused> {
        thread::scope(|scope| {
            let run = || Command::new(program).args(words).output();
            let out = self.spawn(scope, side, run).join().expect("a command");
            let out = out.map_err(|error| format!("{program}: {error}"))?;
            let said = String::from_utf8_lossy(&out.stderr);
            match out.status.success() {
                true => Ok(()),
                false => Err(format!("{program} {}: {}", words.join(" "), said.trim())),
            }
        })
    }
}

impl Side {
    fn ip(self) -> Ipv4Addr {
        match self {
            Side::West => Ipv4Addr::new(10, 77, 0, 1),
            Side::East => Ipv4Addr::new(10, 77, 0, 2),
        }
    }

    /// Any port there.
    pub fn address(self) -> SocketAddr {
        (self.ip(), 0).into()
    }
}

/// A new namespace.
fn space() -> Result<File, Refused> {
    let new = || {
        unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from)?;
        File::open("/proc/thread-self/ns/net")
    };
    thread::scope(|scope| scope.spawn(new).join().expect("no panic")).map_err(|e| format!("a namespace: {e}"))
}
