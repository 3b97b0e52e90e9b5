//! Draws the quantities of a model and records those that left.

use trunkline_units::{Seed, Span, Stream};

use super::definition::Relation;
use super::{Application, Unit};
use crate::source::LawFit;
use crate::variate::VariateGenerator;
use crate::{Law, Rounding, Sample, Variable, VariableError};

/// A quantity of a model: one of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantityId(u16);

/// A drawn time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    quantity: QuantityId,
    span: Span,
    /// Its index among the times that have not ended.
    pending: u32,
}

/// A drawn length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    quantity: QuantityId,
    bytes: u32,
    /// Whether it is compared with the law.
    is_compared: bool,
}

impl Interval {
    /// Returns the time.
    pub fn span(self) -> Span {
        self.span
    }

    /// Returns the quantity.
    pub fn quantity(self) -> QuantityId {
        self.quantity
    }
}

impl Size {
    fn of(quantity: QuantityId, bytes: f64) -> Size {
        let bytes = libm::round(bytes).clamp(1.0, f64::from(u32::MAX)) as u32;
        Size { quantity, bytes, is_compared: true }
    }

    /// Returns the bytes.
    pub fn bytes(self) -> u32 {
        self.bytes
    }

    /// Returns the quantity.
    pub fn quantity(self) -> QuantityId {
        self.quantity
    }

    /// Returns the same size, not to be compared with the law: it depends on another one, and the test is of independent values.
    #[must_use]
    pub fn not_compared(self) -> Size {
        Size { is_compared: false, ..self }
    }

    /// Returns a shorter or longer size of the same quantity.
    pub(super) fn with_bytes(self, bytes: u32) -> Size {
        Size { bytes, ..self }
    }
}

/// One quantity: its law, its random stream, and what was recorded of it.
#[derive(Debug)]
struct Quantity {
    name: &'static str,
    unit: Unit,
    generator: VariateGenerator,
}

/// The quantities of a model. Each has its own random stream, `NAME / QUANTITY`.
#[derive(Debug)]
pub struct Draws {
    quantities: Vec<Quantity>,
    /// Drawn times that have not ended, and free indices in it. Without them, a test that ends would prefer short times.
    pending: Vec<Option<Interval>>,
    free: Vec<u32>,
}

impl Draws {
    /// Creates the quantities of a model. Parameters that `parameters` does not name have their defaults in the variant.
    ///
    /// # Errors
    /// The first parameter with an invalid value.
    pub fn new(
        model: Application,
        variant: Option<&str>,
        parameters: &[(String, Variable)],
        seed: Seed,
        name: &str,
    ) -> Result<Draws, (&'static str, VariableError)> {
        let definition = model.definition();
        let values = definition.values(variant, parameters);
        let value_of = |name: &str| values.iter().find(|(other, _)| *other == name).map(|(_, value)| value);
        let quantity = |(parameter, value): (&'static super::Parameter, Variable)| {
            let law = parameter.law(&value).map_err(|error| (parameter.name, error))?;
            let generator = VariateGenerator::of(law, seed, &format!("{name} / {}", parameter.name));
            Ok(Quantity { name: parameter.name, unit: parameter.unit, generator })
        };
        if let Some((parameter, Relation::OneOf(other) | Relation::AtMost(other))) =
            definition.conflict(value_of)
        {
            return Err((parameter.name, VariableError::Relation(other)));
        }
        let values = values.into_iter().map(|(_, value)| value);
        let quantities = definition.parameters.iter().zip(values).map(quantity).collect::<Result<_, _>>()?;
        Ok(Draws { quantities, pending: Vec::new(), free: Vec::new() })
    }

    /// Returns the quantity of a parameter.
    ///
    /// # Panics
    /// If the model has no such parameter.
    pub fn id(&self, name: &str) -> QuantityId {
        let index = self.quantities.iter().position(|quantity| quantity.name == name);
        QuantityId(index.unwrap_or_else(|| panic!("no parameter `{name}`")) as u16)
    }

    fn quantity(&mut self, id: QuantityId) -> &mut Quantity {
        &mut self.quantities[usize::from(id.0)]
    }

    /// Draws a time. It is recorded when the item that ends it leaves. A model that will not return it with an item calls
    /// [`finish`](Self::finish).
    pub fn interval(&mut self, quantity: QuantityId) -> Interval {
        let span = self.quantity(quantity).generator.span();
        let pending = self.free.pop().unwrap_or(self.pending.len() as u32);
        let interval = Interval { quantity, span, pending };
        match self.pending.get_mut(pending as usize) {
            Some(slot) => *slot = Some(interval),
            None => self.pending.push(Some(interval)),
        }
        interval
    }

    /// Ends a time. Records how long it was, in seconds, unless this is unknown.
    pub fn finish(&mut self, interval: Interval, seconds: Option<f64>) {
        self.pending[interval.pending as usize] = None;
        self.free.push(interval.pending);
        if let Some(seconds) = seconds {
            self.record(interval.quantity, seconds);
        }
    }

    /// Draws a length. It is recorded when the item is sent or the response has arrived.
    pub fn size(&mut self, quantity: QuantityId) -> Size {
        let bytes = self.quantity(quantity).generator.draw();
        Size::of(quantity, bytes)
    }

    /// Returns the length that is the `p`-quantile of the law, for models that draw `p` themselves by [`unit`](Self::unit).
    pub fn size_at(&self, quantity: QuantityId, p: f64) -> Size {
        Size::of(quantity, self.quantities[usize::from(quantity.0)].generator.law.quantile(p))
    }

    /// Draws a number from 0 to 1 from the random stream of a quantity.
    pub fn unit(&mut self, quantity: QuantityId) -> f64 {
        self.quantity(quantity).generator.unit()
    }

    /// Draws a number of events, rounded, and records it.
    pub fn count(&mut self, quantity: QuantityId) -> u32 {
        let count = libm::round(self.quantity(quantity).generator.draw()).clamp(0.0, f64::from(u32::MAX));
        self.record(quantity, count);
        count as u32
    }

    /// Draws a number and records it.
    pub fn number(&mut self, quantity: QuantityId) -> f64 {
        let value = self.quantity(quantity).generator.draw();
        self.record(quantity, value);
        value
    }

    /// Draws a number that is only used once or not compared, such as a limit.
    pub fn setting(&mut self, quantity: QuantityId) -> f64 {
        self.quantity(quantity).generator.draw()
    }

    /// Returns the random stream of a quantity, for values that do not follow its law, such as those of a first state.
    pub fn stream(&mut self, quantity: QuantityId) -> &mut Stream {
        &mut self.quantity(quantity).generator.stream
    }

    /// Returns the law of a quantity.
    pub fn law(&self, quantity: QuantityId) -> &Law {
        &self.quantities[usize::from(quantity.0)].generator.law
    }

    /// Returns the value of a constant parameter, in its unit.
    ///
    /// # Panics
    /// If the model has no such parameter.
    pub fn constant(&self, name: &str) -> f64 {
        self.mean(self.id(name)).unwrap_or_default()
    }

    /// Returns the values of a list, ascending.
    ///
    /// # Panics
    /// If the model has no such parameter.
    pub fn list(&self, name: &str) -> Vec<f64> {
        match self.quantities[usize::from(self.id(name).0)].generator.law.variable() {
            Variable::List { values } => values.to_vec(),
            Variable::Constant(value) => vec![*value],
            _ => Vec::new(),
        }
    }

    /// Returns the mean of the values of a quantity, rounded as they are drawn: lengths and counts are integers. `None` if it is
    /// infinite.
    pub fn mean(&self, quantity: QuantityId) -> Option<f64> {
        let Quantity { unit, generator, .. } = &self.quantities[usize::from(quantity.0)];
        match unit {
            Unit::Bytes | Unit::Count => generator.law.rounded_mean(),
            Unit::Amount | Unit::Seconds | Unit::Number | Unit::BitsPerSecond => generator.law.mean(),
        }
    }

    /// Records a length that left or arrived.
    pub(super) fn record_size(&mut self, size: Size, bytes: u64) {
        if size.is_compared {
            self.record(size.quantity, bytes as f64);
        }
    }

    /// Records a value that left or arrived, in the unit of the quantity.
    pub fn record(&mut self, quantity: QuantityId, value: f64) {
        self.quantity(quantity).generator.sample.push(value);
    }

    /// Compares what was recorded with the laws: times, and what is not constant. Times that have not ended count as they were
    /// drawn: the number of times that have begun is independent of how long the last ones are (Wald's identity).
    pub fn fits(&self) -> Vec<LawFit> {
        // A time of 0 cannot be sent late or early: there is nothing to compare.
        let of_interest = |(_, q): &(usize, &Quantity)| {
            let Quantity { unit, generator, .. } = q;
            let is_time = *unit == Unit::Seconds && generator.law.mean() != Some(0.0);
            generator.sample.count() > 0 && (is_time || !generator.law.is_constant())
        };
        let fit = |(index, quantity): (usize, &Quantity)| {
            let mut sample = quantity.generator.sample.clone();
            let pending = self.pending.iter().flatten().filter(|p| usize::from(p.quantity.0) == index);
            pending.for_each(|interval| sample.push(interval.span.as_s()));
            quantity.fit(&sample)
        };
        self.quantities.iter().enumerate().filter(of_interest).map(fit).collect()
    }

    /// As [`fits`](Self::fits), of times and lengths only: what a receiver can see.
    pub fn visible_fits(&self) -> Vec<LawFit> {
        let mut fits = self.fits();
        fits.retain(|fit| matches!(fit.unit, "us" | "bytes"));
        fits
    }
}

impl Quantity {
    fn fit(&self, sample: &Sample) -> LawFit {
        let (unit, rounding) = match self.unit {
            Unit::Bytes | Unit::Amount => ("bytes", Rounding::Integer),
            Unit::Seconds => ("us", Rounding::None),
            Unit::Count => ("count", Rounding::Integer),
            Unit::Number => ("number", Rounding::None),
            Unit::BitsPerSecond => ("bps", Rounding::None),
        };
        let generator = &self.generator;
        let format = |value| self.unit.format(value);
        let mut fit = LawFit::new(self.name, unit, &generator.law, sample, rounding, format);
        match rounding {
            Rounding::Integer => fit.requested_mean = generator.law.rounded_mean(),
            Rounding::None if self.unit == Unit::Seconds => fit.scale(1e6),
            Rounding::None => {}
        }
        fit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the language accepts can be drawn, and nothing else: one floor for both.
    #[test]
    fn a_law_that_is_checked_can_be_drawn() {
        let laws = [
            Variable::Uniform { a: 1.0, b: 31.0 },
            Variable::Uniform { a: 1.0, b: 33.0 },
            Variable::Exponential { mean: 2.0 },
            Variable::Constant(8.0),
            Variable::Truncated { of: Box::new(Variable::Exponential { mean: 5.0 }), min: 8.0, max: 1e9 },
        ];
        let mut refused = 0;
        for definition in super::super::MODELS {
            let model = Application::named(definition.name).unwrap();
            for (parameter, law) in
                definition.parameters.iter().flat_map(|p| laws.iter().map(move |l| (p, l)))
            {
                let given = [(parameter.name.to_owned(), law.clone())];
                let drawn = Draws::new(model, None, &given, Seed(1), "a-b").map(drop);
                let is_related =
                    |(_, error): &(&str, VariableError)| matches!(error, VariableError::Relation(_));
                if drawn.as_ref().err().is_some_and(is_related) {
                    continue;
                }
                let checked = parameter.check(law).map_err(|error| (parameter.name, error));
                assert_eq!(checked, drawn, "{} {}: {law:?}", definition.name, parameter.name);
                refused += usize::from(checked.is_err());
            }
        }
        assert!(refused > 20, "{refused}");
        let draws = |model: &str, name: &str, value: f64| {
            let given = [(name.to_owned(), Variable::Constant(value))];
            Draws::new(Application::named(model).unwrap(), None, &given, Seed(1), "a-b")
                .unwrap()
                .constant(name)
        };
        assert_eq!(draws("voice", "frame", 8.0), 32.0);
        // No message: the amount of an interval.
        assert_eq!(draws("fgn", "sd", 8.0), 8.0);
    }

    /// A plan from another host has not been through the language.
    #[test]
    fn values_that_the_language_refuses_are_refused() {
        let refusal = |model: &str, name: &str, value: Variable| {
            let model = Application::named(model).unwrap();
            Draws::new(model, None, &[(name.to_owned(), value)], Seed(1), "a-b").map(|_| ())
        };
        let mean = |mean| Variable::Exponential { mean };
        let not_constant = VariableError::NotConstant;
        assert_eq!(refusal("sensor", "sources", mean(1e12)), Err(("sources", not_constant)));
        assert_eq!(refusal("mginf", "maxSessions", mean(1e12)), Err(("maxSessions", not_constant)));
        assert_eq!(refusal("video", "ladder", mean(1e6)), Err(("ladder", not_constant)));
        let start = refusal("video", "start", Variable::Constant(1.0));
        assert_eq!(start, Err(("start", VariableError::Relation("ladder"))));
        let least = refusal("webrtc", "minRate", Variable::Constant(1e12));
        assert_eq!(least, Err(("minRate", VariableError::Relation("startRate"))));
        for model in super::super::MODELS {
            let application = Application::named(model.name).unwrap();
            assert!(Draws::new(application, None, &[], Seed(1), "a-b").is_ok(), "{}", model.name);
        }
    }
}
