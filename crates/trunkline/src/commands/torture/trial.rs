//! The parameters of an exchange: options, faults and user behaviour, drawn from its seed unless given.

use trunkline_arq::options::Timeouts;
use trunkline_arq::torture::{Blackhole, Faults};
use trunkline_arq::{Check, Congestion, Fec, Mode, Options};
use trunkline_units::{Rate, Seed, Span, Stream};

use crate::flags::{Crashes, ExchangeMedium, Torture};

/// Maximum number of channels.
pub const MAX_CHANNELS: u64 = 16;

/// All parameters of an exchange; index 0 is end `a`, which opens the connection.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The seed.
    pub seed: u64,
    /// Options of each end's connection.
    pub options: [Options; 2],
    /// Faults of the frames of each end.
    pub faults: [Faults; 2],
    /// Rates of the links in memory; `None` means unlimited.
    pub rates: [Option<Rate>; 2],
    /// Whether the ends take turns (section 4.1.1 of the 1998 paper) or both send at once (section 4.1.2).
    pub half_duplex: bool,
    /// Number of messages of each end.
    pub messages: u64,
    /// Maximum message size, in bytes.
    pub longest: u64,
    /// Maximum pause before a message.
    pub pause: Span,
    /// Maximum pause of each reader between messages.
    pub reading: [Span; 2],
    /// Number of channels that each end uses.
    pub channels: u64,
    /// A crash of an end after this many received messages; it restarts without state.
    pub death: Option<Death>,
}

/// A crash of one end.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    /// The end that crashes.
    pub end: usize,
    /// Number of received messages after which it crashes.
    pub after: u64,
}

impl Trial {
    /// Draws an exchange. Every value is drawn, so that given options do not change the others.
    pub fn draw(seed: u64, flags: &Torture) -> Trial {
        let patient = flags.on == ExchangeMedium::Memory;
        let mut draw = Seed(seed).stream("torture");
        let draw = &mut draw;
        let mode = Mode::ALL[[0, 0, 1, 2][draw.below(4) as usize]];
        let options = [draw_options(draw, patient), draw_options(draw, patient)];
        let faults = [draw_faults(draw, patient), draw_faults(draw, patient)];
        let half_duplex = draw.chance(0.5);
        let (messages, longest) = (1 + draw.below(60), [100, 3000, 100_000][draw.below(3) as usize]);
        let pause = draw_time(draw, if patient { 10_000_000 } else { 4000 });
        let reading = [(); 2].map(|()| match draw.chance(0.3) {
            true => draw_time(draw, if patient { 500_000 } else { 4000 }),
            false => Span::ZERO,
        });
        let rates = [(); 2].map(|()| draw.chance(0.5).then(|| 1_000_000 + draw.below(1_000_000_000)));
        let channels = if draw.chance(0.5) { 1 + draw.below(MAX_CHANNELS) } else { 1 };
        let (dies, end, after) = (draw.chance(0.2), draw.below(2) as usize, draw.unit());
        let corrects = draw.chance(0.5);
        let fecs = [(); 2].map(|()| Some(draw_fec(draw)).filter(|_| corrects));
        let [a, b] = options;
        let options = [Options { fec: fecs[0], ..a }, Options { fec: fecs[1], ..b }];
        let mut trial = Trial {
            seed,
            options: options.map(|options| Options { mode: flags.mode.unwrap_or(mode), ..options }),
            faults: faults.map(|faults| given(faults, flags)),
            rates: rates.map(|bps| bps.map(Rate::from_bps)),
            half_duplex: flags.half_duplex || (half_duplex && !flags.full_duplex),
            messages,
            longest,
            pause,
            reading,
            channels: flags.channels.unwrap_or(channels),
            death: None,
        };
        trial.shorten();
        trial.messages = flags.messages.unwrap_or(trial.messages);
        if flags.deaths.map_or(dies, |deaths| deaths == Crashes::Always) {
            trial.death = Some(Death { end, after: (after * trial.messages as f64) as u64 });
        }
        trial.longest = flags.size.unwrap_or(trial.longest);
        if let Some(check) = flags.check {
            trial.options.iter_mut().for_each(|options| options.check = check);
        }
        trial
    }

    /// Modes that retransmit a window per loss get fewer messages, so that exchanges take similar time.
    fn shorten(&mut self) {
        let window = self.options.iter().map(|options| options.window).min();
        if self.options[0].mode != Mode::Selective || window < Some(8) {
            self.longest = self.longest.min(5000);
            if self.faults.iter().any(|faults| faults.drop > 0.2) {
                (self.messages, self.longest) = (self.messages.div_ceil(4), self.longest.min(1000));
            }
        }
    }
}

/// Replaces drawn values by those of the command line.
fn given(drawn: Faults, flags: &Torture) -> Faults {
    Faults {
        drop: flags.drop.unwrap_or(drawn.drop),
        damage: flags.damage.unwrap_or(drawn.damage),
        duplicate: flags.duplicate.unwrap_or(drawn.duplicate),
        reorder: flags.reorder.unwrap_or(drawn.reorder),
        delay: flags.delay.unwrap_or(drawn.delay),
        blackhole: flags.blackhole.or(drawn.blackhole),
        ..drawn
    }
}

/// Draws a time up to `most` microseconds, each power of two with equal probability.
fn draw_time(draw: &mut Stream, most: u64) -> Span {
    Span::from_us(1 + (draw.below(most) >> draw.below(most.ilog2().into())))
}

fn draw_options(draw: &mut Stream, patient: bool) -> Options {
    let (initial, ceiling) = if patient { (200, 3000) } else { (20, 100) };
    let timeout = match draw.chance(0.1) {
        true => Timeouts::fixed(Span::from_ms(10 + draw.below(ceiling))),
        false => Timeouts {
            initial: Span::from_ms(initial),
            ceiling: Span::from_ms(ceiling),
            ..Timeouts::default()
        },
    };
    Options {
        // The other checks are known to miss damage; they are used only on request.
        check: [Check::Crc32c, Check::Crc64][draw.below(2) as usize],
        window: 1 + (draw.below(400) >> draw.below(9)) as u16,
        frame: 128 + (draw.below(9000) >> draw.below(7)) as u16,
        ack_every: 1 + draw.below(20) as u16,
        ack_delay: Span::from_us(draw.below(5000)),
        timeout,
        congestion: Congestion::ALL[draw.below(Congestion::ALL.len() as u64) as usize],
        credit: 300 + (draw.below(1 << 20) >> draw.below(10)) as u32,
        channel_credit: 300 + (draw.below(1 << 18) >> draw.below(8)) as u32,
        send_buffer: 1 + draw.below(1 << 18) as usize,
        coalesce_delay: if draw.chance(0.3) { Span::from_us(draw.below(500)) } else { Span::ZERO },
        // On sockets a crashed peer must be detected soon.
        keep_alive: if patient { Options::default().keep_alive } else { Span::from_ms(500) },
        // With half of all frames lost, a peer may seem silent for minutes.
        peer_timeout: Span::from_s(300),
        ..Options::default()
    }
}

/// Blocks of up to 64 frames, small ones as likely as large ones, with up to 8 repair frames.
fn draw_fec(draw: &mut Stream) -> Fec {
    let (frames, repairs) = (1 + (draw.below(64) >> draw.below(6)), 1 + (draw.below(8) >> draw.below(4)));
    Fec { frames: frames as u8, repairs: repairs as u8 }
}

fn draw_faults(draw: &mut Stream, patient: bool) -> Faults {
    let mut share = |often: f64, most: f64| if draw.chance(often) { draw.unit() * most } else { 0.0 };
    // On sockets every loss takes real time.
    let (drop, damage) = (share(0.7, if patient { 0.5 } else { 0.1 }), share(0.4, 0.1));
    let (duplicate, reorder) = (share(0.4, 0.3), share(0.4, 0.3));
    let longest = if patient { 20_000 } else { 1000 };
    let every = draw_time(draw, if patient { 10_000_000 } else { 200_000 }) + Span::from_ms(10);
    let blackhole = Blackhole { every, lasts: every * draw.below(60) / 100 };
    Faults {
        drop,
        damage,
        duplicate,
        reorder,
        late: Span::from_us(1 + draw.below(longest)),
        delay: Span::from_us(draw.below(longest)),
        jitter: Span::from_us(if draw.chance(0.3) { draw.below(longest / 4) } else { 0 }),
        blackhole: draw.chance(0.3).then_some(blackhole),
    }
}
