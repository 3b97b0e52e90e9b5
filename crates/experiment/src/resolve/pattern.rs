//! `test = …`: each pattern with its defaults, and its options one by one (an override sets them too).

use trunkline_traffic::application::{Choice, MODELS, Parameter, Relation, Unit, share_below_zero};
use trunkline_traffic::{Application, Burst, Pattern, Variable, VariableError};

use super::options::{Given, Visit, choice as choice_of, read, text};
use super::quantity::{Dimension, constant, number, single, variable, variable_part};
use super::{Context, replay, write};
use crate::diagnostic::{Diagnostic, list};
use crate::parse::shorten;
use crate::plan::{MAX_QUIC_DATAGRAM, Protocol, SourceRange};
use crate::support::{NONE, protocols, row, support};
use crate::token::quoted;
use crate::tree::{Setting, Value};

/// The tests that are no application models, by name.
const TESTS: &[&str] = &["full", "cbr", "burst", "random", "poisson", "stairs", "request", "file", "replay"];

/// Every test by name.
pub(crate) fn tests() -> impl Iterator<Item = &'static str> {
    TESTS.iter().copied().chain(MODELS.iter().map(|model| model.name))
}

/// RFC 768 and RFC 791: 65,535 bytes of an IPv4 packet less 20 of its header and 8 of UDP's.
const LARGEST_DATAGRAM: f64 = 65_507.0;
/// The share of the amounts of `fgn` that may be below 0 without a warning: that of a standard deviation of 43 % of the mean.
const LARGEST_CUT_SHARE: f64 = 0.01;
/// And of guaranteed delivery: 1 GiB.
const LARGEST_GUARANTEED: f64 = 1_073_741_824.0;

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
        "replay" => replay::default(),
        _ => {
            let model = Application::named(name)?;
            let variant = model.definition().variant(None).map(|variant| variant.name.to_owned());
            let parameters = model.defaults(variant.as_deref());
            Pattern::Application { model, variant, size_bytes: bulk, parameters }
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
        Pattern::Replay { .. } => "replay",
        Pattern::Application { model, .. } => model.name(),
    }
}

pub(crate) fn required(pattern: &Pattern) -> &'static [&'static str] {
    match pattern {
        Pattern::Cbr { .. } | Pattern::Burst { .. } => &["period"],
        Pattern::Random { .. } => &["minPeriod", "maxPeriod"],
        Pattern::Poisson { .. } => &["rate"],
        Pattern::Stairs { .. } => &["rates", "hold"],
        Pattern::File { .. } | Pattern::Replay { .. } => &["path"],
        Pattern::Full { .. } | Pattern::Request { .. } | Pattern::Application { .. } => &[],
    }
}

/// Reads `cbr (messagesize = 18432:5, period = 20 ms)`.
pub(crate) fn pattern(cx: &mut Context<'_>, value: &Value, protocol: Option<&Protocol>) -> Option<Pattern> {
    let part = single(cx, value, "a test")?;
    let Some(mut pattern) = default(&part.text, protocol).filter(|_| part.unit.is_none()) else {
        let error = Diagnostic::error(part.location, format!("unknown test `{}`", shorten(&part.text)));
        return cx.refuse(error.label("expected a test").suggest(&part.text, tests()));
    };
    let arguments = part.arguments.as_deref().unwrap_or_default();
    // The choice of a model sets other parameters, so what the text says of these comes after it.
    let choice = match &pattern {
        Pattern::Application { model, .. } => model.definition().choice,
        _ => None,
    };
    // The path of a recording is read last, as the other options say how.
    let is_replay = matches!(pattern, Pattern::Replay { .. });
    let is_first = |a: &&Setting| {
        let is = |name| a.key.as_ref().is_some_and(|key| key.text == name);
        choice.is_some_and(|choice| is(choice.name)) || (is_replay && !is("path"))
    };
    let (first, rest): (Vec<_>, Vec<_>) = arguments.iter().partition(is_first);
    let arguments: Vec<Setting> = first.into_iter().chain(rest).cloned().collect();
    let owner = format!("`{}`", part.text);
    let required = required(&pattern);
    let given = read(cx, &owner, part.location, &arguments, required, |v| present(&mut pattern, v));
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
    warn_of_cut_amounts(cx, pattern, given, location);
    let Some((option, message, label)) = protocol.and_then(|p| conflict(pattern, p)) else { return };
    let at = |name: &str| given.get(name).copied();
    let error = Diagnostic::error(at(option).unwrap_or(location), message).label(label);
    cx.report(match at("minPeriod") {
        Some(min) if option == "maxPeriod" => error.with(min, "the shortest period"),
        _ => error,
    });
}

/// Warns of amounts below 0 of `fgn`, which send nothing: the traffic is no longer the noise that was requested.
fn warn_of_cut_amounts(cx: &mut Context<'_>, pattern: &Pattern, given: &Given, location: SourceRange) {
    let Pattern::Application { model, parameters, .. } = pattern else { return };
    let share = share_below_zero(*model, parameters).filter(|share| *share > LARGEST_CUT_SHARE);
    let Some(share) = share else { return };
    let at = given.get("sd").or(given.get("mean")).copied().unwrap_or(location);
    let message = format!("{:.1} % of the amounts are below 0 and send nothing", share * 100.0);
    let label = "expected a standard deviation of at most 43 % of the mean";
    cx.report(
        Diagnostic::warning(at, message).label(label).help(
            "what is left has a higher mean, and neither the variance nor the memory that were requested",
        ),
    );
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
    if support(pattern, protocol) == NONE {
        let name = test_name(pattern);
        let message = format!("no backend runs `{name}` over `{}`", row(protocol));
        // Not an option, so the word of the test is marked.
        let label = format!("expected one of {} beside `{name}`", list(&protocols(pattern)));
        return Some(("", message, label));
    }
    if let Some(conflict) = relation_conflict(pattern) {
        return Some(conflict);
    }
    let (max_bytes, problem) = match protocol {
        Protocol::Udp { .. } | Protocol::Multicast { .. } | Protocol::Stamp => {
            (LARGEST_DATAGRAM, "does not fit a UDP datagram")
        }
        Protocol::Guaranteed { .. } => (LARGEST_GUARANTEED, "is longer than guaranteed delivery takes"),
        Protocol::Quic { datagrams: true, .. } => {
            (f64::from(MAX_QUIC_DATAGRAM), "does not fit a datagram of QUIC")
        }
        _ => return None,
    };
    let sizes = message_sizes(pattern).into_iter().map(|(option, size)| (option, largest(size)));
    let (option, largest) = sizes.into_iter().find(|(_, size)| *size > max_bytes)?;
    let message = format!("a message of {largest} bytes {problem}");
    Some((option, message, format!("expected at most {max_bytes} bytes over `{}`", protocol.name())))
}

/// What is wrong between two parameters of an application model.
fn relation_conflict(pattern: &Pattern) -> Option<(&'static str, String, String)> {
    let Pattern::Application { model, parameters, size_bytes, .. } = pattern else { return None };
    let value_of = |name: &str| match name {
        "messagesize" => Some(size_bytes),
        _ => parameters.iter().find(|(other, _)| other == name).map(|(_, value)| value),
    };
    let (parameter, relation) = model.definition().conflict(value_of)?;
    let show = |name: &str| Some(write::variable(value_of(name)?, dimension(parameter.unit)));
    let (message, label) = match relation {
        Relation::OneOf(list) => (
            format!("`{list}` has no {}", show(parameter.name)?),
            format!("expected one of {}", show(list)?.replace(" : ", ", ")),
        ),
        Relation::AtMost(other) => {
            let most = show(other)?;
            (format!("`{}` is above `{other}`, {most}", parameter.name), format!("expected at most {most}"))
        }
    };
    Some((parameter.name, message, label))
}

/// Returns the sizes of the messages of a test, each with the option that sets it; the longest of an application model.
pub fn message_sizes(pattern: &Pattern) -> Vec<(&'static str, &Variable)> {
    match pattern {
        Pattern::Full { size_bytes }
        | Pattern::Poisson { size_bytes, .. }
        | Pattern::Stairs { size_bytes, .. }
        | Pattern::Application { size_bytes, .. }
        | Pattern::File { size_bytes, .. } => vec![("messagesize", size_bytes)],
        Pattern::Replay { size_bytes, .. } => vec![("path", size_bytes)],
        Pattern::Cbr { burst, .. } | Pattern::Burst { burst, .. } | Pattern::Random { burst, .. } => {
            vec![("messagesize", &burst.size_bytes)]
        }
        Pattern::Request { request_bytes, response_bytes } => {
            vec![("request", request_bytes), ("response", response_bytes)]
        }
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
        Variable::Gamma { scale, shape } => scale * shape,
        Variable::Extreme { a, .. } => *a,
        Variable::Beta { max, .. } => *max,
        Variable::Empirical { values, .. } | Variable::List { values } => {
            values.last().copied().unwrap_or(0.0)
        }
        Variable::Truncated { max, .. } | Variable::Clamped { max, .. } => *max,
        Variable::Mixture { first, second, .. } => largest(first).max(largest(second)),
    }
}

/// Presents the options of a test; those of an application model are in its definition.
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
        Pattern::Replay { request, recording, scale, size_bytes } => {
            replay::present(v, request, recording, scale, size_bytes);
        }
        Pattern::Application { model, variant, size_bytes, parameters } => {
            let definition = model.definition();
            if let Some(choice) = definition.choice {
                let before = variant.clone();
                v.option(
                    choice.name,
                    variant,
                    |cx, value| variant_of(cx, value, choice),
                    |variant| variant.clone().unwrap_or_default(),
                );
                if *variant != before {
                    set_variant(*model, before.as_deref(), variant.as_deref(), parameters);
                }
            }
            for (parameter, (_, value)) in definition.parameters.iter().zip(parameters) {
                v.option(
                    parameter.name,
                    value,
                    |cx, value| parameter_value(cx, value, parameter),
                    |value| write::variable(value, dimension(parameter.unit)),
                );
            }
            v.option(
                "messagesize",
                size_bytes,
                |cx, value| number(cx, value, Size).map(Variable::Constant),
                |size| write::variable(size, Size),
            );
        }
    }
}

/// Returns how the language reads a parameter of a model.
pub(crate) fn dimension(unit: Unit) -> Dimension {
    match unit {
        Unit::Bytes | Unit::Amount => Dimension::Size,
        Unit::Seconds => Dimension::Delay,
        Unit::Count => Dimension::Count,
        Unit::Number => Dimension::Plain,
        Unit::BitsPerSecond => Dimension::Rate,
    }
}

/// The keyword of a choice.
fn variant_of(cx: &mut Context<'_>, value: &Value, choice: &Choice) -> Option<Option<String>> {
    let keywords: Vec<(&str, &str)> = choice.variants.iter().map(|v| (v.name, v.name)).collect();
    choice_of(cx, value, &keywords).map(|name| Some(name.to_owned()))
}

/// Sets the parameters in which two variants differ from the defaults.
fn set_variant(
    model: Application,
    old: Option<&str>,
    new: Option<&str>,
    parameters: &mut [(String, Variable)],
) {
    let definition = model.definition();
    let variants = [definition.variant(old), definition.variant(new)];
    for (name, _) in variants.into_iter().flatten().flat_map(|variant| variant.values) {
        let Some(parameter) = definition.parameter(name) else { continue };
        let target = parameters.iter_mut().find(|(parameter, _)| parameter == name);
        target.into_iter().for_each(|(_, value)| *value = definition.default(parameter, new).0);
    }
}

/// A value of a parameter of a model, in its unit.
fn parameter_value(cx: &mut Context<'_>, value: &Value, parameter: &Parameter) -> Option<Variable> {
    let dimension = dimension(parameter.unit);
    let read = if parameter.is_list {
        list_of(cx, value, dimension)?
    } else if parameter.is_constant {
        number(cx, value, dimension).map(Variable::Constant)?
    } else {
        variable(cx, value, dimension)?
    };
    match parameter.check(&read) {
        Ok(()) => Some(read),
        Err(VariableError::NoMean) => {
            let message = format!("`{}` needs a variable with a mean", parameter.name);
            let error = Diagnostic::error(value.location, message).label("expected a finite mean");
            cx.refuse(error.help(
                "a Pareto variable has a mean if its shape is above 1, and always if it is `truncated(…)`",
            ))
        }
        Err(VariableError::Range { low, high, .. }) if parameter.range.is_some() => {
            let message = format!("`{}` cannot be this", parameter.name);
            cx.refuse(Diagnostic::error(value.location, message).label(format!("expected {low} to {high}")))
        }
        Err(other) => {
            let message = format!("`{}` cannot be this: {other}", parameter.name);
            cx.refuse(
                Diagnostic::error(value.location, message).label(format!("expected {}", dimension.wanted())),
            )
        }
    }
}

fn file_name(cx: &mut Context<'_>, value: &Value) -> Option<String> {
    text(cx, value, "a file name, such as `\"data.bin\"`").map(str::to_owned)
}

/// `VALUE : VALUE : …`, ascending constants.
fn list_of(cx: &mut Context<'_>, value: &Value, dimension: Dimension) -> Option<Variable> {
    let values: Vec<_> = value.parts.iter().map(|part| constant(cx, part, dimension)).collect();
    let values = values.into_iter().collect::<Option<Vec<f64>>>()?;
    if let Some(at) = values.windows(2).position(|pair| pair[0] >= pair[1]) {
        let error = Diagnostic::error(value.parts[at + 1].location, "this list is not ascending");
        return cx.refuse(error.label("expected a larger value than the one before"));
    }
    Some(Variable::List { values: values.into() })
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
