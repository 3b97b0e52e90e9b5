//! Every order in which frames can be delivered, dropped, doubled and overtaken, and timers run, up to a depth: an
//! exhaustive search of the code itself. A state is found again by playing what led to it, so nodes need no copying.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use trunkline_arq::{Congestion, Mode, Options};

use super::manual_pair::{HOP, ManualPair};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// The frame at this place of those on their way to an end.
    Deliver(usize, usize),
    Drop(usize, usize),
    /// It arrives and stays on its way.
    Double(usize, usize),
    /// An end's next deadline comes.
    Wake(usize),
}

/// What is searched.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    pub mode: Mode,
    pub window: u16,
    pub messages: u8,
    /// Both ends send.
    pub both: bool,
    /// Steps, and how many of them may be drops, doubles and wakes.
    pub depth: usize,
    pub drops: usize,
    pub doubles: usize,
    pub wakes: usize,
}

struct ModelState {
    hand: ManualPair,
    flying: [Vec<Vec<u8>>; 2],
    got: [Vec<Vec<u8>>; 2],
}

impl Search {
    fn options(&self) -> Options {
        Options {
            mode: self.mode,
            window: self.window,
            frame: 128,
            ack_every: 1,
            congestion: Congestion::Fixed,
            ..Options::default()
        }
    }

    fn message(&self, end: usize, number: u8) -> Vec<u8> {
        vec![number * 2 + end as u8; 100]
    }

    fn sent(&self, end: usize) -> Vec<Vec<u8>> {
        let count = if end == 0 || self.both { self.messages } else { 0 };
        (0..count).map(|number| self.message(end, number)).collect()
    }

    fn begin(&self) -> ModelState {
        let mut hand = ManualPair::open(&self.options());
        for end in 0..2 {
            self.sent(end).iter().for_each(|message| hand.send(end, message));
        }
        let flying = [hand.outputs(1), hand.outputs(0)];
        ModelState { hand, flying, got: Default::default() }
    }

    fn play(&self, steps: &[Step]) -> ModelState {
        let mut world = self.begin();
        steps.iter().for_each(|step| world.step(*step));
        world
    }

    /// Looks at every state within the depth; how many there are.
    ///
    /// # Panics
    /// If something arrives wrong, twice or out of order, or a good path from then on does not bring everything.
    pub fn run(&self) -> usize {
        let mut known = BTreeSet::new();
        let mut left = VecDeque::from([Vec::new()]);
        while let Some(steps) = left.pop_front() {
            let world = self.play(&steps);
            if !known.insert(world.fingerprint(&steps)) {
                continue;
            }
            for end in 0..2 {
                let sent = self.sent(1 - end);
                assert!(sent.starts_with(&world.got[end]), "{steps:?} in {self:?}");
            }
            if steps.len() < self.depth {
                left.extend(self.next(&world, &steps).into_iter().map(|step| [&steps[..], &[step]].concat()));
            }
            self.complete(world, &steps);
        }
        known.len()
    }

    fn next(&self, world: &ModelState, steps: &[Step]) -> Vec<Step> {
        let count = |what: fn(&Step) -> bool| steps.iter().filter(|step| what(step)).count();
        let drops = count(|step| matches!(step, Step::Drop(..))) < self.drops;
        let doubles = count(|step| matches!(step, Step::Double(..))) < self.doubles;
        let wakes = count(|step| matches!(step, Step::Wake(_))) < self.wakes;
        let mut next = Vec::new();
        for end in 0..2 {
            for at in 0..world.flying[end].len() {
                next.push(Step::Deliver(end, at));
                next.extend(drops.then_some(Step::Drop(end, at)));
                next.extend(doubles.then_some(Step::Double(end, at)));
            }
            // Time passes for good only where data waits for it; keep-alive would go on for ever.
            let waits = world.hand.nodes[end].inner().in_flight(world.hand.ids[end]) > Some(0);
            next.extend((wakes && waits).then_some(Step::Wake(end)));
        }
        next
    }

    /// The path is good from now on.
    fn complete(&self, mut world: ModelState, steps: &[Step]) {
        let is_done = |world: &ModelState| {
            let quiet = |end: usize| world.hand.nodes[end].inner().in_flight(world.hand.ids[end]) == Some(0);
            (0..2).all(|end| quiet(end) && world.got[end] == self.sent(1 - end))
        };
        for _ in 0..100 {
            if is_done(&world) {
                return;
            }
            world.hand.pass(HOP);
            if world.flying.iter().all(Vec::is_empty) {
                let ends = [0, 1].into_iter().filter(|end| world.hand.deadlines[*end].is_some());
                let first = ends.min_by_key(|end| world.hand.deadlines[*end]).expect("an end waits");
                world.step(Step::Wake(first));
            }
            for end in 0..2 {
                for _ in 0..world.flying[end].len() {
                    world.step(Step::Deliver(end, 0));
                }
            }
        }
        panic!("a deadlock after {steps:?} in {self:?}");
    }
}

impl ModelState {
    fn step(&mut self, step: Step) {
        let (end, said) = match step {
            Step::Deliver(end, at) => {
                let frame = self.flying[end].remove(at);
                (end, self.hand.give(end, &[frame]))
            }
            Step::Double(end, at) => {
                let frame = self.flying[end][at].clone();
                (end, self.hand.give(end, &[frame]))
            }
            Step::Drop(end, at) => {
                self.flying[end].remove(at);
                (end, Vec::new())
            }
            Step::Wake(end) => (end, self.hand.wake(end)),
        };
        self.flying[1 - end].extend(said);
        for end in 0..2 {
            let got = self.hand.take(end);
            self.got[end].extend(got);
        }
    }

    /// Equal for states that behave alike: what is merely counted makes no difference.
    fn fingerprint(&self, steps: &[Step]) -> u64 {
        let mut hasher = DefaultHasher::new();
        for node in &self.hand.nodes {
            let text = format!("{node:?}");
            let parts = text.split("statistics: Statistics {");
            parts
                .map(|part| part.split_once("}, options").map_or(part, |(_, rest)| rest))
                .for_each(|p| p.hash(&mut hasher));
        }
        let mut flying = self.flying.clone();
        flying.iter_mut().for_each(|frames| frames.sort());
        (flying, self.hand.now).hash(&mut hasher);
        // What may still happen.
        let kinds = |what: fn(&Step) -> bool| steps.iter().filter(|step| what(step)).count();
        kinds(|step| matches!(step, Step::Drop(..))).hash(&mut hasher);
        kinds(|step| matches!(step, Step::Double(..))).hash(&mut hasher);
        kinds(|step| matches!(step, Step::Wake(_))).hash(&mut hasher);
        hasher.finish()
    }
}
