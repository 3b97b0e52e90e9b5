//! The three endpoints in the wide format (docs/bundle-wire.md).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`host`] | the interface of a host |
//! | [`level1`] | between the wide area and the central converter |
//! | [`central`] | in the middle |
//! | [`sides`] | which converter of level 1 gets what, and how that moves |
//! | [`members`] | hosts as the central converter sees them |
//! | [`outbox`] | messages that gather until their bundle leaves |

pub mod central;
pub mod host;
pub mod level1;
pub mod members;
pub mod outbox;
pub mod sides;

use trunkline_units::Span;

/// Everybody sends something so often.
pub const HELLO: Span = Span::from_ms(250);
/// Of whoever is silent for so long the central converter takes leave.
pub const SILENCE: Span = Span::from_ms(900);
/// Whoever does not hear the central converter for so long takes leave of it: before it takes leave of him.
pub const LONELY: Span = Span::from_ms(700);
/// What was not heard of is told again after this.
pub const AGAIN: Span = Span::from_ms(20);
/// An acknowledgement waits for company for so long, or for so many messages that are to be acknowledged.
pub const ACKNOWLEDGE: Span = Span::from_ms(4);
/// So many.
pub const ACKNOWLEDGED: u16 = 16;
