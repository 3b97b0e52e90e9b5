//! `trunkline top`: live display of traffic.
//!
//! | module | contents |
//! | --- | --- |
//! | [`session`] | a source, its monitor, and the file of recorded samples |
//! | [`lines`] | output of one line or JSON object per interval |
//! | [`graph`] | the plot of recorded samples, as SVG |
//! | [`rank`] | sorted table rows, and formatting of numbers |
//! | [`screen`] | the terminal: event loop, setup and restoration |
//! | [`app`] | the state of the screen and its key bindings |
//! | [`draw`] | drawing of the screen |

#[cfg(feature = "screen")]
mod app;
#[cfg(feature = "screen")]
mod draw;
mod graph;
mod lines;
#[cfg_attr(not(feature = "screen"), allow(dead_code, reason = "only the screen uses all items"))]
mod rank;
#[cfg(feature = "screen")]
mod screen;
#[cfg_attr(not(feature = "screen"), allow(dead_code, reason = "only the screen uses all items"))]
pub mod session;

use trunkline_capture::flow::By;
use trunkline_capture::monitor::Limits;

use crate::failure::Failure;
use crate::flags::Top;
use session::Session;

/// Runs `trunkline top`.
pub fn top(flags: &Top) -> Result<(), Failure> {
    let mut session = Session::open(flags, Limits::default(), By::default())?;
    let done = watch(flags, &mut session);
    // Write the recorded data even if the source failed.
    let written = session.finish(flags);
    done.and(written)
}

#[cfg(feature = "screen")]
fn watch(flags: &Top, session: &mut Session) -> Result<(), Failure> {
    use std::io::IsTerminal;
    match flags.plain || flags.json || !std::io::stdout().is_terminal() {
        true => lines::watch(flags, session),
        false => screen::watch(session),
    }
}

#[cfg(not(feature = "screen"))]
fn watch(flags: &Top, session: &mut Session) -> Result<(), Failure> {
    lines::watch(flags, session)
}
