//! What a host spends on multicast groups: those it wants, those it must refuse, and joining them (section 4.2 of the
//! thesis of 1997, table 4-1).
//!
//! One thread sends at a rate to so many groups in turn, another has joined a share of them and receives. Over the
//! loopback nothing filters but the network layer: no card's hash, no switch. Groups are joined on sockets of their own,
//! [`A_SOCKET`] on each, as many as a socket may join by default; the one that receives hears them all.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use serde::Serialize;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use trunkline_io::Clock;
use trunkline_io::usage::thread_time;
use trunkline_units::{Instant, Span};

use super::StudyError;
use super::traffic::{Load, Loops, ROOM, run};

/// Groups that are sent to.
pub const GROUPS: [usize; 6] = [10, 50, 200, 500, 1_000, 2_000];
/// Shares of them that are joined, in percent: those of table 4-1, and none.
pub const SHARES: [u32; 7] = [0, 10, 20, 40, 60, 80, 100];
/// Packets a second, and their bytes.
pub const RATE: u32 = 2_000;
/// Bytes of a packet.
pub const SIZE: usize = 150;
/// Groups that a socket joins.
pub const A_SOCKET: usize = 20;
/// Groups whose joining is timed: all that 65,536 message addresses need.
pub const JOINED: usize = 2_048;
/// The first group. They are of the organisation (RFC 2365), and go no farther than this machine.
const FIRST: Ipv4Addr = Ipv4Addr::new(239, 77, 64, 0);
/// The shortest that a figure is measured.
const SHORTEST: Span = Span::from_ms(20);

/// What was measured: samples are run by run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Multicast {
    /// How often everything was measured.
    pub runs: usize,
    /// Every number of groups with every share.
    pub cells: Vec<Cell>,
    /// To join [`JOINED`] groups, a group, and to leave them.
    pub join: Vec<Joining>,
}

/// So many groups, of which a share is joined.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Groups that are sent to.
    pub groups: usize,
    /// The share that is joined, in percent.
    pub share_percent: u32,
    /// Of one processor, by the thread that receives.
    pub receiver_percent: Vec<Option<f64>>,
    /// Of one processor, by everything: what timed loops lost. None where the machine was busy before.
    pub taken_percent: Vec<Option<f64>>,
}

/// What joining and leaving cost, in microseconds a group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Joining {
    /// From before the first until after the last.
    pub join_us: f64,
    /// Processor time of it.
    pub join_cpu_us: f64,
    /// To leave.
    pub leave_us: f64,
}

/// Measures everything `runs` times, in about `budget`; `progress` is told how much of all is done, 0 to 1.
///
/// # Errors
/// [`StudyError`] where the loopback does not carry what it should, or may not join.
pub fn multicast(runs: usize, budget: Span, mut progress: impl FnMut(f64)) -> Result<Multicast, StudyError> {
    let steps = runs * GROUPS.len() * SHARES.len();
    let time = (budget / (2 * steps) as u64).max(SHORTEST);
    let mut found = Multicast { runs, cells: Vec::new(), join: Vec::new() };
    for groups in GROUPS {
        for share_percent in SHARES {
            let (receiver_percent, taken_percent) = (Vec::new(), Vec::new());
            found.cells.push(Cell { groups, share_percent, receiver_percent, taken_percent });
        }
    }
    let refused = |cause| StudyError::Message { size: SIZE, cause };
    for run in 0..runs {
        found.join.push(joining().map_err(refused)?);
        for turn in 0..found.cells.len() {
            let at = if run % 2 == 0 { turn } else { found.cells.len() - 1 - turn };
            let cell = &mut found.cells[at];
            let members = Members::join(cell.groups * cell.share_percent as usize / 100).map_err(refused)?;
            cell.receiver_percent.push(Some(members.hear(cell.groups, time).map_err(refused)?));
            let loops = Loops::start(time).map_err(refused)?;
            let mark = loops.mark();
            members.hear(cell.groups, time).map_err(refused)?;
            cell.taken_percent.push(loops.taken(mark));
            progress((run * GROUPS.len() * SHARES.len() + turn + 1) as f64 / steps as f64);
        }
    }
    Ok(found)
}

/// The group of a number.
fn group(number: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(FIRST) + number as u32)
}

/// Sockets that have joined, and the one that hears.
struct Members {
    hears: UdpSocket,
    #[allow(dead_code, reason = "they are members as long as they are open")]
    holders: Vec<Socket>,
}

impl Members {
    /// Of the first `count` groups.
    fn join(count: usize) -> io::Result<Members> {
        let hears = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        hears.set_recv_buffer_size(ROOM)?;
        // It hears what any socket of this machine has joined.
        hears.set_multicast_all_v4(true)?;
        hears.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into())?;
        Ok(Members { hears: hears.into(), holders: hold(count)? })
    }

    /// Hears for a while what is sent to the first `groups` groups; the share of a processor that it costs, in percent.
    fn hear(&self, groups: usize, time: Span) -> io::Result<f64> {
        let port = self.hears.local_addr()?.port();
        let says = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        says.set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
        says.set_multicast_ttl_v4(0)?;
        let (says, packet) = (UdpSocket::from(says), [0x55; SIZE]);
        let send = |_: Instant, number: Option<u64>| match number {
            Some(number) => says.send_to(&packet, (group(number as usize % groups), port)).map(|_| ()),
            None => Ok(()),
        };
        let load = Load { rate: RATE.into(), time };
        Ok(run(load, Span::MAX, &self.hears, send, |_| 1)?.percent())
    }
}

/// Sockets that are members of the first `count` groups.
fn hold(count: usize) -> io::Result<Vec<Socket>> {
    let mut holders = Vec::new();
    for number in 0..count {
        if number % A_SOCKET == 0 {
            holders.push(Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?);
        }
        let holder = holders.last().expect("one was made");
        let here = InterfaceIndexOrAddress::Address(Ipv4Addr::LOCALHOST);
        holder.join_multicast_v4_n(&group(number), &here)?;
    }
    Ok(holders)
}

fn joining() -> io::Result<Joining> {
    let clock = Clock::start();
    let (begun, used) = (clock.now(), thread_time());
    let holders = hold(JOINED)?;
    let (joined, used) = (clock.now(), thread_time() - used);
    drop(holders);
    let a_group = |span: Span| span.as_ns() as f64 / 1e3 / JOINED as f64;
    Ok(Joining {
        join_us: a_group(joined.since(begun)),
        join_cpu_us: a_group(used),
        leave_us: a_group(clock.now().since(joined)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::traffic::Took;
    use std::sync::Mutex;

    use super::*;

    /// What one test joins the other would hear.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn groups_that_were_joined_come_and_others_do_not() {
        let _alone = ALONE.lock();
        for (joined, least, most) in [(0, 0, 0), (2, 1, u64::MAX)] {
            let members = Members::join(joined).expect("the loopback has groups");
            let port = members.hears.local_addr().unwrap().port();
            let says = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket2::SockRef::from(&says).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
            let send = |_: Instant, number: Option<u64>| match number {
                Some(number) => says.send_to(&[1; SIZE], (group(number as usize % 4), port)).map(|_| ()),
                None => Ok(()),
            };
            let load = Load { rate: 1_000.0, time: Span::from_ms(50) };
            let took: Took = run(load, Span::MAX, &members.hears, send, |_| 1).unwrap();
            assert!(took.sent >= 4 && (least..=most).contains(&took.received), "{joined}: {took:?}");
            // Of four groups in turn two are joined.
            assert!(took.received <= took.sent / 2 + 2, "{joined}: {took:?}");
        }
    }

    #[test]
    fn joining_costs_something() {
        let _alone = ALONE.lock();
        let Joining { join_us, join_cpu_us, leave_us } = joining().expect("all may join");
        assert!(join_us > 0.0 && join_cpu_us > 0.0 && leave_us > 0.0);
    }
}
