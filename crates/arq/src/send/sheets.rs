//! Frames that are laid out when their messages come, in the memory from which they leave.
//!
//! In full flow a message's bytes are copied once: into *sheets*, each as long as a batch, with room left for heads and
//! checks, so that a stretch of a sheet is a batch. What is not known yet (numbers, whether to ask) is written when
//! frames leave; until then how many bytes of messages a frame carries stands in the place of its number. Frames that are
//! sent again are copied from there.
//!
//! Bounds: what a channel may keep bounds the frames. A sheet stays while one of its frames does; frames are laid out
//! only while one channel alone has something to send, so those that wait lie side by side, and 32 sheets are kept to be
//! used again, none of a sender that has nothing under way.

use trunkline_endpoint::{MAX_BATCH, MAX_SEGMENTS};

use super::OF_ONE_CHANNEL;
use crate::Buffer;
use crate::wire::data::{self, ACK, ALONE, AMONG, ASK, END, Form, HEADER, Head, NACK, START};
use crate::wire::{KIND_MANY, KIND_PIECE, get24, kind};

/// Sheets kept to be used again.
const SPARE: usize = 32;

/// Frames of equal length that were laid out side by side: one or several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Laid {
    pub sheet: u32,
    /// Where the first begins.
    pub at: u32,
    /// Bytes of messages that can be forgotten with them. Those of a run that was parted after it left are all with its
    /// last part: it is forgotten last.
    pub bytes: u32,
    pub channel: u16,
    pub count: u16,
    /// Bytes of each, header and check included.
    pub length: u16,
}

impl Laid {
    /// Where frames end.
    #[inline]
    fn end(&self) -> u32 {
        self.at + u32::from(self.count) * u32::from(self.length)
    }

    /// Whether `other` frames lie beside these and are as long.
    #[inline]
    pub fn goes_on_with(&self, other: &Laid) -> bool {
        (self.sheet, self.length, self.end()) == (other.sheet, other.length, other.at)
    }

    /// Makes them one.
    #[inline]
    pub fn join(&mut self, other: &Laid) {
        self.count += other.count;
        self.bytes += other.bytes;
    }

    /// Keeps the first `count`; the others, with all bytes.
    #[inline]
    pub fn part(&mut self, count: u16) -> Laid {
        let at = self.at + u32::from(count) * u32::from(self.length);
        let rest = Laid { at, count: self.count - count, ..*self };
        (self.count, self.bytes) = (count, 0);
        rest
    }

    /// The one after so many.
    #[inline]
    pub fn after(&self, count: u64) -> Laid {
        Laid { at: self.at + count as u32 * u32::from(self.length), count: 1, bytes: 0, ..*self }
    }
}

/// The frame that is being filled.
#[derive(Debug)]
struct Open {
    channel: u16,
    /// Where the next chunk begins.
    cursor: usize,
    bytes: usize,
    chunks: usize,
}

#[derive(Debug, Default)]
struct Sheet {
    bytes: Buffer,
    /// Frames in it that are needed, and one if it is being filled.
    users: u32,
}

/// All sheets of a sender.
#[derive(Debug)]
pub(crate) struct Sheets {
    /// Bytes of a frame, and of its check.
    frame: usize,
    check: usize,
    sheets: Vec<Sheet>,
    free: Vec<u32>,
    spare: Vec<Buffer>,
    /// The one that is being filled, and where its next frame begins, or the open one.
    filling: Option<u32>,
    at: usize,
    open: Option<Open>,
}

impl Sheets {
    /// For frames of `frame` bytes, of which `check` are the check's.
    pub fn new(frame: usize, check: usize) -> Self {
        let (sheets, free, spare) = (Vec::new(), Vec::new(), Vec::new());
        Sheets { frame, check, sheets, free, spare, filling: None, at: 0, open: None }
    }

    /// Bytes of a sheet: whole frames.
    #[inline]
    pub fn length(&self) -> usize {
        (MAX_BATCH / self.frame).clamp(1, MAX_SEGMENTS) * self.frame
    }

    /// Chunks that a message of `length` bytes takes at the most: the end of a frame, whole ones, and what is left.
    #[inline]
    pub fn most_chunks(&self, length: usize) -> u64 {
        2 + (length / (self.frame - self.check - HEADER - AMONG)) as u64
    }

    /// The channel whose frame is not full yet.
    #[inline]
    pub fn open(&self) -> Option<u16> {
        self.open.as_ref().map(|open| open.channel)
    }

    /// Copies the first of `rest`, the rest of a message of which this is the `start` or not, onto frames, in chunks whose
    /// numbers begin with `sequence`: how many bytes, none if the open frame has no room for any, and in how many chunks.
    /// The frames, if nothing more will stand on them. One that is open is of this channel.
    #[inline]
    pub fn put(
        &mut self,
        channel: u16,
        sequence: u64,
        start: bool,
        rest: &[u8],
    ) -> (usize, u64, Option<Laid>) {
        if self.open.is_none() {
            let sheet = self.begin();
            let alone = self.frame - self.check - HEADER - ALONE;
            if rest.len() >= alone {
                let laid = self.put_whole(sheet, channel, sequence, start, rest);
                return (laid.bytes as usize, laid.count.into(), Some(laid));
            }
            self.open = Some(Open { channel, cursor: HEADER, bytes: 0, chunks: 0 });
        }
        let (Some(open), Some(sheet)) = (&mut self.open, self.filling) else { return (0, 0, None) };
        let room = self.frame - self.check - open.cursor;
        let length = rest.len().min(room.saturating_sub(AMONG));
        if length > 0 {
            let frame = &mut self.sheets[sheet as usize].bytes[self.at..self.at + self.frame];
            let form = Form::Piece { start, end: length == rest.len() };
            let chunk = &mut frame[open.cursor..];
            data::write_among(channel, sequence as u16, form, length as u16, chunk);
            chunk[AMONG..AMONG + length].copy_from_slice(&rest[..length]);
            open.cursor += AMONG + length;
            open.bytes += length;
            open.chunks += 1;
            // Each time, for it may be closed while its sheet is lent.
            Head::write(KIND_MANY, 0, open.bytes as u64, None, frame);
        }
        // Equal frames make a batch: a piece of any length is worth its head.
        let full = room <= 2 * AMONG + length || open.chunks >= OF_ONE_CHANNEL;
        (length, u64::from(length > 0), if full { self.close() } else { None })
    }

    /// Copies of `rest` what fills frames alone, as far as the sheet has room: at least one frame.
    #[inline]
    fn put_whole(&mut self, sheet: u32, channel: u16, sequence: u64, start: bool, rest: &[u8]) -> Laid {
        let alone = self.frame - self.check - HEADER - ALONE;
        let (at, most) = (self.at, (self.length() - self.at) / self.frame);
        let kept = &mut self.sheets[sheet as usize];
        let (mut number, mut left, mut flags) = (sequence, rest, u8::from(start) * START);
        for frame in kept.bytes[at..].chunks_exact_mut(self.frame).take(most) {
            let Some((piece, more)) = left.split_at_checked(alone) else { break };
            flags |= u8::from(more.is_empty()) * END;
            Head::write(KIND_PIECE, flags, alone as u64, None, frame);
            data::write_alone(channel, number as u16, &mut frame[HEADER..]);
            frame[HEADER + ALONE..][..alone].copy_from_slice(piece);
            (number, left, flags) = (number + 1, more, 0);
        }
        let count = (number - sequence) as u16;
        kept.users += u32::from(count);
        self.at += usize::from(count) * self.frame;
        let bytes = (rest.len() - left.len()) as u32;
        Laid { sheet, at: at as u32, bytes, channel, count, length: self.frame as u16 }
    }

    /// Nothing more will stand on the open frame.
    pub fn close(&mut self) -> Option<Laid> {
        let open = self.open.take()?;
        let sheet = self.filling.expect("a frame is on a sheet");
        let kept = &mut self.sheets[sheet as usize];
        kept.users += 1;
        let (at, length) = (self.at as u32, open.cursor + self.check);
        self.at += length;
        let bytes = open.bytes as u32;
        Some(Laid { sheet, at, bytes, channel: open.channel, count: 1, length: length as u16 })
    }

    /// A sheet with room for a frame.
    #[inline]
    fn begin(&mut self) -> u32 {
        match self.filling {
            Some(sheet) if self.at + self.frame <= self.length() => sheet,
            _ => self.turn_over(),
        }
    }

    /// Begins a sheet.
    fn turn_over(&mut self) -> u32 {
        self.put_aside();
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(self.length(), 0);
        let sheet = Sheet { bytes, users: 1 };
        let number = match self.free.pop() {
            Some(number) => {
                self.sheets[number as usize] = sheet;
                number
            }
            None => {
                self.sheets.push(sheet);
                self.sheets.len() as u32 - 1
            }
        };
        (self.filling, self.at) = (Some(number), 0);
        number
    }

    /// No more frames come onto the sheet that was being filled.
    fn put_aside(&mut self) {
        if let Some(before) = self.filling.take() {
            self.let_go(before, 1);
        }
    }

    /// Nothing waits: what comes next may begin a batch. Half of a sheet is not given up for that.
    #[inline]
    pub fn settle(&mut self) {
        if self.open.is_none() && 2 * self.at >= self.length() {
            self.put_aside();
        }
    }

    /// Frames are not needed any more.
    #[inline]
    pub fn release(&mut self, laid: &Laid) {
        self.let_go(laid.sheet, laid.count.into());
    }

    #[inline]
    fn let_go(&mut self, sheet: u32, users: u32) {
        let kept = &mut self.sheets[sheet as usize];
        kept.users -= users;
        if kept.users == 0 {
            self.free.push(sheet);
            let bytes = std::mem::take(&mut kept.bytes);
            if self.spare.len() < SPARE {
                self.spare.push(bytes);
            }
        }
    }

    /// Nothing is under way: keeps nothing.
    #[inline(always)]
    pub fn shrink(&mut self) {
        if !self.sheets.is_empty() && self.open.is_none() {
            self.forget_all();
        }
    }

    fn forget_all(&mut self) {
        self.put_aside();
        (self.sheets, self.free, self.spare) = (Vec::new(), Vec::new(), Vec::new());
    }

    /// Bytes of messages that a frame carries which has not left, the first of these.
    #[inline]
    pub fn carried(&self, laid: &Laid) -> u32 {
        get24(&self.sheets[laid.sheet as usize].bytes[laid.at as usize + 1..])
    }

    /// Bytes of each frame between its header and its check.
    #[inline]
    pub fn body(&self, laid: &Laid) -> usize {
        usize::from(laid.length) - HEADER - self.check
    }

    /// Writes a frame's header anew, and a copy of what follows it, at the start of `into`; how long that is.
    pub fn copy(
        &self,
        laid: &Laid,
        flags: u8,
        number: u64,
        acknowledged: Option<u64>,
        into: &mut [u8],
    ) -> usize {
        let frame = &self.sheets[laid.sheet as usize].bytes;
        let first = frame[laid.at as usize];
        let flags = flags | own(first);
        let at = Head::write(kind(first), flags, number, acknowledged, into);
        let body = &frame[laid.at as usize + HEADER..][..self.body(laid)];
        into[at..at + body.len()].copy_from_slice(body);
        at + body.len()
    }

    /// Bytes of a sheet.
    #[inline]
    pub fn bytes(&self, sheet: u32) -> &[u8] {
        self.sheets.get(sheet as usize).map_or(&[], |sheet| &sheet.bytes)
    }

    /// Lends the memory of a sheet, to be [given back](Sheets::give_back).
    #[inline]
    pub fn lend(&mut self, sheet: u32) -> Buffer {
        std::mem::take(&mut self.sheets[sheet as usize].bytes)
    }

    #[inline]
    pub fn give_back(&mut self, sheet: u32, bytes: Buffer) {
        self.sheets[sheet as usize].bytes = bytes;
    }
}

/// Numbers frames of `length` bytes where they lie, from `first` on; the bytes of messages that they carry.
#[inline]
pub(crate) fn number(frames: &mut [u8], length: usize, first: u64) -> u32 {
    let mut bytes = 0;
    for (frame, number) in frames.chunks_exact_mut(length).zip(first..) {
        bytes += get24(&frame[1..]);
        Head::write(kind(frame[0]), frame[0] & 31, number, None, frame);
    }
    bytes
}

/// The flags of a first byte that the frame has whenever it leaves.
#[inline]
fn own(first: u8) -> u8 {
    first & 31 & !(ASK | ACK | NACK)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::data::Chunks;

    /// The message bytes of frames, and whether a message ends with each chunk; what stands there is looked at as a
    /// receiver does.
    fn read(sheets: &Sheets, laid: &Laid, sequence: &mut u64) -> Vec<(Vec<u8>, Form)> {
        let mut said = Vec::new();
        for at in 0..u64::from(laid.count) {
            let one = laid.after(at);
            let frame = &sheets.bytes(one.sheet)[one.at as usize..][..HEADER + sheets.body(&one)];
            let (head, rest) = Head::read(frame).unwrap();
            let chunks: Vec<_> = Chunks::read(&head, rest).unwrap().collect();
            let bytes = chunks.iter().map(|chunk| chunk.bytes.len() as u32).sum::<u32>();
            assert_eq!(bytes, sheets.carried(&one));
            for chunk in &chunks {
                assert_eq!((chunk.channel, chunk.sequence), (laid.channel, *sequence as u16));
                *sequence += 1;
            }
            said.extend(chunks.iter().map(|chunk| (chunk.bytes.to_vec(), chunk.form)));
        }
        assert_eq!(said.iter().map(|(bytes, _)| bytes.len()).sum::<usize>(), laid.bytes as usize);
        said
    }

    proptest! {
        #[test]
        fn messages_are_found_on_the_frames_and_sheets_are_given_back(
            frame in 128usize..9000,
            check in prop::sample::select(vec![4, 8]),
            sizes in prop::collection::vec(1usize..40_000, 1..20),
            close_every in 1usize..8,
        ) {
            let mut sheets = Sheets::new(frame, check);
            let messages: Vec<Vec<u8>> =
                sizes.iter().enumerate().map(|(m, size)| (0..*size).map(|i| (i * 7 + m) as u8).collect()).collect();
            let begin = (1 << 16) - 3;
            let (mut frames, mut chunks): (Vec<Laid>, u64) = (Vec::new(), 0);
            for (index, message) in messages.iter().enumerate() {
                let (mut at, mut own) = (0, 0);
                while at < message.len() {
                    let (length, more, laid) = sheets.put(9, begin + chunks, at == 0, &message[at..]);
                    at += length;
                    own += more;
                    chunks += more;
                    if let Some(laid) = laid {
                        match frames.last_mut() {
                            Some(last) if last.goes_on_with(&laid) => last.join(&laid),
                            _ => frames.push(laid),
                        }
                    }
                }
                prop_assert!(own <= sheets.most_chunks(message.len()));
                if index % close_every == 0 {
                    frames.extend(sheets.close());
                }
            }
            frames.extend(sheets.close());
            let mut sequence = begin;
            let (mut got, mut partial): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
            for laid in &frames {
                prop_assert!((laid.end() as usize) <= sheets.length());
                prop_assert!(usize::from(laid.length) <= frame);
                for (bytes, form) in read(&sheets, laid, &mut sequence) {
                    let Form::Piece { start, end } = form else { panic!("no pack was laid out") };
                    prop_assert_eq!(start, partial.is_none());
                    let mut message = partial.take().unwrap_or_default();
                    message.extend(bytes);
                    if end { got.push(message) } else { partial = Some(message) }
                }
            }
            prop_assert_eq!(&got, &messages);
            prop_assert_eq!(sequence, begin + chunks);
            // A copy of one differs from it in what is said of it only.
            let (laid, mut copy) = (frames[0], vec![0; frame]);
            let last = laid.after(u64::from(laid.count) - 1);
            let length = sheets.copy(&last, 0, 76 + u64::from(laid.count), None, &mut copy);
            let mut there = sheets.lend(laid.sheet);
            let stretch = laid.at as usize..laid.end() as usize;
            prop_assert_eq!(number(&mut there[stretch], laid.length.into(), 77), laid.bytes);
            prop_assert_eq!(&copy[..length], &there[last.at as usize..][..length]);
            sheets.give_back(laid.sheet, there);
            // Parted or not, they are given back once.
            for mut laid in frames {
                if laid.count > 1 {
                    let rest = laid.part(laid.count / 2);
                    prop_assert!(laid.goes_on_with(&rest));
                    sheets.release(&rest);
                }
                sheets.release(&laid);
            }
            let users: u32 = sheets.sheets.iter().map(|sheet| sheet.users).sum();
            prop_assert!(users <= 1 && sheets.spare.len() <= SPARE);
            sheets.shrink();
            prop_assert!(sheets.sheets.is_empty() && sheets.spare.is_empty() && sheets.filling.is_none());
        }
    }

    #[test]
    fn so_many_sheets_are_kept_to_be_used_again() {
        let mut sheets = Sheets::new(1472, 4);
        let frames: Vec<Laid> = (0..100 * 44).filter_map(|n| sheets.put(0, n, true, &[1; 1460]).2).collect();
        assert_eq!(frames.len(), 4400);
        assert_eq!(sheets.sheets.len(), 100);
        frames.iter().for_each(|laid| sheets.release(laid));
        assert_eq!(sheets.spare.len(), SPARE);
    }
}
