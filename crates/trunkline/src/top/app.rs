//! The state of the screen, and its key bindings.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use trunkline_capture::Monitor;

use super::rank::{Sort, group_digits};
use super::session::{Session, parse_filter};
use crate::failure::Failure;

/// The pages of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Stations and services.
    Overview,
    /// Only stations.
    Stations,
    /// Only services.
    Services,
    /// Connections.
    Connections,
    /// Exchanges, priorities and token of LLC.
    Llc,
}

impl Page {
    /// All pages, in the order of their number keys.
    pub const ALL: [Page; 5] = [Page::Overview, Page::Stations, Page::Services, Page::Connections, Page::Llc];

    /// The label of the page.
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

/// A line of input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// What the line is for.
    pub purpose: Purpose,
    /// The text typed so far.
    pub text: String,
}

/// The purpose of a line of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A filter; an empty one matches all packets.
    Filter,
    /// A file to write the trace to.
    Write,
}

/// The state of the screen.
#[derive(Debug)]
pub struct App {
    pub page: Page,
    pub sort: Sort,
    /// Number of table rows, or lines of a packet, scrolled out of view.
    pub scroll: usize,
    /// Whether the trace is shown instead of a page.
    pub trace: bool,
    /// Number of packets from the last one to the selected one.
    pub selected_from_end: usize,
    pub help: bool,
    /// Whether the graph shows bits/s instead of packets/s.
    pub bits: bool,
    pub input: Option<Input>,
    /// The result of the last key, or an error.
    pub message: String,
    /// The filter as typed.
    pub filter: String,
    /// The state shown while the display is paused. Counting continues.
    pub frozen: Option<Box<Monitor>>,
}

/// Number of rows or packets that PageUp and PageDown move.
const PAGE_STEP: usize = 10;

impl App {
    /// Creates the initial state.
    pub fn new(session: &Session) -> App {
        App {
            page: Page::Overview,
            sort: Sort::Bits,
            scroll: 0,
            trace: false,
            selected_from_end: 0,
            help: false,
            bits: true,
            input: None,
            message: String::new(),
            filter: session.filter.clone(),
            frozen: None,
        }
    }

    /// Handles a key; breaks to exit.
    pub fn key(&mut self, key: KeyEvent, session: &mut Session) -> Result<ControlFlow<()>, Failure> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return Ok(ControlFlow::Break(()));
        }
        if let Some(input) = self.input.take() {
            self.edit_input(input, key.code, session)?;
            return Ok(ControlFlow::Continue(()));
        }
        self.message.clear();
        if self.help {
            self.help = false;
            return Ok(ControlFlow::Continue(()));
        }
        match key.code {
            KeyCode::Char('q') => return Ok(ControlFlow::Break(())),
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('f' | '/') => {
                self.input = Some(Input { purpose: Purpose::Filter, text: self.filter.clone() });
            }
            KeyCode::Char('w') => {
                self.input = Some(Input { purpose: Purpose::Write, text: free_name().display().to_string() });
            }
            KeyCode::Char('t') => self.toggle_trace(),
            KeyCode::Char('p' | ' ') => self.pause(session),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.message = format!("sorted by {}", self.sort.name());
            }
            KeyCode::Char('b') => self.bits = !self.bits,
            KeyCode::Char('r') => {
                self.frozen = None;
                self.selected_from_end = 0;
                session.restart(None)?;
                self.message = "counters reset".into();
            }
            KeyCode::Esc if self.trace => self.toggle_trace(),
            KeyCode::Tab => self.next_page(1),
            KeyCode::BackTab => self.next_page(Page::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='5') => self.show(Page::ALL[digit as usize - '1' as usize]),
            other => self.scroll_by_key(other, session),
        }
        Ok(ControlFlow::Continue(()))
    }

    fn toggle_trace(&mut self) {
        (self.trace, self.scroll, self.selected_from_end) = (!self.trace, 0, 0);
    }

    fn next_page(&mut self, by: usize) {
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
        self.selected_from_end = 0;
    }

    /// Scrolls in a table, or selects a packet of the trace, which pauses the display.
    fn scroll_by_key(&mut self, key: KeyCode, session: &Session) {
        if self.trace && !matches!(key, KeyCode::Left | KeyCode::Right) {
            let last = self.monitor(session).trace().len().saturating_sub(1);
            let selected_from_end = match key {
                KeyCode::Up | KeyCode::Char('k') => self.selected_from_end.saturating_add(1),
                KeyCode::Down | KeyCode::Char('j') => self.selected_from_end.saturating_sub(1),
                KeyCode::PageUp => self.selected_from_end.saturating_add(PAGE_STEP),
                KeyCode::PageDown => self.selected_from_end.saturating_sub(PAGE_STEP),
                KeyCode::Home => last,
                KeyCode::End => 0,
                _ => return,
            };
            if selected_from_end > 0 && self.frozen.is_none() {
                self.pause(session);
            }
            (self.selected_from_end, self.scroll) = (selected_from_end.min(last), 0);
            return;
        }
        self.scroll = match key {
            KeyCode::Up | KeyCode::Left | KeyCode::Char('k') => self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Right | KeyCode::Char('j') => self.scroll.saturating_add(1),
            KeyCode::PageUp => self.scroll.saturating_sub(PAGE_STEP),
            KeyCode::PageDown => self.scroll.saturating_add(PAGE_STEP),
            KeyCode::Home => 0,
            _ => return,
        };
        // Do not scroll beyond the longest table.
        self.scroll =
            self.scroll.min(self.monitor(session).connections().len().max(session.monitor.stations().len()));
    }

    /// Returns the counters to show.
    pub fn monitor<'a>(&'a self, session: &'a Session) -> &'a Monitor {
        self.frozen.as_deref().unwrap_or(&session.monitor)
    }

    /// Handles a key during input of a line.
    fn edit_input(&mut self, mut input: Input, key: KeyCode, session: &mut Session) -> Result<(), Failure> {
        /// Maximum length of the input.
        const MAX_INPUT: usize = 1_000;
        self.message.clear();
        match key {
            KeyCode::Esc => return Ok(()),
            KeyCode::Enter => return self.submit_input(input, session),
            KeyCode::Backspace => drop(input.text.pop()),
            KeyCode::Delete => input.text.clear(),
            KeyCode::Char(c) if input.text.len() < MAX_INPUT => input.text.push(c),
            _ => {}
        }
        self.input = Some(input);
        Ok(())
    }

    fn submit_input(&mut self, input: Input, session: &mut Session) -> Result<(), Failure> {
        let text = input.text.trim();
        match input.purpose {
            Purpose::Filter => match parse_filter(text) {
                Ok((text, filter)) => {
                    session.restart(Some(filter))?;
                    (self.filter, self.frozen, self.selected_from_end) = (text, None, 0);
                    self.message = "counters reset".into();
                }
                Err(error) => {
                    self.message = error;
                    self.input = Some(input);
                }
            },
            Purpose::Write => {
                self.message = match self.monitor(session).trace().write(Path::new(text)) {
                    Ok(packets) => format!("{} packets written to {text}", group_digits(packets as u64)),
                    Err(e) => format!("{text}: {e}"),
                };
            }
        }
        Ok(())
    }
}

/// Returns an unused file name for a capture.
fn free_name() -> PathBuf {
    let mut names = (1..10_000).map(|n| PathBuf::from(format!("trunkline-top-{n}.pcapng")));
    names.find(|name| !name.exists()).unwrap_or_default()
}
