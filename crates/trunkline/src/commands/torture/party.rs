//! A user of the transport, and the oracle: content is a counter, as in chapter 4 of the 1998 paper. Each end sends words
//! that count on, cut into messages of random sizes, and counts along in what comes: every byte has one right value.

use trunkline_arq::{Buffer, Command, ConnectionId, End, Event, News, Refusal, Taken};
use trunkline_units::{Instant, Seed, Span, Stream};

use super::trial::Trial;

/// All messages go over this channel.
const CHANNEL: u16 = 0;
/// Messages that an end sends in a row before it listens, half duplex.
const IN_A_ROW: u64 = 3;
/// What the ends call themselves.
const NAMES: [&str; 2] = ["a", "b"];

/// One direction as one end counts it.
#[derive(Clone, Debug)]
struct Count {
    /// Which end sends.
    from: usize,
    /// Whole messages.
    messages: u64,
    /// Their bytes.
    bytes: u64,
    sizes: Stream,
}

impl Count {
    fn new(trial: &Trial, from: usize) -> Count {
        let sizes = Seed(trial.seed).stream(&format!("sizes of {}", NAMES[from]));
        Count { from, messages: 0, bytes: 0, sizes }
    }

    /// The next message: long ones and short ones, empty ones among them.
    fn next(&mut self, longest: u64) -> Vec<u8> {
        let length = self.sizes.below(longest + 1) >> self.sizes.below(12);
        let bytes = (self.bytes..self.bytes + length).map(|at| byte(self.from, at)).collect();
        (self.messages, self.bytes) = (self.messages + 1, self.bytes + length);
        bytes
    }
}

/// The byte at a place of all that an end sends: 64-bit words that count up, big endian. The ends count from different
/// numbers.
fn byte(from: usize, at: u64) -> u8 {
    let word = ((from as u64) << 48) | (at / 8);
    word.to_be_bytes()[(at % 8) as usize]
}

/// One end's user.
#[derive(Debug)]
pub struct Party<'a> {
    trial: &'a Trial,
    end: usize,
    id: Option<ConnectionId>,
    habits: Stream,
    sent: Count,
    got: Count,
    /// What has come of the next message.
    partial: Buffer,
    full: bool,
    readable: bool,
    closing: bool,
    finished: bool,
    over: bool,
    /// It pauses until then.
    send_at: Instant,
    read_at: Instant,
}

impl<'a> Party<'a> {
    /// The user at end 0 or 1, who knows the connection's number if it opened it.
    pub fn new(trial: &'a Trial, end: usize, id: Option<ConnectionId>) -> Party<'a> {
        Party {
            trial,
            end,
            id,
            habits: Seed(trial.seed).stream(&format!("habits of {}", NAMES[end])),
            sent: Count::new(trial, end),
            got: Count::new(trial, 1 - end),
            partial: Buffer::new(),
            full: true,
            readable: false,
            closing: false,
            finished: false,
            over: false,
            send_at: Instant::ZERO,
            read_at: Instant::ZERO,
        }
    }

    /// The connection, once it is known.
    pub fn id(&self) -> Option<ConnectionId> {
        self.id
    }

    /// Messages and bytes that came, each as it should be.
    pub fn received(&self) -> (u64, u64) {
        (self.got.messages, self.got.bytes)
    }

    /// All was sent, all has come, and both have closed.
    pub fn is_done(&self) -> bool {
        self.over && self.got.messages == self.trial.messages
    }

    /// What this end saw, with its name.
    fn wrong(&self, what: impl std::fmt::Display) -> String {
        format!("end {}: {what}", NAMES[self.end])
    }

    /// Hears of its connection.
    ///
    /// # Errors
    /// If that must not happen.
    pub fn hear(&mut self, event: &Event) -> Result<(), String> {
        if self.over || self.id.is_some_and(|id| id != event.id) {
            return Err(self.wrong(format!("{:?} of a connection that is over or another", event.news)));
        }
        match event.news {
            News::Opened { .. } => (self.id, self.full) = (Some(event.id), false),
            News::Readable { .. } => self.readable = true,
            News::Writable { .. } => self.full = false,
            News::Finished => self.finished = true,
            News::Closed { end: End::Done } if self.finished && self.closing => self.over = true,
            News::Closed { end } => return Err(self.wrong(format!("the connection ended: {end}"))),
        }
        Ok(())
    }

    /// Half duplex, an end sends some and then receives as many; full duplex, it always may do either.
    fn may_send(&self) -> bool {
        let Trial { half_duplex, messages, .. } = *self.trial;
        let begun = self.sent.messages - self.sent.messages % IN_A_ROW;
        let first = if self.end == 0 { begun } else { (begun + IN_A_ROW).min(messages) };
        self.sent.messages < messages && (!half_duplex || self.got.messages >= first)
    }

    fn may_read(&self) -> bool {
        !self.trial.half_duplex || !self.may_send()
    }

    /// Sends and takes what it can and wants to.
    ///
    /// # Errors
    /// What is lost, came twice, out of order or wrong; or was refused without reason.
    pub fn act(
        &mut self,
        now: Instant,
        mut command: impl FnMut(Command<'_>) -> Result<(), Refusal>,
    ) -> Result<(), String> {
        let Some(id) = self.id else { return Ok(()) };
        while self.send(now, id, &mut command)? | self.take(now, id, &mut command)? {}
        if self.sent.messages == self.trial.messages && !self.closing {
            self.closing = true;
            command(Command::Close { id }).map_err(|refusal| self.wrong(refusal))?;
        }
        let Trial { messages, .. } = *self.trial;
        if self.over && !self.readable && self.got.messages < messages {
            return Err(self.wrong(format!("{} of {messages} messages came", self.got.messages)));
        }
        Ok(())
    }

    /// When it wants to act by itself.
    pub fn next(&self) -> Option<Instant> {
        let send = (self.may_send() && !self.full).then_some(self.send_at);
        let read = (self.may_read() && self.readable).then_some(self.read_at);
        send.into_iter().chain(read).min()
    }

    /// Whether it sent a message.
    fn send(
        &mut self,
        now: Instant,
        id: ConnectionId,
        command: &mut impl FnMut(Command<'_>) -> Result<(), Refusal>,
    ) -> Result<bool, String> {
        if self.full || now < self.send_at || !self.may_send() {
            return Ok(false);
        }
        let mut sent = self.sent.clone();
        let bytes = sent.next(self.trial.longest);
        let given = if self.habits.chance(0.5) {
            command(Command::Send { id, channel: CHANNEL, bytes: &bytes })
        } else {
            let mut message = Buffer::new();
            message.extend_from_slice(&bytes);
            command(Command::HandOver { id, channel: CHANNEL, message: &mut message })
        };
        match given {
            Ok(()) => {
                self.sent = sent;
                self.send_at = now + self.pause(0.3, self.trial.pause);
                Ok(true)
            }
            Err(Refusal::Full) => {
                self.full = true;
                Ok(false)
            }
            Err(refusal) => Err(self.wrong(refusal)),
        }
    }

    /// Whether it took something.
    fn take(
        &mut self,
        now: Instant,
        id: ConnectionId,
        command: &mut impl FnMut(Command<'_>) -> Result<(), Refusal>,
    ) -> Result<bool, String> {
        if !self.readable || now < self.read_at || !self.may_read() {
            return Ok(false);
        }
        let mut taken = Taken::Nothing;
        let take = Command::Take { id, channel: CHANNEL, into: &mut self.partial, taken: &mut taken };
        command(take).map_err(|refusal| self.wrong(refusal))?;
        match taken {
            Taken::Nothing => self.readable = false,
            Taken::Part => {}
            Taken::Whole => {
                self.check()?;
                self.partial.clear();
                self.read_at = now + self.pause(1.0, self.trial.reading[self.end]);
            }
        }
        Ok(taken != Taken::Nothing)
    }

    /// Whether the message that came is the next, and whole.
    fn check(&mut self) -> Result<(), String> {
        let number = self.got.messages;
        if number == self.trial.messages {
            return Err(self.wrong(format!("a message came after the last, of {} bytes", self.partial.len())));
        }
        let want = self.got.next(self.trial.longest);
        if want.len() != self.partial.len() {
            let (want, got) = (want.len(), self.partial.len());
            return Err(self.wrong(format!("message {number} has {want} bytes, and {got} came")));
        }
        match want.iter().zip(self.partial.iter()).position(|(want, got)| want != got) {
            Some(at) => Err(self.wrong(format!("byte {at} of message {number} is wrong"))),
            None => Ok(()),
        }
    }

    /// Now and then up to `longest`, mostly much shorter.
    fn pause(&mut self, often: f64, longest: Span) -> Span {
        let ps = self.habits.below(longest.as_ps()) >> self.habits.below(10);
        if self.habits.chance(often) { Span::from_ps(ps) } else { Span::ZERO }
    }
}
