//! The schedule of a plan: decides when each connection starts.

use trunkline_experiment::plan::Block;
use trunkline_units::{Instant, Span};

/// A run of a connection that is ready to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledRun {
    /// Index of the connection in the plan.
    pub connection: usize,
    /// Earliest time of its first message, before the connection's own delay.
    pub origin: Instant,
    /// Number of this run, from 1. Runs of nested repeats are numbered consecutively.
    pub run_number: u32,
    /// Passed to [`Schedule::finish`] when the run ends.
    pub block_index: usize,
}

/// The active blocks of a plan.
#[derive(Debug)]
pub struct Schedule<'p> {
    active: Vec<ActiveBlock<'p>>,
    ready: Vec<ScheduledRun>,
    /// Blocks of which a child has ended. A work list instead of recursion: many empty repetitions need no deep stack.
    progressed: Vec<(usize, Instant)>,
    done: bool,
}

/// An active block and its parent.
#[derive(Debug)]
struct ActiveBlock<'p> {
    parent: Option<usize>,
    round: u32,
    state: BlockState<'p>,
}

#[derive(Debug)]
enum BlockState<'p> {
    Serial(&'p [Block]),
    Parallel { remaining: usize },
    Repeat { body: &'p Block, count: u32, started: u32, every: Span, next_start: Instant },
    Connection,
}

impl<'p> Schedule<'p> {
    /// Starts `block` at `now`.
    pub fn new(block: &'p Block, now: Instant) -> Self {
        let mut schedule =
            Schedule { active: Vec::new(), ready: Vec::new(), progressed: Vec::new(), done: false };
        schedule.start_block(block, None, now, 1);
        schedule.advance_all();
        schedule
    }

    /// Removes and returns the runs that became ready since the last call.
    pub fn take_ready(&mut self) -> Vec<ScheduledRun> {
        std::mem::take(&mut self.ready)
    }

    /// Whether any run is ready.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether all blocks have ended.
    pub fn is_done(&self) -> bool {
        self.done
    }

    fn start_block(&mut self, block: &'p Block, parent: Option<usize>, origin: Instant, round: u32) {
        let block_index = self.active.len();
        let (state, parts): (_, &[Block]) = match block {
            Block::Serial(blocks) => (BlockState::Serial(blocks), &[]),
            Block::Parallel(blocks) => (BlockState::Parallel { remaining: blocks.len() }, blocks),
            Block::Repeat { count, every, body } => {
                let (count, every) = (*count, *every);
                (BlockState::Repeat { body, count, started: 0, every, next_start: origin }, &[])
            }
            Block::Connection(connection) => {
                self.ready.push(ScheduledRun {
                    connection: *connection,
                    origin,
                    run_number: round,
                    block_index,
                });
                (BlockState::Connection, &[])
            }
        };
        let waits = matches!(state, BlockState::Connection) || !parts.is_empty();
        self.active.push(ActiveBlock { parent, round, state });
        parts.iter().for_each(|part| self.start_block(part, Some(block_index), origin, round));
        if !waits {
            self.progressed.push((block_index, origin));
        }
    }

    /// Ends the run of a connection.
    pub fn finish(&mut self, block_index: usize, now: Instant) {
        self.end_block(block_index, now);
        self.advance_all();
    }

    fn end_block(&mut self, block: usize, now: Instant) {
        let Some(parent) = self.active[block].parent else {
            self.done = true;
            return;
        };
        if let BlockState::Parallel { remaining } = &mut self.active[parent].state {
            *remaining -= 1;
        }
        self.progressed.push((parent, now));
    }

    fn advance_all(&mut self) {
        while let Some((block, now)) = self.progressed.pop() {
            self.advance(block, now);
        }
    }

    /// Starts the next child of a block, or ends the block.
    fn advance(&mut self, block: usize, now: Instant) {
        let round = self.active[block].round;
        match &mut self.active[block].state {
            BlockState::Serial([first, rest @ ..]) => {
                let first: &'p Block = first;
                self.active[block].state = BlockState::Serial(rest);
                self.start_block(first, Some(block), now, round);
            }
            BlockState::Repeat { body, count, started, every, next_start } if *started < *count => {
                let (body, origin) = (*body, (*next_start).max(now));
                *started += 1;
                *next_start += *every;
                let round = (round - 1) * *count + *started;
                self.start_block(body, Some(block), origin, round);
            }
            BlockState::Parallel { remaining } if *remaining > 0 => {}
            _ => self.end_block(block, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a schedule in which each connection takes a second. Returns (connection, origin in s, run number) of each start.
    fn run_schedule(block: &Block) -> Vec<(usize, f64, u32)> {
        let mut schedule = Schedule::new(block, Instant::ZERO);
        let (mut log, mut running): (Vec<_>, Vec<ScheduledRun>) = (Vec::new(), Vec::new());
        loop {
            for run in schedule.take_ready() {
                log.push((run.connection, run.origin.as_s(), run.run_number));
                running.push(run);
            }
            running.sort_by_key(|t| (t.origin, t.connection));
            if running.is_empty() {
                break;
            }
            let run = running.remove(0);
            schedule.finish(run.block_index, run.origin + Span::from_s(1));
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
        assert_eq!(run_schedule(&block), [(0, 0.0, 1), (1, 0.0, 1), (2, 1.0, 1)]);
        assert_eq!(run_schedule(&Block::Parallel(vec![])), []);
        assert_eq!(run_schedule(&Block::Serial(vec![Block::Parallel(vec![]), c(0)])), [(0, 0.0, 1)]);
    }

    #[test]
    fn repeats_keep_their_period_and_number_their_runs() {
        let repeat =
            |count, every, body| Block::Repeat { count, every: Span::from_s(every), body: Box::new(body) };
        assert_eq!(run_schedule(&repeat(3, 10, c(0))), [(0, 0.0, 1), (0, 10.0, 2), (0, 20.0, 3)]);
        // A repetition that takes longer than the period delays the next.
        assert_eq!(run_schedule(&repeat(2, 0, Block::Serial(vec![c(0), c(1)]))).last(), Some(&(1, 3.0, 2)));
        let rounds: Vec<u32> = run_schedule(&repeat(2, 0, repeat(2, 0, c(0)))).iter().map(|x| x.2).collect();
        assert_eq!(rounds, [1, 2, 3, 4]);
    }

    #[test]
    fn many_repetitions_need_no_deep_stack() {
        let block =
            Block::Repeat { count: 100_000, every: Span::ZERO, body: Box::new(Block::Parallel(vec![])) };
        assert!(run_schedule(&block).is_empty());
    }
}
