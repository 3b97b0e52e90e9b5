//! Traffic: random variables, burst patterns, and how well what was sent matches what was asked.
//!
//! | module | what |
//! | --- | --- |
//! | [`variable`] | [`Variable`], a quantity of the plan that may be random |
//! | [`law`] | [`Law`], a variable cut at the least value that can be used: draws, distribution, mean |
//! | [`fit`] | [`Sample`] and [`Fitness`], what was sent against what was asked |
//! | [`pattern`] | [`Pattern`], which messages are sent and when |
//! | [`source`] | [`Source`], a pattern at work: the messages one by one, and how well they kept to it |
//!
//! Nothing here reads a clock or knows a network. All arithmetic is `libm`'s, the same on every machine.

pub mod fit;
pub mod law;
pub mod pattern;
pub mod source;
pub mod variable;

pub use fit::{Fitness, Rounding, Sample};
pub use law::Law;
pub use pattern::{Application, Burst, Pattern};
pub use source::{Source, SourceError};
pub use variable::{Variable, VariableError};
