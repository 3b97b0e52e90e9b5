//! Traffic: random variables, burst patterns, and how well what was sent matches what was asked.
//!
//! | module | what |
//! | --- | --- |
//! | [`variable`] | [`Variable`], a quantity of the plan that may be random |
//! | [`law`] | [`Law`], a variable cut at the least value that can be used: draws, distribution, mean |
//! | [`fit`] | [`Sample`] and [`Fitness`], what was sent against what was asked |
//! | [`pattern`] | [`Pattern`], which messages are sent and when |
//! | [`series`] | [`Series`], amounts in equal intervals: other grains, correlation |
//! | [`analysis`] | rates, autocorrelation, spectrum and bursts of a series |
//! | [`hurst`] | the Hurst exponent of a series, by five estimators |
//! | [`noise`] | exact fractional Gaussian noise |
//! | [`profile`] | [`profile::Profile`], a law fitted to a series, and series drawn from it |
//! | `fft` | the Fourier transform, the same on every machine |
//! | [`source`] | [`Source`], a pattern at work: the messages one by one, and how well they kept to it |
//!
//! Nothing here reads a clock or knows a network. All arithmetic is `libm`'s, the same on every machine.

pub mod analysis;
mod fft;
pub mod fit;
pub mod hurst;
pub mod law;
pub mod noise;
pub mod pattern;
pub mod profile;
pub mod series;
pub mod source;
pub mod variable;

pub use fit::{Fitness, Rounding, Sample};
pub use law::Law;
pub use pattern::{Application, Burst, Pattern};
pub use series::Series;
pub use source::{Source, SourceError};
pub use variable::{Variable, VariableError};
