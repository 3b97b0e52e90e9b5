//! `test = …`: each pattern with its defaults, and its options one by one (an override sets them too).

use trunkline_traffic::{Application, Burst, Pattern, Variable};

use super::options::{Given, Visit, keyword, read, text};
use super::quantity::{Dimension, single, variable, variable_part};
use super::{Context, write};
use crate::diagnostic::Diagnostic;
use crate::parse::shorten;
use crate::plan::{Protocol, SourceRange};
use crate::token::quoted;
use crate::tree::{Setting, Value};

/// Every test by name.
pub(crate) const TESTS: &[&str] = &[
    "full",
    "cbr",
    "burst",
    "random",
    "poisson",
    "stairs",
    "request",
    "file",
    "ftp",
    "telnet",
    "voice",
    "mpeg",
    "videoconference",
    "www",
];

/// The application models by name.
const MODELS: &[(&str, Application)] = &[
    ("ftp", Application::Ftp),
    ("telnet", Application::Telnet),
    ("voice", Application::Voice),
    ("mpeg", Application::Mpeg),
    ("videoconference", Application::Videoconference),
    ("www", Application::Www),
];

/// RFC 768 and RFC 791: 65,535 bytes of an IPv4 packet less 20 of its header and 8 of UDP's.
const LARGEST_DATAGRAM: f64 = 65_507.0;
/// And of guaranteed delivery: 1 GiB.
const LARGEST_GUARANTEED: f64 = 1_073_741_824.0;
/// And of a datagram of QUIC: a packet of 1,200 bytes, which every path carries, less its headers.
const LARGEST_QUIC_DATAGRAM: f64 = 1_162.0;

/// A message when the text does not say: the 1996 block over a byte stream, one packet over the rest.
fn default_size(protocol: Option<&Protocol>, bulk: bool) -> Variable {
    if let Some(Protocol::Quic { datagrams: true, .. }) = protocol {
        return Variable::Constant(1_000.0);
    }
    let stream = matches!(protocol, Some(Protocol::Tcp { .. } | Protocol::Quic { .. }));
    Variable::Constant(if stream && bulk { 65_536.0 } else { 1_400.0 })
}

/// Returns a test with all defaults. Options without a default are placeholders, which [`required`] rejects.
pub(crate) fn default(name: &str, protocol: Option<&Protocol>) -> Option<Pattern> {
    let bulk = default_size(protocol, true);
    let message = default_size(protocol, false);
    let zero = Variable::Constant(0.0);
    let burst = || Burst { size_bytes: message.clone(), count: Variable::Constant(1.0) };
    Some(match name {
        "full" => Pattern::Full { size_bytes: bulk },
        "cbr" => Pattern::Cbr { burst: burst(), period_s: zero },
        "burst" => Pattern::Burst { burst: burst(), period_s: zero },
        "random" => Pattern::Random { burst: burst(), min_period_s: zero.clone(), max_period_s: zero },
        "poisson" => Pattern::Poisson { size_bytes: Variable::Constant(150.0), rate_per_s: zero },
        "stairs" => Pattern::Stairs { size_bytes: message, rates_bps: Vec::new(), hold_s: zero },
        "request" => Pattern::Request {
            request_bytes: Variable::Constant(64.0),
            response_bytes: Variable::Constant(64.0),
        },
        "file" => Pattern::File { path: String::new(), size_bytes: bulk },
        _ => {
            let (_, model) = MODELS.iter().find(|(model, _)| *model == name)?;
            Pattern::Application { model: *model, parameters: Vec::new() }
        }
    })
}

/// Returns the name of a test in the language.
pub fn test_name(pattern: &Pattern) -> &'static str {
    match pattern {
        Pattern::Full { .. } => "full",
        Pattern::Cbr { .. } => "cbr",
        Pattern::Burst { .. } => "burst",
        Pattern::Random { .. } => "random",
        Pattern::Poisson { .. } => "poisson",
        Pattern::Stairs { .. } => "stairs",
        Pattern::Request { .. } => "request",
        Pattern::File { .. } => "file",
        Pattern::Application { model, .. } => keyword(MODELS, model),
    }
}

pub(crate) fn required(pattern: &Pattern) -> &'static [&'static str] {
    match pattern {
        Pattern::Cbr { .. } | Pattern::Burst { .. } => &["period"],
        Pattern::Random { .. } => &["minPeriod", "maxPeriod"],
        Pattern::Poisson { .. } => &["rate"],
        Pattern::Stairs { .. } => &["rates", "hold"],
        Pattern::File { .. } => &["path"],
        Pattern::Full { .. } | Pattern::Request { .. } | Pattern::Application { .. } => &[],
    }
}

/// Reads `cbr (messagesize = 18432:5, period = 20 ms)`.
pub(crate) fn pattern(cx: &mut Context<'_>, value: &Value, protocol: Option<&Protocol>) -> Option<Pattern> {
    let part = single(cx, value, "a test")?;
    let Some(mut pattern) = default(&part.text, protocol).filter(|_| part.unit.is_none()) else {
        let error = Diagnostic::error(part.location, format!("unknown test `{}`", shorten(&part.text)));
        return cx.refuse(error.label("expected a test").suggest(&part.text, TESTS.iter().copied()));
    };
    let arguments = part.arguments.as_deref().unwrap_or_default();
    if let Pattern::Application { parameters, .. } = &mut pattern {
        *parameters = model_parameters(cx, arguments);
        return Some(pattern);
    }
    let owner = format!("`{}`", part.text);
    let required = required(&pattern);
    let given = read(cx, &owner, part.location, arguments, required, |v| present(&mut pattern, v));
    check(cx, &pattern, protocol, &given, part.location);
    Some(pattern)
}

/// Reports what is wrong between the options of a test, and between it and its protocol.
pub(crate) fn check(
    cx: &mut Context<'_>,
    pattern: &Pattern,
    protocol: Option<&Protocol>,
    given: &Given,
    location: SourceRange,
) {
    let Some((option, message, label)) = protocol.and_then(|p| conflict(pattern, p)) else { return };
    let at = |name: &str| given.get(name).copied();
    let error = Diagnostic::error(at(option).unwrap_or(location), message).label(label);
    cx.report(match at("minPeriod") {
        Some(min) if option == "maxPeriod" => error.with(min, "the shortest period"),
        _ => error,
    });
}

/// What is wrong with a test over a protocol: the option to blame, the message, and what was expected.
pub(crate) fn conflict(pattern: &Pattern, protocol: &Protocol) -> Option<(&'static str, String, String)> {
    if let Pattern::Random {
        min_period_s: Variable::Constant(min),
        max_period_s: Variable::Constant(max),
        ..
    } = pattern
        && min > max
        && *max > 0.0
    {
        let label = "expected at least `minPeriod`".to_owned();
        return Some(("maxPeriod", "the longest period is shorter than the shortest".to_owned(), label));
    }
    if let (Pattern::File { .. }, Protocol::Quic { datagrams: true, .. }) = (pattern, protocol) {
        let label = "expected `datagrams = off` beside `file`".to_owned();
        return Some(("path", "a file needs streams, which lose nothing".to_owned(), label));
    }
    let (max_bytes, problem) = match protocol {
        Protocol::Udp { .. } | Protocol::Multicast { .. } | Protocol::Stamp => {
            (LARGEST_DATAGRAM, "does not fit a UDP datagram")
        }
        Protocol::Guaranteed { .. } => (LARGEST_GUARANTEED, "is longer than guaranteed delivery takes"),
        Protocol::Quic { datagrams: true, .. } => (LARGEST_QUIC_DATAGRAM, "does not fit a datagram of QUIC"),
        _ => return None,
    };
    let sizes = message_sizes(pattern).into_iter().map(|(option, size)| (option, largest(size)));
    let (option, largest) = sizes.into_iter().find(|(_, size)| *size > max_bytes)?;
    let message = format!("a message of {largest} bytes {problem}");
    Some((option, message, format!("expected at most {max_bytes} bytes over `{}`", protocol.name())))
}

/// Returns the sizes of the messages of a test, each with the option that sets it; none of an application model.
pub fn message_sizes(pattern: &Pattern) -> Vec<(&'static str, &Variable)> {
    match pattern {
        Pattern::Full { size_bytes }
        | Pattern::Poisson { size_bytes, .. }
        | Pattern::Stairs { size_bytes, .. }
        | Pattern::File { size_bytes, .. } => vec![("messagesize", size_bytes)],
        Pattern::Cbr { burst, .. } | Pattern::Burst { burst, .. } | Pattern::Random { burst, .. } => {
            vec![("messagesize", &burst.size_bytes)]
        }
        Pattern::Request { request_bytes, response_bytes } => {
            vec![("request", request_bytes), ("response", response_bytes)]
        }
        Pattern::Application { .. } => Vec::new(),
    }
}

/// The largest value a bounded law can draw; for the others what it draws at least or on average.
fn largest(size: &Variable) -> f64 {
    match size {
        Variable::Constant(bytes) => *bytes,
        Variable::Uniform { b, .. } => *b,
        Variable::Exponential { mean } | Variable::Normal { mean, .. } | Variable::Lognormal { mean, .. } => {
            *mean
        }
        Variable::Pareto { min, .. } => *min,
        Variable::Weibull { scale, .. } => *scale,
        Variable::Empirical { values, .. } => values.last().copied().unwrap_or(0.0),
    }
}

/// Presents the options of a test. An application model takes what it is given; its own room knows the names.
pub(crate) fn present(pattern: &mut Pattern, v: &mut Visit<'_, '_>) {
    use Dimension::{Duration, PerSecond, Period, Size};
    match pattern {
        Pattern::Full { size_bytes } => v.variable("messagesize", size_bytes, Size),
        Pattern::Cbr { burst, period_s } | Pattern::Burst { burst, period_s } => {
            v.option("messagesize", burst, burst_of, write::burst);
            v.variable("period", period_s, Period);
        }
        Pattern::Random { burst, min_period_s, max_period_s } => {
            v.option("messagesize", burst, burst_of, write::burst);
            v.variable("minPeriod", min_period_s, Period);
            v.variable("maxPeriod", max_period_s, Period);
        }
        Pattern::Poisson { size_bytes, rate_per_s } => {
            v.variable("messagesize", size_bytes, Size);
            v.variable("rate", rate_per_s, PerSecond);
        }
        Pattern::Stairs { size_bytes, rates_bps, hold_s } => {
            v.variable("messagesize", size_bytes, Size);
            v.option("rates", rates_bps, steps, |rates| write::steps(rates));
            v.variable("hold", hold_s, Duration);
        }
        Pattern::Request { request_bytes, response_bytes } => {
            v.variable("request", request_bytes, Size);
            v.variable("response", response_bytes, Size);
        }
        Pattern::File { path, size_bytes } => {
            v.option("path", path, file_name, |path| quoted(path));
            v.variable("messagesize", size_bytes, Size);
        }
        Pattern::Application { .. } => {}
    }
}

fn file_name(cx: &mut Context<'_>, value: &Value) -> Option<String> {
    text(cx, value, "a file name, such as `\"data.bin\"`").map(str::to_owned)
}

/// `RATE : RATE : …`, each read, so that each wrong one is reported.
fn steps(cx: &mut Context<'_>, value: &Value) -> Option<Vec<Variable>> {
    let steps: Vec<_> = value.parts.iter().map(|part| variable_part(cx, part, Dimension::Rate)).collect();
    steps.into_iter().collect()
}

/// `SIZE` or `SIZE:COUNT`.
fn burst_of(cx: &mut Context<'_>, value: &Value) -> Option<Burst> {
    let size = variable_part(cx, &value.parts[0], Dimension::Size);
    let count = match &value.parts[1..] {
        [] => Some(Variable::Constant(1.0)),
        [count] => variable_part(cx, count, Dimension::Count),
        [_, more, ..] => {
            let error = Diagnostic::error(more.location, "a burst has a size and a count");
            cx.refuse(error.label("expected `SIZE:COUNT` alone"))
        }
    };
    Some(Burst { size_bytes: size?, count: count? })
}

fn model_parameters(cx: &mut Context<'_>, arguments: &[Setting]) -> Vec<(String, Variable)> {
    let mut parameters: Vec<(String, Variable)> = Vec::new();
    let mut places: std::collections::BTreeMap<&str, SourceRange> = std::collections::BTreeMap::new();
    for argument in arguments {
        let Some(key) = &argument.key else {
            let error = Diagnostic::error(argument.location(), "this value has no name");
            cx.report(error.label("expected `PARAMETER = VALUE`"));
            continue;
        };
        if let Some(first) = places.insert(&key.text, argument.location()) {
            let error =
                Diagnostic::error(argument.location(), format!("`{}` is given twice", shorten(&key.text)));
            cx.report(error.label("and again here").with(first, "it is first given here"));
        } else if let Some(value) = variable(cx, &argument.values[0], Dimension::Any) {
            parameters.push((key.text.clone(), value));
        }
    }
    parameters
}
