//! When connections run: the plan's blocks, as they are worked through.

use trunkline_experiment::plan::Block;
use trunkline_units::{Instant, Span};

/// A connection whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its index in the plan.
    pub connection: usize,
    /// When its first message may leave, before its own delay.
    pub origin: Instant,
    /// Which of its runs this is, from 1; runs of nested repeats are numbered through.
    pub round: u32,
    /// To be handed back when it is over.
    pub ticket: usize,
}

/// The blocks under way.
#[derive(Debug)]
pub struct Schedule<'p> {
    active: Vec<Active<'p>>,
    turns: Vec<Turn>,
    /// Blocks of which a part has ended; a queue, so that many empty rounds need no deep stack.
    moved: Vec<(usize, Instant)>,
    done: bool,
}

/// A block under way, and whose part it is.
#[derive(Debug)]
struct Active<'p> {
    parent: Option<usize>,
    round: u32,
    state: State<'p>,
}

#[derive(Debug)]
enum State<'p> {
    Serial(&'p [Block]),
    Parallel { left: usize },
    Repeat { body: &'p Block, count: u32, begun: u32, every: Span, next: Instant },
    Connection,
}

impl<'p> Schedule<'p> {
    /// Begins with `block` at `now`.
    pub fn new(block: &'p Block, now: Instant) -> Self {
        let mut schedule = Schedule { active: Vec::new(), turns: Vec::new(), moved: Vec::new(), done: false };
        schedule.begin(block, None, now, 1);
        schedule.settle();
        schedule
    }

    /// The connections whose turn has come since this was last asked.
    pub fn turns(&mut self) -> Vec<Turn> {
        std::mem::take(&mut self.turns)
    }

    /// Whether there are any.
    pub fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Whether everything has run.
    pub fn is_done(&self) -> bool {
        self.done
    }

    fn begin(&mut self, block: &'p Block, parent: Option<usize>, origin: Instant, round: u32) {
        let ticket = self.active.len();
        let (state, parts): (_, &[Block]) = match block {
            Block::Serial(blocks) => (State::Serial(blocks), &[]),
            Block::Parallel(blocks) => (State::Parallel { left: blocks.len() }, blocks),
            Block::Repeat { count, every, body } => {
                let (count, every) = (*count, *every);
                (State::Repeat { body, count, begun: 0, every, next: origin }, &[])
            }
            Block::Connection(connection) => {
                self.turns.push(Turn { connection: *connection, origin, round, ticket });
                (State::Connection, &[])
            }
        };
        let waits = matches!(state, State::Connection) || !parts.is_empty();
        self.active.push(Active { parent, round, state });
        parts.iter().for_each(|part| self.begin(part, Some(ticket), origin, round));
        if !waits {
            self.moved.push((ticket, origin));
        }
    }

    /// Takes back the ticket of a connection that is over.
    pub fn over(&mut self, ticket: usize, now: Instant) {
        self.end(ticket, now);
        self.settle();
    }

    fn end(&mut self, block: usize, now: Instant) {
        let Some(parent) = self.active[block].parent else {
            self.done = true;
            return;
        };
        if let State::Parallel { left } = &mut self.active[parent].state {
            *left -= 1;
        }
        self.moved.push((parent, now));
    }

    fn settle(&mut self) {
        while let Some((block, now)) = self.moved.pop() {
            self.advance(block, now);
        }
    }

    /// Begins the next part of a block, or ends it.
    fn advance(&mut self, block: usize, now: Instant) {
        let round = self.active[block].round;
        match &mut self.active[block].state {
            State::Serial([first, rest @ ..]) => {
                let first: &'p Block = first;
                self.active[block].state = State::Serial(rest);
                self.begin(first, Some(block), now, round);
            }
            State::Repeat { body, count, begun, every, next } if *begun < *count => {
                let (body, origin) = (*body, (*next).max(now));
                *begun += 1;
                *next += *every;
                let round = (round - 1) * *count + *begun;
                self.begin(body, Some(block), origin, round);
            }
            State::Parallel { left } if *left > 0 => {}
            _ => self.end(block, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a schedule whose every connection takes a second; what began when: (connection, origin in s, round).
    fn play(block: &Block) -> Vec<(usize, f64, u32)> {
        let mut schedule = Schedule::new(block, Instant::ZERO);
        let (mut log, mut running): (Vec<_>, Vec<Turn>) = (Vec::new(), Vec::new());
        loop {
            for turn in schedule.turns() {
                log.push((turn.connection, turn.origin.as_s(), turn.round));
                running.push(turn);
            }
            running.sort_by_key(|t| (t.origin, t.connection));
            if running.is_empty() {
                break;
            }
            let turn = running.remove(0);
            schedule.over(turn.ticket, turn.origin + Span::from_s(1));
        }
        assert!(schedule.is_done());
        log
    }

    fn c(index: usize) -> Block {
        Block::Connection(index)
    }

    #[test]
    fn blocks_nest() {
        let block = Block::Serial(vec![Block::Parallel(vec![c(0), c(1)]), c(2)]);
        assert_eq!(play(&block), [(0, 0.0, 1), (1, 0.0, 1), (2, 1.0, 1)]);
        assert_eq!(play(&Block::Parallel(vec![])), []);
        assert_eq!(play(&Block::Serial(vec![Block::Parallel(vec![]), c(0)])), [(0, 0.0, 1)]);
    }

    #[test]
    fn repeats_keep_their_pace_and_number_their_rounds() {
        let repeat =
            |count, every, body| Block::Repeat { count, every: Span::from_s(every), body: Box::new(body) };
        assert_eq!(play(&repeat(3, 10, c(0))), [(0, 0.0, 1), (0, 10.0, 2), (0, 20.0, 3)]);
        // A round that takes longer delays the next.
        assert_eq!(play(&repeat(2, 0, Block::Serial(vec![c(0), c(1)]))).last(), Some(&(1, 3.0, 2)));
        let rounds: Vec<u32> = play(&repeat(2, 0, repeat(2, 0, c(0)))).iter().map(|x| x.2).collect();
        assert_eq!(rounds, [1, 2, 3, 4]);
    }

    #[test]
    fn many_rounds_need_no_deep_stack() {
        let block =
            Block::Repeat { count: 100_000, every: Span::ZERO, body: Box::new(Block::Parallel(vec![])) };
        assert!(play(&block).is_empty());
    }
}
