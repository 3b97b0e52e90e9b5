//! Emulated traffic of NetSpec 3: `blocksize = ftpItemSize (min = 8)`, a random variable of an application model.
//!
//! The names and the example of `ftp` are those of the pages of NetSpec 3 (ittc.ku.edu/netspec/usage/emulation.html). What the pages
//! leave open is assumed: `lambda` is the rate of an exponential law in the unit of the option, so per microsecond for times and
//! per byte for sizes; draws below `min` are drawn again; without `lambda` the law is that of the model; items of an `ftp` session
//! follow each other at once, because NetSpec's sessions have no time between items.

use trunkline_traffic::application::{Parameter, Unit};
use trunkline_traffic::{Application, Law, Pattern, Variable};

use super::Context;
use super::options::{Options, one};
use super::pattern::{self, dimension};
use super::quantity::{Dimension, LONGEST_S, in_range, number, variable, variable_part};
use crate::diagnostic::Diagnostic;
use crate::parse::shorten;
use crate::plan::Protocol;
use crate::tree::{Part, Setting, Value};

/// Variables that are not named after a model and its parameter: name, model, parameters.
const NAMES: &[(&str, &str, &[&str])] = &[
    ("wwwItemSize", "www", &["main", "embedded"]),
    ("wwwNOfItems", "www", &["objects"]),
    ("wwwSessionInterarrival", "www", &["reading"]),
    ("VideoTeleConferenceFrameSize", "videoconference", &["frame"]),
    ("VideoMPEGFrameSize", "mpeg", &["sceneLength"]),
];

/// Models whose name begins those of their variables: `ftpItemSize`.
const MODELS: &[&str] = &["ftp", "telnet", "voice", "www"];

/// The parameters that a plain `blocksize`, `period` or `repeats` sets, if the model has them.
const PLAIN: &[(&str, &[&str])] = &[
    ("blocksize", &["itemSize", "main", "embedded", "frame"]),
    ("period", &["itemInterarrival", "sessionInterarrival", "reading", "period"]),
    ("repeats", &["nOfItems", "objects"]),
];

/// Draws have an upper end where the law has a lower one.
const LARGEST: f64 = 1e9;

/// A variable of a model.
struct Emulated {
    model: &'static str,
    parameters: Vec<String>,
}

/// Returns the variable of this name.
fn named(name: &str) -> Option<Emulated> {
    if let Some((_, model, parameters)) = NAMES.iter().find(|(other, ..)| *other == name) {
        return Some(Emulated { model, parameters: parameters.iter().map(|&p| p.to_owned()).collect() });
    }
    let (model, rest) = MODELS.iter().find_map(|model| Some((*model, name.strip_prefix(model)?)))?;
    let first = rest.chars().next().filter(char::is_ascii_uppercase)?;
    let parameter = format!("{}{}", first.to_ascii_lowercase(), &rest[1..]);
    Application::named(model)?.definition().parameter(&parameter)?;
    Some(Emulated { model, parameters: vec![parameter] })
}

/// Returns the part of a value that is a random variable of a model.
fn emulated_part(value: &Value) -> Option<(&Part, Emulated)> {
    let [part] = &value.parts[..] else { return None };
    Some((part, named(&part.text)?))
}

/// Returns the application model of a test whose options have random variables of one; `None` if they have none.
pub(crate) fn pattern(
    cx: &mut Context<'_>,
    arguments: &[Setting],
    protocol: Option<&Protocol>,
) -> Option<Pattern> {
    let values = || arguments.iter().flat_map(|argument| &argument.values);
    let (first, Emulated { model, .. }) = values().find_map(emulated_part)?;
    let Some(mut pattern) = pattern::default(model, protocol) else {
        let message = format!("`{}` needs the model `{model}`", first.text);
        return cx.refuse(Diagnostic::error(first.location, message).label("there is no such model"));
    };
    let Pattern::Application { model: application, parameters, .. } = &mut pattern else { return None };
    let application = *application;
    set(application, parameters, "itemGap", Variable::Constant(0.0));
    for argument in arguments {
        let Some(key) = &argument.key else { continue };
        let value = one(cx, argument)?;
        match emulated_part(value) {
            Some((part, emulated)) if emulated.model == model => {
                for name in &emulated.parameters {
                    let Some(parameter) = application.definition().parameter(name) else { continue };
                    let law = law(cx, part, parameter)?;
                    checked(cx, part, parameter, &law)?;
                    set(application, parameters, name, law);
                }
            }
            Some((part, _)) => {
                let error = Diagnostic::error(part.location, "a test has variables of one model");
                return cx.refuse(error.label(format!("`{}` is of `{model}`", first.text)));
            }
            None => plain(cx, application, parameters, &key.text, value)?,
        }
    }
    Some(pattern)
}

/// Sets a parameter, if the model has it.
fn set(model: Application, parameters: &mut [(String, Variable)], name: &str, law: Variable) {
    // The time between items of `telnet` and the like is their own.
    if model.definition().parameter(name).is_some() {
        parameters.iter_mut().filter(|(other, _)| other == name).for_each(|(_, value)| *value = law.clone());
    }
}

/// Sets what an option without a variable of a model sets.
fn plain(
    cx: &mut Context<'_>,
    model: Application,
    parameters: &mut [(String, Variable)],
    option: &str,
    value: &Value,
) -> Option<()> {
    let definition = model.definition();
    if let ("period", Some(parameter)) = (option, definition.parameter("frameRate")) {
        let rate = Variable::Constant(1.0 / number(cx, value, Dimension::Period)?);
        checked(cx, &value.parts[0], parameter, &rate)?;
        set(model, parameters, parameter.name, rate);
        return Some(());
    }
    let Some((_, names)) = PLAIN.iter().find(|(other, _)| *other == option) else { return Some(()) };
    // A size is that of all items, a time one of the model's.
    let most = if option == "blocksize" { usize::MAX } else { 1 };
    let found: Vec<&Parameter> = names.iter().filter_map(|n| definition.parameter(n)).take(most).collect();
    if found.is_empty() {
        let message = format!("`{option}` has no effect: `{}` has nothing of that kind", model.name());
        let help = "a random variable of the model may stand there, or nothing";
        cx.report(Diagnostic::warning(value.location, message).label("this is ignored").help(help));
    }
    for parameter in found {
        let law = variable(cx, value, unit(parameter))?;
        checked(cx, &value.parts[0], parameter, &law)?;
        set(model, parameters, parameter.name, law);
    }
    Some(())
}

/// Returns how NetSpec 3 reads the values of a parameter: bare times are microseconds.
fn unit(parameter: &Parameter) -> Dimension {
    if parameter.unit == Unit::Seconds { Dimension::Period } else { dimension(parameter.unit) }
}

/// The parameters of a variable.
const PARAMETERS: &[&str] = &["lambda", "min", "scale", "shape", "sceneLengthMean"];

/// Reads the law of a variable: `(lambda = RATE, min = VALUE)`, `(scale = VALUE, shape = NUMBER)`, `(min = VALUE)` or `()`.
fn law(cx: &mut Context<'_>, part: &Part, parameter: &Parameter) -> Option<Variable> {
    let arguments = part.arguments.as_deref().unwrap_or_default();
    let owner = format!("`{}`", shorten(&part.text));
    let errors = cx.diagnostics.errors();
    let (mut rate, mut min, mut mean) = (None, None, None);
    let given = Options::of(&owner, PARAMETERS).apply(cx, arguments, |cx, name, argument| {
        let Some(value) = one(cx, argument) else { return };
        match name {
            "lambda" => rate = number(cx, value, Dimension::Plain),
            "min" => min = number(cx, value, unit(parameter)),
            "sceneLengthMean" => mean = number(cx, value, unit(parameter)),
            // Those of a gamma law are read with it.
            _ => {}
        }
    });
    if cx.diagnostics.errors() > errors {
        return None;
    }
    if let (Some(location), true) = (given.get("sceneLengthMean"), parameter.name != "sceneLength") {
        let error = Diagnostic::error(*location, format!("{owner} is no length of scenes"));
        return cx.refuse(error.label("expected in `VideoMPEGFrameSize` only"));
    }
    let of_laws = [&["lambda"][..], &["scale", "shape"], &["sceneLengthMean"]];
    let mut laws = of_laws.iter().filter_map(|names| names.iter().find_map(|name| given.get(name)));
    if let (Some(first), Some(second)) = (laws.next(), laws.next()) {
        let error =
            Diagnostic::error(*second, "these are parameters of two laws").label("this is of another law");
        return cx.refuse(error.with(*first, "than this"));
    }
    if let Some(0.0) = rate {
        let error = Diagnostic::error(part.location, "`lambda` is zero");
        return cx.refuse(error.label("expected the rate of an exponential law"));
    }
    let scale_and_shape = arguments
        .iter()
        .filter(|a| a.key.as_ref().is_some_and(|key| matches!(key.text.as_str(), "scale" | "shape")))
        .cloned()
        .collect::<Vec<_>>();
    let per_second = if parameter.unit == Unit::Seconds { 1e6 } else { 1.0 };
    let mean = mean.or(rate.map(|rate| 1.0 / (rate * per_second)));
    let law = if !scale_and_shape.is_empty() {
        // Frames of a conference have a gamma law.
        let gamma = Part { text: "gamma".to_owned(), arguments: Some(scale_and_shape), ..part.clone() };
        variable_part(cx, &gamma, unit(parameter))?
    } else if let Some(mean) = mean {
        let location = given.get("lambda").copied().unwrap_or(part.location);
        Variable::Exponential { mean: in_range(cx, mean, unit(parameter), location)? }
    } else {
        (parameter.default)()
    };
    let largest = if parameter.unit == Unit::Seconds { LONGEST_S } else { LARGEST };
    Some(match (min, law) {
        (None, law) => law,
        (Some(min), law) if lowest(&law) >= min => law,
        (Some(min), Variable::Constant(value)) => Variable::Constant(value.max(min)),
        (Some(low), Variable::Truncated { of, min, max }) => {
            Variable::Truncated { of, min: min.max(low), max }
        }
        (Some(min), of) => Variable::Truncated { of: Box::new(of), min, max: largest },
    })
}

/// Returns the smallest value of a law.
fn lowest(law: &Variable) -> f64 {
    Law::new(law.clone(), 0.0).map_or(0.0, |law| law.quantile(0.0))
}

/// Refuses a law that the parameter cannot have.
fn checked(cx: &mut Context<'_>, part: &Part, parameter: &Parameter, law: &Variable) -> Option<()> {
    let Err(error) = parameter.check(law) else { return Some(()) };
    let message = format!("`{}` cannot be this", shorten(&part.text));
    cx.refuse(Diagnostic::error(part.location, message).label(error.to_string()))
}

/// Whether an option of a test has a random variable of a model.
pub(crate) fn is_emulated(arguments: &[Setting]) -> bool {
    arguments.iter().flat_map(|argument| &argument.values).any(|value| emulated_part(value).is_some())
}
