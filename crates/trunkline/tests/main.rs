//! The integration tests of the command. `conventions.rs` is a separate program, because it reads only sources.
//!
//! | module | subject |
//! | --- | --- |
//! | `agent_keys` | `trunkline agent`, `trunkline keys`: enrolment, refusals, socket activation, curl and OpenSSL |
//! | `agent_memory` | the memory limit of a run on an agent |
//! | `agents` | runs on agents, and the death of every part |
//! | `analyse` | `trunkline analyse` |
//! | `bundle_c`, `bundle_wireshark` | the bundle converter from C and in Wireshark |
//! | `capture` | packet captures of runs |
//! | `combinations` | every test over every protocol |
//! | `compatibility` | files that an earlier version wrote |
//! | `converter`, `converter_replay`, `converter_router`, `converter_wide` | the bundle converter with daemons, recorded DIS, routers and format 2 |
//! | `counters` | commands on an archive of counters |
//! | `fmt` | `trunkline fmt` |
//! | `dissect` | captures of the guaranteed transport in Wireshark and in a second decoder |
//! | `documents` | examples, commands, links and tables of the documents |
//! | `trouble` | invalid input, failing disks and peers, signals |
//! | `lab` | `trunkline run --on lab` and `trunkline lab` |
//! | `lab_programs` | programs of hosts in a lab: iperf3, nginx, OpenSSH, net-snmp and others |
//! | `llc_tools`, `llc_wire` | the LLC commands, and their frames in Wireshark |
//! | `monitor_poll` | polling devices and interfaces |
//! | `reproduce`, `reproduce_lab`, `studies`, `study`, `sweep`, `torture` | these commands |
//! | `replay` | recorded traffic as a test |
//! | `runs`, `simulated` | live and simulated runs |
//! | `scenario`, `schedule` | these commands |
//! | `serve` | the web page of counters |
//! | `stamp` | STAMP over the loopback |
//! | `test` | `trunkline test` |
//! | `top` | the packet monitor |

mod agent_keys;
mod agent_memory;
mod agents;
pub mod analyse;
mod bundle_c;
mod bundle_wireshark;
mod capture;
mod combinations;
mod command;
mod compatibility;
mod converter;
mod converter_replay;
mod converter_router;
mod converter_wide;
mod counters;
mod dissect;
mod documents;
mod fmt;
mod lab;
mod lab_programs;
mod llc_tools;
mod llc_wire;
mod monitor_poll;
mod replay;
mod reproduce;
mod reproduce_lab;
mod runs;
mod scenario;
mod schedule;
mod serve;
mod simulated;
mod stamp;
mod studies;
mod study;
mod sweep;
mod test;
mod top;
mod torture;
mod trouble;
