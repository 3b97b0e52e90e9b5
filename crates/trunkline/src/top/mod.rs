//! `trunkline top`: traffic as it passes.
//!
//! | module | what |
//! | --- | --- |
//! | [`session`] | a source, its monitor, and the file that samples are recorded in |
//! | [`lines`] | a line or a JSON object an interval |
//! | [`graph`] | the recorded samples as a picture |
//! | [`rank`] | the rows of a table in order, and numbers as people read them |
//! | [`screen`] | the terminal: the loop, and that it is left as it was found |
//! | [`app`] | what the screen shows, and what each key does |
//! | [`draw`] | the screen's content |

#[cfg(feature = "screen")]
mod app;
#[cfg(feature = "screen")]
mod draw;
mod graph;
mod lines;
#[cfg_attr(not(feature = "screen"), allow(dead_code, reason = "the screen uses the rest"))]
mod rank;
#[cfg(feature = "screen")]
mod screen;
#[cfg_attr(not(feature = "screen"), allow(dead_code, reason = "the screen uses the rest"))]
pub mod session;

use crate::failure::Failure;
use crate::flags::Top;
use session::Session;

/// Watches.
pub fn top(flags: &Top) -> Result<(), Failure> {
    let mut session = Session::open(flags)?;
    let done = watch(flags, &mut session);
    // What was kept is written also when the source broke.
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
