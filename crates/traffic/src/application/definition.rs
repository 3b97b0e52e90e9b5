//! The table of a model: its parameters, their defaults, and where these come from.

use serde::{Deserialize, Serialize};
use trunkline_units::Instant;

use super::{Draws, MODELS, Model};
use crate::source::SMALLEST_MESSAGE;
use crate::{Law, Variable, VariableError};

/// What a parameter measures. Its base unit is that of the values of its [`Variable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of a message or item, at least [`SMALLEST_MESSAGE`].
    Bytes,
    /// Bytes that are no message or item, at least 1.
    Amount,
    /// Seconds, 0 or more.
    Seconds,
    /// How many, at least 1.
    Count,
    /// A number without unit, 0 or more.
    Number,
    /// Bits per second.
    BitsPerSecond,
}

impl Unit {
    /// Returns the smallest usable value; draws below it are drawn again.
    pub fn floor(self) -> f64 {
        match self {
            Unit::Bytes => f64::from(SMALLEST_MESSAGE),
            Unit::Amount | Unit::Count => 1.0,
            Unit::Seconds | Unit::Number | Unit::BitsPerSecond => 0.0,
        }
    }

    /// Formats a value with its unit.
    pub fn format(self, value: f64) -> String {
        match self {
            Unit::Bytes | Unit::Amount => format!("{value} B"),
            Unit::Seconds => trunkline_units::Span::from_seconds(value).to_string(),
            Unit::Count | Unit::Number => value.to_string(),
            Unit::BitsPerSecond => format!("{value} b/s"),
        }
    }
}

/// Creates a default value: constants of Rust cannot allocate, and variables with parts do.
pub type Default = fn() -> Variable;

/// A quantity of a model, constant or random.
#[derive(Debug)]
pub struct Parameter {
    /// Its name in the language, in its random stream and in the record.
    pub name: &'static str,
    /// What it is, for the reference page.
    pub meaning: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Its value unless a variant or the experiment sets another.
    pub default: Default,
    /// Where the default comes from: paper or standard with table or section.
    pub source: &'static str,
    /// Whether a variable with an infinite mean is refused.
    pub needs_mean: bool,
    /// Whether the value must be constant.
    pub is_constant: bool,
    /// The smallest and the largest constant that are usable, if the unit does not say it.
    pub range: Option<(f64, f64)>,
    /// Whether it is drawn once for a connection, so that there is nothing to compare.
    pub is_drawn_once: bool,
    /// Whether the value is a [`Variable::List`].
    pub is_list: bool,
    /// How the value, a constant, relates to that of another parameter.
    pub relation: Option<Relation>,
    /// Bytes of memory that a model may need for each unit of the value.
    pub memory: u32,
}

/// What a constant parameter must be with respect to another parameter of its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// One of the values of this list.
    OneOf(&'static str),
    /// At most this, a constant too; `messagesize` is the longest message.
    AtMost(&'static str),
}

impl Parameter {
    /// Creates a parameter that may be any variable.
    pub const fn new(
        name: &'static str,
        meaning: &'static str,
        unit: Unit,
        default: Default,
        source: &'static str,
    ) -> Parameter {
        Parameter {
            name,
            meaning,
            unit,
            default,
            source,
            needs_mean: false,
            is_constant: false,
            range: None,
            is_drawn_once: false,
            is_list: false,
            relation: None,
            memory: 0,
        }
    }

    /// Says how many bytes of memory the model may need for each unit of the value, such as a session.
    #[must_use]
    pub const fn with_memory(self, bytes: u32) -> Parameter {
        Parameter { memory: bytes, ..self }
    }

    /// Refuses variables with an infinite mean.
    #[must_use]
    pub const fn with_mean(self) -> Parameter {
        Parameter { needs_mean: true, ..self }
    }

    /// Refuses random variables.
    #[must_use]
    pub const fn constant(self) -> Parameter {
        Parameter { is_constant: true, ..self }
    }

    /// Refuses random variables, and constants outside of these ends.
    #[must_use]
    pub const fn constant_within(self, low: f64, high: f64) -> Parameter {
        Parameter { is_constant: true, range: Some((low, high)), ..self }
    }

    /// Says that it is drawn once for a connection.
    #[must_use]
    pub const fn once(self) -> Parameter {
        Parameter { is_drawn_once: true, ..self }
    }

    /// Requires a list of constants.
    #[must_use]
    pub const fn list(self) -> Parameter {
        Parameter { is_list: true, ..self }
    }

    /// Requires one of the values of a list of the model.
    #[must_use]
    pub const fn one_of(self, list: &'static str) -> Parameter {
        Parameter { is_constant: true, relation: Some(Relation::OneOf(list)), ..self }
    }

    /// Requires a constant of at most that of another parameter of the model, or of at most `messagesize`.
    #[must_use]
    pub const fn at_most(self, other: &'static str) -> Parameter {
        Parameter { is_constant: true, relation: Some(Relation::AtMost(other)), ..self }
    }

    /// Checks a value of this parameter.
    ///
    /// # Errors
    /// Those of [`Law::new`], [`VariableError::Range`], [`VariableError::NotConstant`], and [`VariableError::NoMean`].
    pub fn check(&self, value: &Variable) -> Result<(), VariableError> {
        self.law(value).map(drop)
    }

    /// Returns the law of a value of this parameter, at or above the [floor](Unit::floor) of its unit. A constant size below it is
    /// raised.
    ///
    /// # Errors
    /// Those of [`Parameter::check`].
    pub fn law(&self, value: &Variable) -> Result<Law, VariableError> {
        let has_form = match value {
            Variable::Constant(_) => true,
            Variable::List { .. } => self.is_list,
            _ => !self.is_constant && !self.is_list,
        };
        if !has_form {
            return Err(VariableError::NotConstant);
        }
        if let (Variable::Constant(value), Some((low, high))) = (value, self.range)
            && !(low..=high).contains(value)
        {
            return Err(VariableError::Range { parameter: self.name, low, high });
        }
        let floor = self.unit.floor();
        let value = match value {
            Variable::Constant(bytes) if self.unit == Unit::Bytes && *bytes < floor => {
                Variable::Constant(floor)
            }
            value => value.clone(),
        };
        let law = Law::new(value, floor)?;
        if self.needs_mean && law.mean().is_none() { Err(VariableError::NoMean) } else { Ok(law) }
    }
}

/// A keyword of a model that sets several parameters: `codec = g711`.
#[derive(Debug)]
pub struct Choice {
    /// Its name in the language.
    pub name: &'static str,
    /// Its values; the first is the default.
    pub variants: &'static [Variant],
}

/// A value of a [`Choice`].
#[derive(Debug)]
pub struct Variant {
    /// The keyword.
    pub name: &'static str,
    /// What it is, for the reference page.
    pub meaning: &'static str,
    /// Where its values come from.
    pub source: &'static str,
    /// The parameters that differ from their defaults.
    pub values: &'static [(&'static str, Default)],
}

/// A model: its name and parameters, and its state machine.
#[derive(Debug)]
pub struct Definition {
    /// Its name in the language.
    pub name: &'static str,
    /// One sentence for the reference page.
    pub summary: &'static str,
    /// The keyword that sets several parameters, if there is one.
    pub choice: Option<&'static Choice>,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// How many requests may wait for their responses; 0: it requests none, 1: each waits for the one before.
    pub max_outstanding: u16,
    /// Whether its items need a byte stream, because responses cannot be split.
    pub needs_stream: bool,
    /// Creates the state machine, whose first item is due at the start or later.
    pub start: fn(Instant, &Draws) -> Box<dyn Model>,
}

impl Definition {
    /// Returns a parameter by its name.
    pub fn parameter(&self, name: &str) -> Option<&'static Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// Returns the first parameter that does not fit another one, and how it must. `value_of` returns the value of a parameter,
    /// and that of `messagesize`.
    pub fn conflict<'a>(
        &self,
        value_of: impl Fn(&str) -> Option<&'a Variable>,
    ) -> Option<(&'static Parameter, Relation)> {
        self.parameters.iter().find_map(|parameter| {
            let relation = parameter.relation?;
            let Some(Variable::Constant(value)) = value_of(parameter.name) else { return None };
            let fits = match relation {
                Relation::OneOf(list) => match value_of(list)? {
                    Variable::List { values } => values.contains(value),
                    Variable::Constant(only) => only == value,
                    _ => return None,
                },
                Relation::AtMost(other) => match value_of(other)? {
                    Variable::Constant(most) => value <= most,
                    _ => return None,
                },
            };
            (!fits).then_some((parameter, relation))
        })
    }

    /// Returns the value of each parameter: the given one, or the default in a variant.
    pub fn values(
        &self,
        variant: Option<&str>,
        given: &[(String, Variable)],
    ) -> Vec<(&'static str, Variable)> {
        let value = |parameter: &'static Parameter| {
            let given = given.iter().find(|(name, _)| name == parameter.name);
            let value = given.map_or_else(|| self.default(parameter, variant).0, |(_, value)| value.clone());
            (parameter.name, value)
        };
        self.parameters.iter().map(value).collect()
    }

    /// Returns about how many bytes of memory the model may need with these parameters: an upper end of what grows with
    /// their values.
    pub fn memory(&self, variant: Option<&str>, given: &[(String, Variable)]) -> u64 {
        let bytes = |(parameter, (_, value)): (&Parameter, (_, Variable))| match value {
            Variable::Constant(count) => (count * f64::from(parameter.memory)) as u64,
            _ => 0,
        };
        let values = self.values(variant, given).into_iter();
        self.parameters.iter().zip(values).map(bytes).fold(0, u64::saturating_add)
    }

    /// Returns a variant by its keyword, or the default one if none is named.
    pub fn variant(&self, keyword: Option<&str>) -> Option<&'static Variant> {
        let variants = self.choice?.variants;
        match keyword {
            Some(keyword) => variants.iter().find(|variant| variant.name == keyword),
            None => variants.first(),
        }
    }

    /// Returns the default of a parameter in a variant, with its source.
    pub fn default(&self, parameter: &Parameter, variant: Option<&str>) -> (Variable, &'static str) {
        let variant = self.variant(variant);
        let of_variant = variant.and_then(|variant| {
            let (_, value) = variant.values.iter().find(|(name, _)| *name == parameter.name)?;
            Some((value(), variant.source))
        });
        of_variant.unwrap_or_else(|| ((parameter.default)(), parameter.source))
    }
}

/// A model by its name, as plans hold it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Application(&'static Definition);

/// A name that no model has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no application model `{0}`")]
pub struct UnknownModel(String);

impl Application {
    /// Returns the model of this name.
    pub fn named(name: &str) -> Option<Application> {
        MODELS.iter().find(|model| model.name == name).map(|model| Application(model))
    }

    /// Returns the definition.
    pub fn definition(self) -> &'static Definition {
        self.0
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns all parameters with their defaults in a variant.
    pub fn defaults(self, variant: Option<&str>) -> Vec<(String, Variable)> {
        let default = |p: &Parameter| (p.name.to_owned(), self.0.default(p, variant).0);
        self.0.parameters.iter().map(default).collect()
    }
}

impl PartialEq for Application {
    fn eq(&self, other: &Application) -> bool {
        self.0.name == other.0.name
    }
}

impl TryFrom<String> for Application {
    type Error = UnknownModel;

    fn try_from(name: String) -> Result<Application, UnknownModel> {
        Application::named(&name).ok_or(UnknownModel(name))
    }
}

impl From<Application> for String {
    fn from(model: Application) -> String {
        model.name().to_owned()
    }
}

/// Variables for the tables of models.
pub(super) mod values {
    use crate::Variable;

    pub fn constant(value: f64) -> Variable {
        Variable::Constant(value)
    }

    pub fn list(values: &[f64]) -> Variable {
        Variable::List { values: values.into() }
    }

    pub fn exponential(mean: f64) -> Variable {
        Variable::Exponential { mean }
    }

    pub fn pareto(shape: f64, min: f64) -> Variable {
        Variable::Pareto { shape, min }
    }

    pub fn weibull(scale: f64, shape: f64) -> Variable {
        Variable::Weibull { scale, shape }
    }

    /// Lognormal by the mean and the standard deviation of its logarithm, as most papers have it; its own mean and standard
    /// deviation are rounded to integers.
    pub fn lognormal(mu: f64, sigma: f64) -> Variable {
        let mean = libm::exp(mu + sigma * sigma / 2.0);
        let sd = mean * libm::sqrt(libm::expm1(sigma * sigma));
        Variable::Lognormal { mean: libm::round(mean), sd: libm::round(sd) }
    }

    pub fn extreme(a: f64, b: f64) -> Variable {
        Variable::Extreme { a, b }
    }

    pub fn gamma(scale: f64, shape: f64) -> Variable {
        Variable::Gamma { scale, shape }
    }

    pub fn beta(shape1: f64, shape2: f64, max: f64) -> Variable {
        Variable::Beta { shape1, shape2, max }
    }

    pub fn normal(mean: f64, sd: f64) -> Variable {
        Variable::Normal { mean, sd }
    }

    pub fn uniform(a: f64, b: f64) -> Variable {
        Variable::Uniform { a, b }
    }

    pub fn truncated(of: Variable, min: f64, max: f64) -> Variable {
        Variable::Truncated { of: Box::new(of), min, max }
    }

    pub fn clamped(of: Variable, min: f64, max: f64) -> Variable {
        Variable::Clamped { of: Box::new(of), min, max }
    }

    pub fn mixture(share: f64, first: Variable, second: Variable) -> Variable {
        Variable::Mixture { share, first: Box::new(first), second: Box::new(second) }
    }
}
