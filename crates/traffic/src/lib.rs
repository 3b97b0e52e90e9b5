//! Traffic: random variables, patterns and sources of messages, and comparison of sent traffic with the requested
//! distributions. Analysis of measured traffic.
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
//! | [`law`] | [`Law`], the distribution of a variable truncated at its smallest usable value: draws, quantiles, mean |
//! | [`fit`] | [`Sample`] and [`GoodnessOfFit`]: sent values compared with a law |
//! | [`pattern`] | [`Pattern`]: sizes and times of messages |
//! | [`application`] | application models, one file each, and how to add one |
//! | [`selection`] | which law fits values best: maximum likelihood, AIC |
//! | [`series`] | [`Series`]: amounts in equal intervals, resampling, correlation |
//! | [`autocorrelation`](mod@autocorrelation) | the autocorrelation of a series |
//! | [`analysis`] | the distribution, spectrum and bursts of a series |
//! | [`recording`] | [`Recording`]: sizes and times of recorded messages, for `replay` |
//! | [`hurst`] | the Hurst exponent of a series, by five estimators |
//! | [`noise`] | exact fractional Gaussian noise |
//! | [`profile`] | [`profile::Profile`], a model fitted to a series, and series drawn from it |
//! | `fft` | the Fourier transform, with equal results on every machine |
//! | `variate` | draws and records the values of a variable |
//! | [`source`] | [`Source`]: generates the messages of a pattern, and compares them with the requested distributions |
//!
//! The crate reads no clock and opens no socket. All arithmetic uses `libm`, so results are equal on every machine.

pub mod analysis;
pub mod application;
pub mod autocorrelation;
mod fft;
pub mod fit;
pub mod hurst;
pub mod law;
pub mod noise;
pub mod pattern;
pub mod profile;
pub mod recording;
pub mod selection;
pub mod series;
pub mod source;
pub mod variable;
mod variate;

pub use application::Application;
pub use fit::{GoodnessOfFit, Rounding, Sample};
pub use law::Law;
pub use pattern::{Burst, Pattern};
pub use recording::{Recording, RecordingRequest};
pub use series::Series;
pub use source::{Source, SourceError};
pub use variable::{Variable, VariableError};
