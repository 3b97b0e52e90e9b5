//! Draws the values of a variable and records those that were used.

use trunkline_units::{Seed, Span, Stream};

use crate::{Law, Sample, Variable, VariableError};

/// A shorter time is raised to this, so that time always advances.
pub(crate) const MIN_PERIOD: Span = Span::from_ns(1);

/// Draws the values of a variable and records them.
#[derive(Debug)]
pub(crate) struct VariateGenerator {
    pub law: Law,
    pub stream: Stream,
    pub sample: Sample,
    /// The value of a constant, as an integer and as a span in seconds.
    pub constant: Option<(u32, Span)>,
}

impl VariateGenerator {
    /// Creates the generator of a variable that is at or above `floor`, with the random stream of this name.
    pub fn new(variable: &Variable, floor: f64, seed: Seed, name: &str) -> Result<Self, VariableError> {
        Ok(VariateGenerator::of(Law::new(variable.clone(), floor)?, seed, name))
    }

    /// Creates the generator of a law, with the random stream of this name.
    pub fn of(law: Law, seed: Seed, name: &str) -> Self {
        let mut generator = VariateGenerator {
            law,
            stream: seed.stream(name),
            sample: Sample::new(seed.stream(&format!("{name} / sample"))),
            constant: None,
        };
        if generator.law.is_constant() {
            let value = generator.draw();
            generator.constant = Some((value.round() as u32, Span::from_seconds(value).max(MIN_PERIOD)));
        }
        generator
    }

    #[inline]
    pub fn draw(&mut self) -> f64 {
        self.law.sample(&mut self.stream)
    }

    /// Returns a number from 0 to 1 of the stream.
    pub fn unit(&mut self) -> f64 {
        self.stream.unit()
    }

    /// Returns an integer within bounds, and records it unless the variable is constant.
    #[inline(always)]
    pub fn integer(&mut self, smallest: u32, largest: u32) -> u32 {
        match self.constant {
            Some((value, _)) => value.max(smallest).min(largest),
            None => self.draw_integer(smallest, largest),
        }
    }

    #[inline(never)]
    fn draw_integer(&mut self, smallest: u32, largest: u32) -> u32 {
        let value = (self.draw().round() as u32).clamp(smallest, largest);
        self.sample.push(f64::from(value));
        value
    }

    /// Returns a span. It is not recorded, because the source compares the gaps between departures.
    #[inline]
    pub fn span(&mut self) -> Span {
        match self.constant {
            Some((_, span)) => span,
            None => self.draw_span(),
        }
    }

    #[inline(never)]
    fn draw_span(&mut self) -> Span {
        Span::from_seconds(self.draw()).max(MIN_PERIOD)
    }

    /// Replaces the value of a constant.
    pub fn set_integer(&mut self, value: u32) {
        self.constant = Some((value, MIN_PERIOD));
    }
}
