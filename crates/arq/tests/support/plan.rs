//! What happens in an exchange, drawn from a seed, and made smaller while it still fails.

use trunkline_arq::options::Timeouts;
use trunkline_arq::torture::{Blackhole, Faults};
use trunkline_arq::{Check, Congestion, Fec, Mode, Options, PresharedKey};
use trunkline_endpoint::Impairments;
use trunkline_units::{Instant, Rate, Seed, Span, Stream};

/// Everything about an exchange; what is first is the end that opens.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub options: [Options; 2],
    pub faults: [Faults; 2],
    pub lines: [Impairments; 2],
    /// Messages that each end sends.
    pub total: [u64; 2],
    pub channels: u64,
    /// The longest message, in bytes.
    pub longest: u64,
    pub readers: [Reader; 2],
    /// How likely an end looks at what can be read, each round.
    pub attention: [f64; 2],
    /// Numbers of frames and chunks begin here.
    pub first: (u64, u64),
    /// Leaps of the clocks, some hours each.
    pub leaps: u64,
    pub upset: Option<(Upset, usize)>,
    /// Channels have priorities.
    pub priorities: bool,
    /// The longest frame that passes from each end, from when on.
    pub carries: [Vec<(Instant, usize)>; 2],
    /// Both ends lay out frames when messages come, from so many in flight on.
    pub lays_from: Option<u32>,
}

/// How an end takes what has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reader {
    Messages,
    Bytes,
    /// Now so, now so.
    Both,
}

/// What one end does to the other in the middle of it all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Upset {
    Reset,
    Restart,
}

impl Plan {
    pub fn draw(seed: u64) -> Plan {
        let mut draw = Seed(seed).stream("exchange");
        let draw = &mut draw;
        let mut first = draw_options(draw);
        let mut second = draw_options(draw);
        second.mode = first.mode;
        (first.key, second.key) = (key(seed), key(seed));
        let mut faults = [draw_faults(draw), draw_faults(draw)];
        let leaps = if draw.chance(0.15) { 1 + draw.below(3) } else { 0 };
        let window = first.window.min(second.window);
        let mut longest = [100, 3000, 100_000][draw.below(3) as usize];
        let mut total = [1 + draw.below(60), if draw.chance(0.5) { 1 + draw.below(60) } else { 0 }];
        // What sends a window again for each loss gets less to send, so that runs are about equally long.
        if first.mode != Mode::Selective || window < 8 {
            longest = longest.min(5000);
            if faults.iter().any(|faults| faults.drop > 0.2) {
                total = total.map(|total| total.div_ceil(4));
                longest = longest.min(1000);
            }
        }
        let mut options = [first, second];
        if leaps > 0 {
            // Eight questions may well be lost in a row. With so much patience none of the leaps is at fault.
            options.iter_mut().for_each(|options| options.peer_timeout = Span::from_s(40 * 3600));
        }
        if draw.chance(0.7) {
            faults.iter_mut().for_each(|faults| faults.blackhole = None);
        }
        let readers = [Reader::Messages, Reader::Messages, Reader::Bytes, Reader::Both];
        let upsets = [Upset::Reset, Upset::Restart];
        let mut plan = Plan {
            seed,
            options,
            faults,
            lines: [draw_line(draw), draw_line(draw)],
            total,
            channels: [1, 2, 20][draw.below(3) as usize],
            longest,
            readers: [(); 2].map(|()| readers[draw.below(4) as usize]),
            attention: [(); 2].map(|()| if draw.chance(0.3) { 0.02 + draw.unit() / 4.0 } else { 1.0 }),
            first: match draw.chance(0.5) {
                true => ((1 << 24) - draw.below(300), (1 << 16) - draw.below(60)),
                false => (0, 0),
            },
            leaps,
            // An end that lost its peer may have to wait for its patience, which leaps make a day and more.
            upset: (draw.chance(0.3) && leaps == 0)
                .then(|| (upsets[draw.below(2) as usize], draw.below(2) as usize)),
            priorities: draw.chance(0.3),
            carries: Default::default(),
            lays_from: None,
        };
        // Last, so that what was drawn before it was there is what it was.
        let wants = draw.chance(0.6);
        plan.options.iter_mut().for_each(|options| options.fec = draw_fec(draw, wants));
        plan.lays_from = draw.chance(0.6).then(|| draw.below(8) as u32);
        plan
    }

    /// The same between ends that probe a path which carries less than a frame now and then. There is enough to send
    /// that it matters, and not much else goes wrong.
    pub fn draw_narrow(seed: u64) -> Plan {
        let mut plan = Plan::draw(seed);
        let mut draw = Seed(seed).stream("narrow");
        for options in &mut plan.options {
            options.frame = [128, 1200, 1472, 4000][draw.below(4) as usize] + draw.below(100) as u16;
            options.probe_up_to = Some(options.frame + [0, 3000, 9000, 60_000][draw.below(4) as usize]);
            options.window = options.window.max(4);
            (options.credit, options.channel_credit) = (1 << 20, 1 << 19);
        }
        for faults in &mut plan.faults {
            let rare = draw.unit() * 0.05;
            (faults.drop, faults.blackhole) = (faults.drop.min(rare), None);
        }
        plan.carries = [(); 2].map(|()| {
            let mut at = Instant::ZERO;
            let changes = (0..1 + draw.below(6)).map(|_| {
                at += Span::from_us(draw.below(4_000_000) >> draw.below(10));
                (at, 1200 + (draw.below(64_000) >> draw.below(9)) as usize)
            });
            changes.collect()
        });
        plan.longest = 100_000;
        (plan.leaps, plan.upset, plan.attention) = (0, None, [1.0; 2]);
        plan
    }

    /// Each a little simpler than this one.
    pub fn simpler(&self) -> Vec<Plan> {
        let change = |how: &dyn Fn(&mut Plan)| {
            let mut plan = self.clone();
            how(&mut plan);
            plan
        };
        let mut plans = vec![
            change(&|p| p.total = p.total.map(|total| total / 2)),
            change(&|p| p.total[0] -= p.total[0].min(1)),
            change(&|p| p.total[1] -= p.total[1].min(1)),
            change(&|p| p.total[1] = 0),
            change(&|p| p.channels = 1),
            change(&|p| p.channels = p.channels.min(2)),
            change(&|p| p.longest = (p.longest / 2).max(2)),
            change(&|p| p.first = (0, 0)),
            change(&|p| p.leaps = 0),
            change(&|p| p.upset = None),
            change(&|p| p.priorities = false),
            change(&|p| p.readers = [Reader::Messages; 2]),
            change(&|p| p.attention = [1.0; 2]),
            change(&|p| p.carries = Default::default()),
            change(&|p| p.lays_from = None),
        ];
        for end in 0..2 {
            plans.extend([
                change(&|p| p.faults[end] = Faults::default()),
                change(&|p| p.faults[end].drop = 0.0),
                change(&|p| p.faults[end].damage = 0.0),
                change(&|p| p.faults[end].duplicate = 0.0),
                change(&|p| p.faults[end].reorder = 0.0),
                change(&|p| p.faults[end].blackhole = None),
                change(&|p| p.faults[end].jitter = Span::ZERO),
                change(&|p| p.lines[end].rate = None),
                change(&|p| p.options[end].coalesce_delay = Span::ZERO),
                change(&|p| p.options[end].fec = None),
                change(&|p| p.options[end].congestion = Congestion::Fixed),
                change(&|p| p.options[end].window = p.options[end].window.div_ceil(2)),
                change(&|p| p.options[end].credit = Options::default().credit),
                change(&|p| p.options[end].channel_credit = Options::default().channel_credit),
                change(&|p| p.options[end].send_buffer = Options::default().send_buffer),
                change(&|p| p.options[end].ack_every = 1),
                change(&|p| p.carries[end].truncate(1)),
            ]);
        }
        let own = format!("{self:?}");
        plans.retain(|plan| format!("{plan:?}") != own);
        plans
    }
}

/// With the feature `aead` every third exchange is encrypted, and all others are as they are without.
fn key(seed: u64) -> Option<PresharedKey> {
    #[cfg(feature = "aead")]
    let key = seed.is_multiple_of(3).then(|| PresharedKey::new(&[seed as u8; 32]));
    #[cfg(not(feature = "aead"))]
    let (key, _) = (None, seed);
    key
}

fn draw_options(draw: &mut Stream) -> Options {
    let modes = [Mode::Selective, Mode::Selective, Mode::GoBackN, Mode::StopAndWait];
    let timeout = match draw.chance(0.1) {
        true => Timeouts::fixed(Span::from_ms(100 + draw.below(3000))),
        false => Timeouts { ceiling: Span::from_s(3), ..Timeouts::default() },
    };
    Options {
        mode: modes[draw.below(4) as usize],
        check: [Check::Crc32c, Check::Crc64][draw.below(2) as usize],
        key: None,
        window: 1 + (draw.below(400) >> draw.below(9)) as u16,
        frame: 128 + (draw.below(9000) >> draw.below(7)) as u16,
        probe_up_to: None,
        ack_every: 1 + draw.below(20) as u16,
        ack_delay: Span::from_us(draw.below(5000)),
        timeout,
        congestion: Congestion::ALL[draw.below(Congestion::ALL.len() as u64) as usize],
        credit: 300 + (draw.below(1 << 20) >> draw.below(10)) as u32,
        channel_credit: 300 + (draw.below(1 << 18) >> draw.below(8)) as u32,
        send_buffer: 1 + draw.below(1 << 18) as usize,
        coalesce_delay: if draw.chance(0.3) { Span::from_us(draw.below(500)) } else { Span::ZERO },
        keep_alive: Span::from_s(5),
        peer_timeout: Span::from_s(300),
        fec: None,
    }
}

fn draw_fec(draw: &mut Stream, wants: bool) -> Option<Fec> {
    let frames = 1 + (draw.below(64) >> draw.below(6)) as u8;
    let repairs = 1 + (draw.below(8) >> draw.below(4)) as u8;
    (wants && draw.chance(0.9)).then_some(Fec { frames, repairs })
}

fn draw_faults(draw: &mut Stream) -> Faults {
    let mut share = |often: f64, most: f64| if draw.chance(often) { draw.unit() * most } else { 0.0 };
    let (drop, duplicate, damage, reorder) =
        (share(0.7, 0.5), share(0.4, 0.3), share(0.4, 0.1), share(0.4, 0.3));
    let every = Span::from_us(10_000 + (draw.below(10_000_000) >> draw.below(8)));
    Faults {
        drop,
        damage,
        duplicate,
        reorder,
        late: Span::from_us(draw.below(20_000)),
        delay: Span::ZERO,
        jitter: Span::from_us(if draw.chance(0.3) { draw.below(5000) } else { 0 }),
        blackhole: Some(Blackhole { every, lasts: every * draw.below(60) / 100 }),
    }
}

fn draw_line(draw: &mut Stream) -> Impairments {
    Impairments {
        delay: Span::from_us(draw.below(20_000)),
        rate: draw.chance(0.5).then(|| Rate::from_bps(1_000_000 + draw.below(1_000_000_000))),
        ..Impairments::default()
    }
}
