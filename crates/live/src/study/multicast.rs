//! Measures what a host spends on multicast groups: those it has joined, those it must filter, and joining them
//! (section 4.2 and table 4-1 of Bobo, 1997).
//!
//! One thread sends at a rate to groups in turn; another has joined a share of them and receives. Over the loopback
//! only the network layer filters: no card's hash and no switch. Groups are joined on separate sockets,
//! [`GROUPS_PER_SOCKET`] on each, the default limit of a socket; the receiver gets the messages of all.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use serde::Serialize;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use trunkline_io::Clock;
use trunkline_io::usage::thread_cpu_time;
use trunkline_units::{Instant, Span};

use super::traffic::{IdleLoops, Load, RECEIVE_BUFFER, run};
use super::{StudyError, message_error};

/// Numbers of groups.
pub const GROUPS: [usize; 6] = [10, 50, 200, 500, 1_000, 2_000];
/// Shares of the groups that are joined, in percent: those of table 4-1, and none.
pub const SHARES: [u32; 7] = [0, 10, 20, 40, 60, 80, 100];
/// Packets a second.
pub const RATE: u32 = 2_000;
/// Bytes of a packet.
pub const SIZE: usize = 150;
/// Groups joined by one socket.
pub const GROUPS_PER_SOCKET: usize = 20;
/// Groups for the measurement of joining: all that 65,536 message addresses need.
pub const JOINED_GROUPS: usize = 2_048;
/// The first group, of organization-local scope (RFC 2365). Messages do not leave this machine.
const FIRST_GROUP: Ipv4Addr = Ipv4Addr::new(239, 77, 64, 0);
/// Minimum duration of a measurement.
const MIN_DURATION: Span = Span::from_ms(20);

/// Results; samples are in the order of the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Multicast {
    /// Number of runs.
    pub runs: usize,
    /// Every number of groups with every share.
    pub cells: Vec<Cell>,
    /// Costs of joining and leaving [`JOINED_GROUPS`] groups, per group.
    pub join: Vec<JoinCost>,
}

/// A number of groups, of which a share is joined.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Number of groups.
    pub groups: usize,
    /// Share that is joined, in percent.
    pub share_percent: u32,
    /// Processor share of the receiving thread, in percent.
    pub receiver_percent: Vec<Option<f64>>,
    /// Processor share of everything, in percent, measured with idle loops. `None` where the machine was busy before.
    pub taken_percent: Vec<Option<f64>>,
}

/// Costs of joining and leaving, in microseconds a group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct JoinCost {
    /// Elapsed time of joining.
    pub join_us: f64,
    /// Processor time of joining.
    pub join_cpu_us: f64,
    /// Elapsed time of leaving.
    pub leave_us: f64,
}

/// Measures everything `runs` times in about `budget`; `progress` receives the share that is done, 0 to 1.
///
/// # Errors
/// Returns [`StudyError`] if the loopback fails or groups cannot be joined.
pub fn multicast(runs: usize, budget: Span, mut progress: impl FnMut(f64)) -> Result<Multicast, StudyError> {
    let steps = runs * GROUPS.len() * SHARES.len();
    let time = (budget / (2 * steps) as u64).max(MIN_DURATION);
    let mut study = Multicast { runs, cells: Vec::new(), join: Vec::new() };
    for groups in GROUPS {
        for share_percent in SHARES {
            let (receiver_percent, taken_percent) = (Vec::new(), Vec::new());
            study.cells.push(Cell { groups, share_percent, receiver_percent, taken_percent });
        }
    }
    let message_error = message_error(SIZE);
    for run in 0..runs {
        study.join.push(measure_join().map_err(&message_error)?);
        for step in 0..study.cells.len() {
            let index = if run % 2 == 0 { step } else { study.cells.len() - 1 - step };
            let cell = &mut study.cells[index];
            let members =
                Members::join(cell.groups * cell.share_percent as usize / 100).map_err(&message_error)?;
            cell.receiver_percent
                .push(Some(members.measure_receiver(cell.groups, time).map_err(&message_error)?));
            let idle_loops = IdleLoops::start(time).map_err(&message_error)?;
            let snapshot = idle_loops.snapshot();
            members.measure_receiver(cell.groups, time).map_err(&message_error)?;
            cell.taken_percent.push(idle_loops.taken_percent(snapshot));
            progress((run * GROUPS.len() * SHARES.len() + step + 1) as f64 / steps as f64);
        }
    }
    Ok(study)
}

fn group(number: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(FIRST_GROUP) + number as u32)
}

/// The receiving socket and the sockets that have joined groups.
struct Members {
    receiver: UdpSocket,
    #[allow(dead_code, reason = "membership ends when a socket is closed")]
    members: Vec<Socket>,
}

impl Members {
    /// Joins the first `count` groups.
    fn join(count: usize) -> io::Result<Members> {
        let receiver = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        receiver.set_recv_buffer_size(RECEIVE_BUFFER)?;
        // It receives the messages of all groups that any socket of this machine has joined.
        trunkline_io::socket::set_multicast_all(&receiver, true)?;
        receiver.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into())?;
        Ok(Members { receiver: receiver.into(), members: join_groups(count)? })
    }

    /// Receives for `time` messages that are sent to the first `groups` groups; returns the processor share in
    /// percent.
    fn measure_receiver(&self, groups: usize, time: Span) -> io::Result<f64> {
        let port = self.receiver.local_addr()?.port();
        let sender = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        sender.set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
        sender.set_multicast_ttl_v4(0)?;
        let (sender, packet) = (UdpSocket::from(sender), [0x55; SIZE]);
        let send = |_: Instant, number: Option<u64>| match number {
            Some(number) => sender.send_to(&packet, (group(number as usize % groups), port)).map(|_| ()),
            None => Ok(()),
        };
        let load = Load { rate: RATE.into(), time };
        Ok(run(load, Span::MAX, &self.receiver, send, |_| 1)?.percent())
    }
}

/// Returns sockets that are members of the first `count` groups.
fn join_groups(count: usize) -> io::Result<Vec<Socket>> {
    let mut members = Vec::new();
    for number in 0..count {
        if number % GROUPS_PER_SOCKET == 0 {
            members.push(Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?);
        }
        let socket = members.last().expect("the first iteration adds one");
        let interface = InterfaceIndexOrAddress::Address(Ipv4Addr::LOCALHOST);
        socket.join_multicast_v4_n(&group(number), &interface)?;
    }
    Ok(members)
}

fn measure_join() -> io::Result<JoinCost> {
    let clock = Clock::start();
    let (started_at, cpu_before) = (clock.now(), thread_cpu_time());
    let members = join_groups(JOINED_GROUPS)?;
    let (joined_at, cpu_time) = (clock.now(), thread_cpu_time() - cpu_before);
    drop(members);
    let per_group_us = |span: Span| span.as_ns() as f64 / 1e3 / JOINED_GROUPS as f64;
    Ok(JoinCost {
        join_us: per_group_us(joined_at.since(started_at)),
        join_cpu_us: per_group_us(cpu_time),
        leave_us: per_group_us(clock.now().since(joined_at)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::traffic::LoadResult;
    use std::sync::Mutex;

    use super::*;

    /// The tests would receive each other's messages.
    static EXCLUSIVE: Mutex<()> = Mutex::new(());

    #[test]
    fn only_joined_groups_are_received() {
        let _guard = EXCLUSIVE.lock();
        for (joined, min, max) in [(0, 0, 0), (2, 1, u64::MAX)] {
            let members = Members::join(joined).expect("the loopback supports groups");
            let port = members.receiver.local_addr().unwrap().port();
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket2::SockRef::from(&sender).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
            let send = |_: Instant, number: Option<u64>| match number {
                Some(number) => sender.send_to(&[1; SIZE], (group(number as usize % 4), port)).map(|_| ()),
                None => Ok(()),
            };
            let load = Load { rate: 1_000.0, time: Span::from_ms(50) };
            let result: LoadResult = run(load, Span::MAX, &members.receiver, send, |_| 1).unwrap();
            assert!(result.sent >= 4 && (min..=max).contains(&result.received), "{joined}: {result:?}");
            // At most two of four groups are joined.
            assert!(result.received <= result.sent / 2 + 2, "{joined}: {result:?}");
        }
    }

    #[test]
    fn joining_takes_time() {
        let _guard = EXCLUSIVE.lock();
        let JoinCost { join_us, join_cpu_us, leave_us } = measure_join().expect("all may join");
        assert!(join_us > 0.0 && join_cpu_us > 0.0 && leave_us > 0.0);
    }
}
