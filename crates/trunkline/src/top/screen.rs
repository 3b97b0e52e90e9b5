//! The terminal: the loop, and that it is left as it was found.

use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use trunkline_net::Clock;
use trunkline_units::{Instant, Span};

use super::app::{App, Flow};
use super::draw;
use super::session::{Did, Session};
use crate::failure::Failure;

/// How often the screen is drawn though nobody presses a key.
const REDRAW: Span = Span::from_ms(250);
/// How long packets are waited for before keys are looked at.
const WAIT: Span = Span::from_ms(40);

/// Watches on the terminal until `q`, the end of the time or a signal.
pub fn watch(session: &mut Session) -> Result<(), Failure> {
    // A panic restores the terminal before it is told: ratatui's hook.
    let mut terminal =
        ratatui::try_init().map_err(|e| Failure::run(format!("the terminal: {e} (try --plain)")))?;
    let done = show(&mut terminal, session);
    ratatui::restore();
    done
}

fn show(terminal: &mut ratatui::DefaultTerminal, session: &mut Session) -> Result<(), Failure> {
    let said = |e: io::Error| Failure::run(format!("the terminal: {e}"));
    let clock = Clock::start();
    let mut app = App::new();
    let mut next = Instant::ZERO;
    loop {
        let did = session.watch(WAIT)?;
        session.tell()?;
        if did == Did::Stopped {
            return Ok(());
        }
        let mut news = clock.now() >= next;
        // Nothing comes any more: only keys are waited for.
        let mut patience = if did == Did::Ended { Duration::from(REDRAW) } else { Duration::ZERO };
        while event::poll(std::mem::take(&mut patience)).map_err(said)? {
            news = true;
            if let Event::Key(key) = event::read().map_err(said)?
                && key.kind != KeyEventKind::Release
                && app.key(key, session)? == Flow::Quit
            {
                return Ok(());
            }
        }
        if news {
            next = clock.now() + REDRAW;
            let seen = draw::Seen {
                name: session.name(),
                note: session.note.as_deref(),
                ended: session.has_ended(),
                kernel: session.kernel,
                monitor: app.frozen.as_deref().unwrap_or(&session.monitor),
            };
            terminal.draw(|frame| draw::draw(frame, &app, &seen)).map_err(said)?;
        }
    }
}
