//! The terminal: the loop, and that it is left as it was found.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use trunkline_io::Clock;
use trunkline_units::{Instant, Span};

use super::app::{App, Flow};
use super::draw;
use super::session::{Did, Session};
use crate::failure::Failure;

/// How often the screen is drawn though nobody presses a key.
const REDRAW: Span = Span::from_ms(250);
/// How long packets are waited for before keys are looked at.
const WAIT: Span = Span::from_ms(40);
/// Keys that may wait to be looked at; who types on waits.
const KEYS: usize = 64;

/// Watches on the terminal until `q`, the end of the time, a signal, or the terminal goes away.
pub fn watch(session: &mut Session) -> Result<(), Failure> {
    // Asked while it is there: a terminal that is gone is none.
    let typed = io::stdin().is_terminal();
    // A panic restores the terminal before it is told: ratatui's hook.
    let mut terminal =
        ratatui::try_init().map_err(|e| Failure::run(format!("the terminal: {e} (try --plain)")))?;
    let done = show(&mut terminal, session, typed);
    if terminal.show_cursor().is_err() {
        // Dropped, it would tell standard error, which is gone with the terminal, and panic.
        std::mem::forget(terminal);
    }
    let _ = ratatui::try_restore();
    done
}

fn show(terminal: &mut DefaultTerminal, session: &mut Session, typed: bool) -> Result<(), Failure> {
    let clock = Clock::start();
    let keys = listen();
    let mut app = App::new(session);
    let mut next = Instant::ZERO;
    loop {
        let did = session.watch(WAIT)?;
        session.tell()?;
        if did == Did::Stopped || is_gone(typed) {
            return Ok(());
        }
        let mut news = clock.now() >= next;
        // Nothing comes any more: only keys are waited for.
        let mut patience = if did == Did::Ended { Duration::from(REDRAW) } else { Duration::ZERO };
        loop {
            match keys.recv_timeout(std::mem::take(&mut patience)) {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    if app.key(key, session)? == Flow::Quit {
                        return Ok(());
                    }
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            news = true;
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
            if let Err(e) = terminal.draw(|frame| draw::draw(frame, &app, &seen)) {
                return if is_gone(typed) { Ok(()) } else { Err(Failure::run(format!("the terminal: {e}"))) };
            }
        }
    }
}

/// What is typed, heard by a thread of its own: reading it may block in the middle of a key, and crossterm's does not
/// return when the terminal is gone. Then the thread spins until the program ends, so [`is_gone`] must be asked.
fn listen() -> Receiver<Event> {
    let (tell, heard) = sync_channel(KEYS);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if tell.send(event).is_err() {
                break;
            }
        }
    });
    heard
}

/// Whether the terminal is gone: its window was closed, its connection lost. `typed`: it is standard input too.
fn is_gone(typed: bool) -> bool {
    let (input, output) = (io::stdin(), io::stdout());
    let mut ends = vec![PollFd::new(output.as_fd(), PollFlags::empty())];
    if typed {
        ends.push(PollFd::new(input.as_fd(), PollFlags::empty()));
    }
    // Hanging up is told though nothing is asked for.
    poll(&mut ends, PollTimeout::ZERO).is_ok_and(|count| count > 0)
}
