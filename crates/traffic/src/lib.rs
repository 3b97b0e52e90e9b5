//! Traffic: random variables, burst patterns, and tests of sent traffic against the requested laws.
//!
//! ```
//! use trunkline_traffic::{Law, Variable};
//! use trunkline_units::Seed;
//!
//! let law = Law::new(Variable::Exponential { mean: 2.0 }, 0.0).unwrap();
//! let mut stream = Seed(1).stream("example");
//! let sum: f64 = (0..10_000).map(|_| law.sample(&mut stream)).sum();
//! assert!((sum / 10_000.0 - 2.0).abs() < 0.1);
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`variable`] | [`Variable`], a quantity of the plan that may be random |
//! | [`law`] | [`Law`], a variable truncated at its least usable value: draws, distribution, mean |
//! | [`fit`] | [`Sample`] and [`Fitness`]: sent values against the requested law |
//! | [`pattern`] | [`Pattern`]: sizes and times of messages |
//! | [`series`] | [`Series`]: amounts in equal intervals, resampling, correlation |
//! | [`autocorrelation`](mod@autocorrelation) | the autocorrelation of a series |
//! | [`analysis`] | the distribution, spectrum and bursts of a series |
//! | [`hurst`] | the Hurst exponent of a series, by five estimators |
//! | [`noise`] | exact fractional Gaussian noise |
//! | [`profile`] | [`profile::Profile`], a law fitted to a series, and series drawn from it |
//! | `fft` | the Fourier transform, the same on every machine |
//! | [`source`] | [`Source`]: generates the messages of a pattern, and checks them against its laws |
//!
//! The crate reads no clock and opens no socket. All arithmetic uses `libm`, so results are equal on every machine.

pub mod analysis;
pub mod autocorrelation;
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
