//! The terminal: event loop, setup and restoration.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use trunkline_io::Clock;
use trunkline_units::{Instant, Span};

use super::app::App;
use super::draw;
use super::session::{Progress, Session};
use crate::failure::Failure;

/// Interval of redraws without key presses.
const REDRAW: Span = Span::from_ms(250);
/// Maximum time to wait for packets between checks for keys.
const WAIT: Span = Span::from_ms(40);
/// Capacity of the queue of key events.
const KEYS: usize = 64;

/// Runs the screen until `q`, the end of the duration, a signal, or the loss of the terminal.
pub fn watch(session: &mut Session) -> Result<(), Failure> {
    // Check now: after a hangup the file is not a terminal any more.
    let is_input_terminal = io::stdin().is_terminal();
    // The panic hook of ratatui restores the terminal before it prints the panic.
    let mut terminal =
        ratatui::try_init().map_err(|e| Failure::run(format!("the terminal: {e} (try --plain)")))?;
    let done = show(&mut terminal, session, is_input_terminal);
    if terminal.show_cursor().is_err() {
        // Dropping it would print an error to standard error, which is gone with the terminal, and panic.
        std::mem::forget(terminal);
    }
    let _ = ratatui::try_restore();
    done
}

fn show(
    terminal: &mut DefaultTerminal,
    session: &mut Session,
    is_input_terminal: bool,
) -> Result<(), Failure> {
    let clock = Clock::start();
    let keys = spawn_key_reader();
    let mut app = App::new(session);
    let mut next = Instant::ZERO;
    loop {
        let progress = session.watch(WAIT)?;
        session.take_samples()?;
        if progress == Progress::Stopped || is_gone(is_input_terminal) {
            return Ok(());
        }
        let mut needs_redraw = clock.now() >= next;
        // After the end of the source, wait for keys only.
        let mut timeout = if progress == Progress::Ended { Duration::from(REDRAW) } else { Duration::ZERO };
        loop {
            match keys.recv_timeout(std::mem::take(&mut timeout)) {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    if app.key(key, session)?.is_break() {
                        return Ok(());
                    }
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            needs_redraw = true;
        }
        if needs_redraw {
            next = clock.now() + REDRAW;
            if let Err(e) = terminal.draw(|frame| draw::draw(frame, &app, session)) {
                return if is_gone(is_input_terminal) {
                    Ok(())
                } else {
                    Err(Failure::run(format!("the terminal: {e}")))
                };
            }
        }
    }
}

/// Starts a thread that reads terminal events, because a read may block in the middle of an escape sequence. crossterm's read
/// does not return when the terminal is gone: the thread then spins until the program exits, so callers check [`is_gone`].
fn spawn_key_reader() -> Receiver<Event> {
    let (sender, receiver) = sync_channel(KEYS);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Whether the terminal is gone because its window was closed or its connection lost.
fn is_gone(is_input_terminal: bool) -> bool {
    let (input, output) = (io::stdin(), io::stdout());
    let mut ends = vec![PollFd::new(output.as_fd(), PollFlags::empty())];
    if is_input_terminal {
        ends.push(PollFd::new(input.as_fd(), PollFlags::empty()));
    }
    // POLLHUP is reported even if no events are requested.
    poll(&mut ends, PollTimeout::ZERO).is_ok_and(|count| count > 0)
}
