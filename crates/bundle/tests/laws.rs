//! Every endpoint obeys the laws of endpoints in every format, for any input.

use trunkline_bundle::bundler::Timing;
use trunkline_bundle::central::{Central, CentralConfig};
use trunkline_bundle::host::{self, Host};
use trunkline_bundle::level::Medium;
use trunkline_bundle::level1::Level1;
use trunkline_bundle::regulator::Congestion;
use trunkline_bundle::settings::{Fanout, Format2};
use trunkline_bundle::wire::format2::control::{Control, RangeChanges};
use trunkline_bundle::wire::format2::{BundleBuilder, Header, Message, Role, packet_address};
use trunkline_bundle::{Format, Settings};
use trunkline_endpoint::laws::{Checked, check_laws};
use trunkline_endpoint::{Endpoint, Input, Peer, Port};
use trunkline_units::{Instant, Seed, Span, Stream};

fn settings(draw: u64) -> Settings {
    let timing = [Timing::CLASSIC, Timing::LEAST_PROCESSOR, Timing::LEAST_DELAY][draw as usize % 3];
    let fanout = if draw & 1 == 0 { Fanout::Unicast } else { Fanout::Broadcast };
    let congestion = if draw & 2 == 0 { Congestion::Levels } else { Congestion::Rates };
    let format2 = Format::Format2(Format2 { fanout, congestion, max_hosts: 3, ..Format2::default() });
    let format = if draw & 4 == 0 { format2 } else { Format::Classic };
    Settings { timing, pairs: draw & 8 == 0, format, ..Settings::default() }
}

/// Returns a plausible bundle: mostly of few senders, incarnations and sessions, with all kinds of contents.
fn bundle(role: Role, draw: &mut Stream) -> Vec<u8> {
    let few = |draw: &mut Stream| draw.below(4) as u32;
    let mut builder = BundleBuilder::new(1_472);
    let ranges =
        [RangeChanges::encode(few(draw), 40), RangeChanges::encode(64, 64 + few(draw) * 40)].concat();
    let mut packets = [0; 256];
    packets[draw.below(3) as usize] = draw.bits() as u8;
    for _ in 0..draw.below(4) {
        let number = few(draw);
        builder.push_control(&match draw.below(10) {
            0 => Control::Join(RangeChanges::new(number, &ranges)),
            1 => Control::Drop(RangeChanges::new(number, &ranges[..8])),
            2 => Control::Confirmed(number),
            3 => Control::Assign { version: number, packets: &packets },
            4 => Control::Assigned(number),
            5 => Control::Ack { next: number as u16, beyond: u64::from(few(draw)) },
            6 => Control::Level { level: 3 + number as u8, rate: [9_000, u32::MAX][few(draw) as usize % 2] },
            7 => Control::Saturation(number * 100),
            8 => Control::Report { received: number * 9, lost: number },
            _ if draw.chance(0.9) => Control::Confirmed(0),
            _ => Control::Bye,
        });
    }
    let number = if role == Role::Central { 0 } else { 1 + few(draw) as u16 };
    let incarnation = 1 + few(draw);
    for _ in 0..draw.below(4) {
        let priority = draw.chance(0.5);
        let source =
            if role == Role::Host { 1 << 16 | u32::from(number) } else { few(draw) << 16 | few(draw) };
        builder.push(&Message {
            address: draw.below(90) as u32,
            source,
            incarnation,
            sequence: few(draw) * 50,
            max_wait_10us: [65_535, 7][few(draw) as usize % 2],
            priority,
            reliable: (priority && draw.chance(0.7)).then(|| few(draw) as u16),
            body: &[7; 200][..draw.below(200) as usize],
        });
    }
    let to = if role == Role::Central { few(draw) as u16 % 2 } else { 0 };
    let (session, before) = (few(draw), few(draw));
    let header = Header { role, number, receiver: to, incarnation, session, sent_before: before };
    let mut bytes = vec![0; builder.octets()];
    builder.finish(&header, &mut bytes);
    bytes
}

fn deliver<E: Endpoint>(machine: &mut Checked<E>, now: Instant, port: Port, bytes: &[u8], draw: &mut Stream) {
    let peer = Peer::new(&[draw.below(3) as u8]);
    machine.handle(now, Input::Frame { port, peer, bytes, segment: None }).expect("frames are not refused");
}

#[test]
fn hosts_obey_the_endpoint_laws() {
    for seed in 0..32 {
        check_laws(
            Seed(seed),
            || Host::new(1, 1, settings(seed)),
            |host, now, draw| {
                let address = draw.below(90) as u32;
                let (mut body, mut from) = (vec![1; draw.below(1_600) as usize], None);
                let max_wait_10us = draw.chance(0.2).then(|| Span::from_us(draw.below(9_000)));
                let _ = host.handle(
                    now,
                    Input::Command(match draw.below(9) {
                        0 => {
                            let message = host::OutgoingMessage::new(&settings(seed), address, &body);
                            host::HostCommand::Send(message)
                        }
                        1 => {
                            let priority = draw.chance(0.5);
                            host::HostCommand::Send(host::OutgoingMessage {
                                address,
                                priority,
                                max_wait: max_wait_10us,
                                body: &body,
                            })
                        }
                        2 => host::HostCommand::Join { first: address, last: address },
                        3 => host::HostCommand::Drop { first: address / 2, last: address },
                        4 => {
                            host::HostCommand::Join { first: address, last: address + draw.below(99) as u32 }
                        }
                        5 => host::HostCommand::Saturate(draw.chance(0.5).then_some(50)),
                        6 if draw.chance(0.1) => host::HostCommand::Bye,
                        _ => host::HostCommand::Receive { into: &mut body, from: &mut from },
                    }),
                );
                for _ in 0..draw.below(3) {
                    deliver(host, now, Host::CENTRAL, &bundle(Role::Central, draw), draw);
                }
            },
        );
    }
}

#[test]
fn level_1_obeys_the_endpoint_laws() {
    for seed in 0..32 {
        check_laws(
            Seed(seed),
            || Level1::new(1, 1, settings(seed)),
            |level1, now, draw| {
                deliver(level1, now, Level1::CENTRAL, &bundle(Role::Central, draw), draw);
                let address = draw.below(90) as u32;
                let mut builder = BundleBuilder::new(1_472);
                builder.push(&Message {
                    address,
                    source: 5 << 16,
                    incarnation: 1,
                    sequence: 1,
                    max_wait_10us: 65_535,
                    priority: draw.chance(0.5),
                    reliable: None,
                    body: &[1; 150],
                });
                let to = packet_address(address);
                let header = Header {
                    role: Role::Level1,
                    number: 2,
                    receiver: to,
                    incarnation: 1,
                    session: 0,
                    sent_before: 0,
                };
                let mut bytes = vec![0; builder.octets()];
                builder.finish(&header, &mut bytes);
                deliver(level1, now, Level1::WIDE_AREA, &bytes, draw);
            },
        );
    }
}

#[test]
fn the_central_converter_obeys_the_endpoint_laws() {
    for seed in 0..48 {
        let medium = Medium { capacity: 3_000, interval: Span::from_ms(5) };
        let config = CentralConfig {
            settings: settings(seed),
            level1: vec![1, 2, 3],
            hosts: 9,
            local: medium,
            wide_area: medium,
        };
        check_laws(
            Seed(seed),
            || Central::new(Seed(0), 1, config.clone()),
            |central, now, draw| {
                for _ in 0..1 + draw.below(4) {
                    match draw.below(3) {
                        0 => deliver(central, now, Central::LEVEL1, &bundle(Role::Level1, draw), draw),
                        _ => deliver(central, now, Central::HOSTS, &bundle(Role::Host, draw), draw),
                    }
                }
            },
        );
    }
}
