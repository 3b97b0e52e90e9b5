//! What the screen shows, and what each key does.

use std::path::{Path, PathBuf};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use trunkline_capture::Monitor;

use super::rank::{Sort, grouped};
use super::session::{Session, asked};
use crate::failure::Failure;

/// The pages of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Stations and services.
    Overview,
    /// Stations alone.
    Stations,
    /// Services alone.
    Services,
    /// Connections.
    Connections,
    /// What LLC tells of itself.
    Llc,
}

impl Page {
    /// In the order of their numbers.
    pub const ALL: [Page; 5] = [Page::Overview, Page::Stations, Page::Services, Page::Connections, Page::Llc];

    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Page::Overview => "overview",
            Page::Stations => "stations",
            Page::Services => "services",
            Page::Connections => "connections",
            Page::Llc => "llc",
        }
    }
}

/// A line that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// What for.
    pub goal: Goal,
    /// As far as it is typed.
    pub text: String,
}

/// What a typed line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// A filter; an empty one passes everything.
    Filter,
    /// A file to write the trace into.
    Write,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Go,
    /// End.
    Quit,
}

/// What the screen shows.
#[derive(Debug)]
pub struct App {
    pub page: Page,
    pub sort: Sort,
    /// Rows, or lines of a packet, that are scrolled past.
    pub scroll: usize,
    /// Whether the trace is shown instead of a page.
    pub trace: bool,
    /// Packets from the last one back to the chosen one.
    pub back: usize,
    pub help: bool,
    /// Whether the graph shows bits/s, else packets/s.
    pub bits: bool,
    pub input: Option<Input>,
    /// What the last key did, or why it did not.
    pub said: String,
    /// As the filter was typed.
    pub filter: String,
    /// What is shown while the screen stands still. Counting goes on behind it.
    pub frozen: Option<Box<Monitor>>,
}

/// Rows or packets that PageUp and PageDown move.
const LEAP: usize = 10;

impl App {
    /// As it begins.
    pub fn new(session: &Session) -> App {
        App {
            page: Page::Overview,
            sort: Sort::Bits,
            scroll: 0,
            trace: false,
            back: 0,
            help: false,
            bits: true,
            input: None,
            said: String::new(),
            filter: session.filter.clone(),
            frozen: None,
        }
    }

    /// A key was pressed.
    pub fn key(&mut self, key: KeyEvent, session: &mut Session) -> Result<Flow, Failure> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return Ok(Flow::Quit);
        }
        if let Some(input) = self.input.take() {
            self.typed(input, key.code, session)?;
            return Ok(Flow::Go);
        }
        self.said.clear();
        if self.help {
            self.help = false;
            return Ok(Flow::Go);
        }
        match key.code {
            KeyCode::Char('q') => return Ok(Flow::Quit),
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('f' | '/') => {
                self.input = Some(Input { goal: Goal::Filter, text: self.filter.clone() });
            }
            KeyCode::Char('w') => {
                self.input = Some(Input { goal: Goal::Write, text: free_name().display().to_string() });
            }
            KeyCode::Char('t') => self.turn_trace(),
            KeyCode::Char('p' | ' ') => self.pause(session),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.said = format!("sorted by {}", self.sort.name());
            }
            KeyCode::Char('b') => self.bits = !self.bits,
            KeyCode::Char('r') => {
                self.frozen = None;
                self.back = 0;
                session.restart(None)?;
                self.said = "counts begin anew".into();
            }
            KeyCode::Esc if self.trace => self.turn_trace(),
            KeyCode::Tab => self.turn_page(1),
            KeyCode::BackTab => self.turn_page(Page::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='5') => self.show(Page::ALL[digit as usize - '1' as usize]),
            other => self.moved(other, session),
        }
        Ok(Flow::Go)
    }

    fn turn_trace(&mut self) {
        (self.trace, self.scroll, self.back) = (!self.trace, 0, 0);
    }

    fn turn_page(&mut self, by: usize) {
        let at = Page::ALL.iter().position(|page| *page == self.page).unwrap_or_default();
        self.show(Page::ALL[(at + by) % Page::ALL.len()]);
    }

    fn show(&mut self, page: Page) {
        (self.page, self.trace, self.scroll) = (page, false, 0);
    }

    fn pause(&mut self, session: &Session) {
        self.frozen = match self.frozen {
            Some(_) => None,
            None => Some(Box::new(session.monitor.clone())),
        };
        self.back = 0;
    }

    /// Up and down in a table, back and forth in the trace, which stands still from then on.
    fn moved(&mut self, key: KeyCode, session: &Session) {
        if self.trace && !matches!(key, KeyCode::Left | KeyCode::Right) {
            let last = self.shown(session).trace().len().saturating_sub(1);
            let back = match key {
                KeyCode::Up | KeyCode::Char('k') => self.back.saturating_add(1),
                KeyCode::Down | KeyCode::Char('j') => self.back.saturating_sub(1),
                KeyCode::PageUp => self.back.saturating_add(LEAP),
                KeyCode::PageDown => self.back.saturating_sub(LEAP),
                KeyCode::Home => last,
                KeyCode::End => 0,
                _ => return,
            };
            if back > 0 && self.frozen.is_none() {
                self.pause(session);
            }
            (self.back, self.scroll) = (back.min(last), 0);
            return;
        }
        self.scroll = match key {
            KeyCode::Up | KeyCode::Left | KeyCode::Char('k') => self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Right | KeyCode::Char('j') => self.scroll.saturating_add(1),
            KeyCode::PageUp => self.scroll.saturating_sub(LEAP),
            KeyCode::PageDown => self.scroll.saturating_add(LEAP),
            KeyCode::Home => 0,
            _ => return,
        };
        // No table has more rows, so nobody scrolls back from nowhere.
        self.scroll =
            self.scroll.min(self.shown(session).connections().len().max(session.monitor.stations().len()));
    }

    fn shown<'a>(&'a self, session: &'a Session) -> &'a Monitor {
        self.frozen.as_deref().unwrap_or(&session.monitor)
    }

    /// A key while a line is typed.
    fn typed(&mut self, mut input: Input, key: KeyCode, session: &mut Session) -> Result<(), Failure> {
        /// Longer than any filter or path that is typed by hand.
        const LONGEST: usize = 1_000;
        self.said.clear();
        match key {
            KeyCode::Esc => return Ok(()),
            KeyCode::Enter => return self.entered(input, session),
            KeyCode::Backspace => drop(input.text.pop()),
            KeyCode::Delete => input.text.clear(),
            KeyCode::Char(c) if input.text.len() < LONGEST => input.text.push(c),
            _ => {}
        }
        self.input = Some(input);
        Ok(())
    }

    fn entered(&mut self, input: Input, session: &mut Session) -> Result<(), Failure> {
        let text = input.text.trim();
        match input.goal {
            Goal::Filter => match asked(text) {
                Ok((text, filter)) => {
                    session.restart(Some(filter))?;
                    (self.filter, self.frozen, self.back) = (text, None, 0);
                    self.said = "counts begin anew".into();
                }
                Err(why) => {
                    self.said = why;
                    self.input = Some(input);
                }
            },
            Goal::Write => {
                self.said = match self.shown(session).trace().write(Path::new(text)) {
                    Ok(packets) => format!("{} packets written to {text}", grouped(packets as u64)),
                    Err(e) => format!("{text}: {e}"),
                };
            }
        }
        Ok(())
    }
}

/// A name for a capture that is not taken yet.
fn free_name() -> PathBuf {
    let mut names = (1..10_000).map(|n| PathBuf::from(format!("trunkline-top-{n}.pcapng")));
    names.find(|name| !name.exists()).unwrap_or_default()
}
