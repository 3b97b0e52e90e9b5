//! `--set OPTION=VALUE`: one option of every connection that has it.

use std::fmt;

use trunkline_traffic::{Pattern, Variable};

use crate::diagnostic::{Diagnostics, Severity, nearest};
use crate::parse::{self, shorten};
use crate::plan::{Connection, Plan, Stop};
use crate::resolve::options::{optional, put, size};
use crate::resolve::quantity::{Dimension, variable};
use crate::resolve::{Context, connection, pattern, protocol};
use crate::token;
use crate::tree::Value;

/// Why an override was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverrideError {
    /// No connection of any experiment has an option of this name.
    Unknown {
        /// As written.
        option: String,
        /// The nearest option there is.
        nearest: Option<&'static str>,
    },
    /// No connection of this plan has it.
    Unused {
        /// As written.
        option: String,
    },
    /// The value does not fit; the sentence says what was expected.
    Value {
        /// As written.
        option: String,
        /// As written.
        value: String,
        /// What is wrong with it.
        message: String,
    },
}

impl fmt::Display for OverrideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OverrideError::Unknown { option, nearest: Some(name) } => {
                write!(f, "no connection has an option `{option}`; did you mean `{name}`?")
            }
            OverrideError::Unknown { option, nearest: None } => {
                write!(f, "no connection has an option `{option}`")
            }
            OverrideError::Unused { option } => {
                write!(f, "no connection of this experiment has the option `{option}`")
            }
            OverrideError::Value { option, value, message } => write!(f, "`{option}={value}`: {message}"),
        }
    }
}

impl std::error::Error for OverrideError {}

/// The options every connection has.
const COMMON: &[&str] = &["duration", "bytes", "messages", "delay", "xmtbuf", "rcvbuf"];

/// Sets `option` to `value`, written as in the language, in every connection that has it.
///
/// # Errors
/// [`OverrideError`] says whether the option or the value is wrong. The plan is then as it was.
pub fn apply_override(plan: &mut Plan, option: &str, value: &str) -> Result<(), OverrideError> {
    let known = known_options();
    if !known.contains(&option) {
        let nearest = nearest(option, known.iter().copied());
        return Err(OverrideError::Unknown { option: shorten(option), nearest });
    }
    let refuse =
        |message: String| OverrideError::Value { option: option.into(), value: shorten(value), message };
    let mut diagnostics = Diagnostics::default();
    let tokens = token::tokens(value, &mut diagnostics);
    let read = parse::value(value, &tokens, &mut diagnostics);
    let files = |_: &str| Err("no file can be named on the command line".to_owned());
    let mut cx = Context { diagnostics, files: &files };
    let mut connections = plan.connections.clone();
    let mut used = false;
    if let Some(read) = &read {
        for connection in &mut connections {
            used |= set(&mut cx, connection, option, read);
        }
    }
    if let Some(error) = cx.diagnostics.into_vec().into_iter().find(|d| d.severity == Severity::Error) {
        return Err(refuse(if error.label.is_empty() || error.message.contains(&error.label) {
            error.message
        } else {
            format!("{}; {}", error.message, error.label)
        }));
    }
    if !used {
        return Err(OverrideError::Unused { option: option.into() });
    }
    if let Some((_, message, label)) = connections.iter().find_map(|c| pattern::trouble(&c.test, &c.protocol))
    {
        return Err(refuse(format!("{message}; {label}")));
    }
    plan.connections = connections;
    Ok(())
}

/// Every option that some protocol or test has.
fn known_options() -> Vec<&'static str> {
    let protocols = protocol::PROTOCOLS.iter().filter_map(|name| protocol::default(name));
    let tests = pattern::TESTS.iter().filter_map(|name| pattern::default(name, None));
    let mut known = COMMON.to_vec();
    known.extend(protocols.flat_map(|p| protocol::options(&p).iter().copied()));
    known.extend(tests.flat_map(|t| pattern::options(&t).iter().copied()));
    known.sort_unstable();
    known.dedup();
    known
}

/// Sets the option in one connection; false if it has none of this name.
fn set(cx: &mut Context<'_>, connection: &mut Connection, option: &str, value: &Value) -> bool {
    if COMMON.contains(&option) {
        set_common(cx, connection, option, value);
        return true;
    }
    let in_test = pattern::options(&connection.test).contains(&option);
    if in_test {
        pattern::set(cx, &mut connection.test, option, value);
        stairs_last(connection, option);
    }
    let in_protocol = protocol::options(&connection.protocol).contains(&option);
    if in_protocol {
        protocol::set(cx, &mut connection.protocol, option, value);
    }
    in_test || in_protocol
}

/// Other steps take another time, unless a duration of their own was random.
fn stairs_last(connection: &mut Connection, option: &str) {
    if let Pattern::Stairs { rates_bps, hold_s: Variable::Constant(hold), .. } = &connection.test
        && matches!(option, "rates" | "hold")
        && matches!(connection.stop, Stop::DurationS(Variable::Constant(_)))
    {
        connection.stop = Stop::DurationS(Variable::Constant(hold * rates_bps.len() as f64));
    }
}

fn set_common(cx: &mut Context<'_>, connection: &mut Connection, option: &str, value: &Value) {
    match option {
        "delay" => put(&mut connection.delay_s, variable(cx, value, Dimension::Delay)),
        "xmtbuf" => put(&mut connection.from.buffer, optional(cx, value, "auto", size)),
        "rcvbuf" => {
            if let Some(buffer) = optional(cx, value, "auto", size) {
                connection.to.iter_mut().for_each(|to| to.buffer = buffer);
            }
        }
        stop => put(&mut connection.stop, connection::read_stop(cx, stop, value)),
    }
}
