//! `trunkline stamp reflect`: a reflector on one socket.

use serde_json::json;
use trunkline_io::TimestampedSocket;
use trunkline_io::socket::{Options, readable};
use trunkline_run::StopFlag;
use trunkline_stamp::sender::MAX_SIZE;
use trunkline_stamp::{Reflector, ReflectorOptions, Request};

use super::{Clocks, STOP_CHECK, VERSION, arrival_times, key};
use crate::failure::{Failure, print};
use crate::flags::stamp::Reflect;

/// Share of the sessions that one source may have: a quarter.
const SOURCE_PARTS: u32 = 4;

/// Answers test packets until it is stopped.
pub fn reflect(flags: &Reflect, stop: &StopFlag) -> Result<(), Failure> {
    if !flags.listen.ip().to_canonical().is_loopback() && flags.allow.is_empty() {
        return Err(Failure::input(format!(
            "{} is not a loopback address: say with --allow which sources receive answers",
            flags.listen.ip()
        )));
    }
    let key = key::read(flags.common.key.as_deref())?;
    let socket = TimestampedSocket::open(flags.listen, &Options::default()).map_err(Failure::input)?;
    let address = socket.socket().local_addr().map_err(Failure::run)?;
    let default = ReflectorOptions::default();
    let allow = if flags.allow.is_empty() { default.allow.clone() } else { flags.allow.clone() };
    if !flags.common.json {
        let mode = if key.is_some() { "authenticated" } else { "unauthenticated" };
        let state = if flags.stateless { "stateless" } else { "stateful" };
        let networks: Vec<String> = allow.iter().map(ToString::to_string).collect();
        print(&format!(
            "STAMP reflector on {address}: {mode}, {state}, arrival times of the {}\nanswers {}, {} packets/s each\n",
            arrival_times(&socket),
            networks.join(", "),
            flags.rate
        ))?;
    }
    let mut reflector = Reflector::new(ReflectorOptions {
        key,
        format: flags.common.timestamps,
        is_stateful: !flags.stateless,
        allow,
        port: address.port(),
        rate: flags.rate,
        sessions: flags.sessions as usize,
        sessions_of_source: flags.sessions.div_ceil(SOURCE_PARTS) as usize,
        ..default
    });
    serve(&socket, &mut reflector, stop)?;
    print(&summary(&reflector, &socket, flags.common.json))
}

fn serve(socket: &TimestampedSocket, reflector: &mut Reflector, stop: &StopFlag) -> Result<(), Failure> {
    let mut clocks = Clocks::start();
    let (mut buffer, mut answer) = (vec![0; MAX_SIZE], vec![0; MAX_SIZE]);
    while !stop.is_requested() {
        if !readable(socket.socket(), STOP_CHECK).map_err(Failure::run)? {
            continue;
        }
        while let Some(received) = socket.receive(&mut buffer).map_err(Failure::run)? {
            let now = clocks.read();
            let request = Request {
                from: received.from,
                bytes: &buffer[..received.length],
                ttl: received.ttl.unwrap_or_default(),
                unix: received.unix.unwrap_or(now.unix),
            };
            if let Ok(length) = reflector.reflect(now, &request, &mut answer) {
                // An answer that cannot be sent counts as lost at the sender.
                let _ = socket.socket().send_to(&answer[..length], received.from);
            }
            if stop.is_requested() {
                break;
            }
        }
    }
    Ok(())
}

fn summary(reflector: &Reflector, socket: &TimestampedSocket, as_json: bool) -> String {
    let counts = reflector.counts();
    if as_json {
        let object = json!({
            "version": VERSION, "tool": "stamp reflect", "arrival_times": arrival_times(socket),
            "reflected": counts.reflected, "sessions": reflector.sessions(), "not_allowed": counts.not_allowed,
            "short": counts.short, "forged": counts.forged, "session_limit": counts.session_limit,
            "rate_limit": counts.rate_limit,
        });
        return format!("{object:#}\n");
    }
    let mut text = format!("{} packets reflected in {} sessions\n", counts.reflected, reflector.sessions());
    for (count, reason) in [
        (counts.not_allowed, "from sources that are not allowed"),
        (counts.short, "too short"),
        (counts.forged, "with a wrong HMAC"),
        (counts.session_limit, "beyond the number of sessions"),
        (counts.rate_limit, "beyond the rate of a source"),
    ] {
        if count > 0 {
            text += &format!("{count} without an answer: {reason}\n");
        }
    }
    text
}
