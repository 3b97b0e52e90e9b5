//! Frames that are laid out when their messages come, in the memory from which they leave.
//!
//! In full flow a message's bytes are copied once: into *sheets*, each as long as a batch, with room left for heads and
//! checks, so that a stretch of a sheet is a batch. What is not known yet (numbers, whether to ask) is written when a
//! frame is cut or leaves. Frames that are sent again are copied from there.
//!
//! Bounds: what a channel may keep bounds the frames. A sheet stays while one of its frames does; frames are laid out
//! only while one channel alone has something to send, so those that wait lie side by side, and 32 sheets are kept to be
//! used again, none of a sender that has nothing under way.

use trunkline_endpoint::{MAX_BATCH, MAX_SEGMENTS};

use super::OF_ONE_CHANNEL;
use crate::Buffer;
use crate::wire::data::{self, ACK, ALONE, AMONG, ASK, END, Form, HEADER, Head, NACK, START};
use crate::wire::{KIND_MANY, KIND_PIECE, kind};

/// Sheets kept to be used again.
const SPARE: usize = 32;

/// A frame that was laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Laid {
    pub sheet: u32,
    /// Where it begins.
    pub at: u32,
    pub channel: u16,
    /// Bytes between its header and its check, and those of them that are messages'.
    pub body: u16,
    pub bytes: u16,
    pub chunks: u8,
}

impl Laid {
    #[inline]
    fn body(&self) -> std::ops::Range<usize> {
        let begin = self.at as usize + HEADER;
        begin..begin + usize::from(self.body)
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

    /// Copies the first of `rest`, the rest of a message of which this is the `start` or not, onto a frame; how many
    /// bytes, none if the frame has no room for any. The frame, if nothing more will stand on it. One that is open is of
    /// this channel.
    #[inline]
    pub fn put(&mut self, channel: u16, start: bool, rest: &[u8]) -> (usize, Option<Laid>) {
        let flags = u8::from(start) * START;
        if self.open.is_none() {
            let bytes = self.begin();
            let alone = self.frame - self.check - HEADER - ALONE;
            if rest.len() >= alone {
                let frame = &mut self.sheets[bytes as usize].bytes[self.at..self.at + self.frame];
                let flags = flags | (u8::from(rest.len() == alone) * END);
                Head::write(KIND_PIECE, flags, 0, None, frame);
                data::write_alone(channel, 0, &mut frame[HEADER..]);
                frame[HEADER + ALONE..][..alone].copy_from_slice(&rest[..alone]);
                let open = Open { channel, cursor: HEADER + ALONE + alone, bytes: alone, chunks: 1 };
                return (alone, Some(self.finish(open)));
            }
            self.open = Some(Open { channel, cursor: HEADER, bytes: 0, chunks: 0 });
        }
        let (Some(open), Some(sheet)) = (&mut self.open, self.filling) else { return (0, None) };
        let room = self.frame - self.check - open.cursor;
        let length = rest.len().min(room.saturating_sub(AMONG));
        if length > 0 {
            let frame = &mut self.sheets[sheet as usize].bytes[self.at..self.at + self.frame];
            if open.chunks == 0 {
                Head::write(KIND_MANY, 0, 0, None, frame);
            }
            let form = Form::Piece { start, end: length == rest.len() };
            let chunk = &mut frame[open.cursor..];
            data::write_among(channel, 0, form, length as u16, chunk);
            chunk[AMONG..AMONG + length].copy_from_slice(&rest[..length]);
            open.cursor += AMONG + length;
            open.bytes += length;
            open.chunks += 1;
        }
        // Equal frames make a batch: a piece of any length is worth its head.
        let full = room <= 2 * AMONG + length || open.chunks >= OF_ONE_CHANNEL;
        (length, if full { self.close() } else { None })
    }

    /// Nothing more will stand on the open frame.
    pub fn close(&mut self) -> Option<Laid> {
        let open = self.open.take()?;
        Some(self.finish(open))
    }

    #[inline]
    fn finish(&mut self, open: Open) -> Laid {
        let sheet = self.filling.expect("a frame is on a sheet");
        self.sheets[sheet as usize].users += 1;
        let at = self.at as u32;
        self.at += open.cursor + self.check;
        Laid {
            sheet,
            at,
            channel: open.channel,
            body: (open.cursor - HEADER) as u16,
            bytes: open.bytes as u16,
            chunks: open.chunks as u8,
        }
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
            self.release(before);
        }
    }

    /// Nothing waits: what comes next may begin a batch. Half of a sheet is not given up for that.
    #[inline]
    pub fn settle(&mut self) {
        if self.open.is_none() && 2 * self.at >= self.length() {
            self.put_aside();
        }
    }

    /// A frame is not needed any more.
    #[inline]
    pub fn release(&mut self, sheet: u32) {
        let kept = &mut self.sheets[sheet as usize];
        kept.users -= 1;
        if kept.users == 0 {
            self.free.push(sheet);
            let bytes = std::mem::take(&mut kept.bytes);
            if self.spare.len() < SPARE {
                self.spare.push(bytes);
            }
        }
    }

    /// Nothing is under way: keeps nothing.
    #[inline]
    pub fn shrink(&mut self) {
        if !self.sheets.is_empty() && self.open.is_none() {
            self.put_aside();
            (self.sheets, self.free, self.spare) = (Vec::new(), Vec::new(), Vec::new());
        }
    }

    /// Numbers the chunks of a frame, from `first` on.
    #[inline]
    pub fn number(&mut self, laid: &Laid, first: u64) {
        let sheet = &mut self.sheets[laid.sheet as usize].bytes;
        number(laid, first, &mut sheet[laid.at as usize..]);
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
        let body = &frame[laid.body()];
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

/// Completes a frame where it lies, which is where `frame` begins, but for its check: says that its number is `of`, and numbers its
/// chunks from `first` on.
#[inline]
pub(crate) fn complete(laid: &Laid, first: u64, flags: u8, of: u64, frame: &mut [u8]) {
    number(laid, first, frame);
    Head::write(kind(frame[0]), flags | own(frame[0]), of, None, frame);
}

#[inline]
fn number(laid: &Laid, first: u64, frame: &mut [u8]) {
    if kind(frame[0]) == KIND_PIECE {
        return put_sequence(&mut frame[HEADER..], first);
    }
    let mut at = HEADER;
    for sequence in first..first + u64::from(laid.chunks) {
        put_sequence(&mut frame[at..], sequence);
        at += AMONG + usize::from(u16::from_be_bytes([frame[at + 5], frame[at + 6]]));
    }
}

/// The flags of a first byte that the frame has whenever it leaves.
#[inline]
fn own(first: u8) -> u8 {
    first & 31 & !(ASK | ACK | NACK)
}

#[inline]
fn put_sequence(chunk: &mut [u8], sequence: u64) {
    chunk[2..4].copy_from_slice(&(sequence as u16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::data::Chunks;

    /// The message bytes of a frame, and whether a message ends with each chunk; what stands there is looked at as a
    /// receiver does.
    fn read(sheets: &Sheets, laid: &Laid, sequence: &mut u64) -> Vec<(Vec<u8>, Form)> {
        let frame = &sheets.bytes(laid.sheet)[laid.at as usize..laid.body().end];
        let (head, rest) = Head::read(frame).unwrap();
        let chunks: Vec<_> = Chunks::read(&head, rest).unwrap().collect();
        assert_eq!(chunks.len(), usize::from(laid.chunks));
        assert_eq!(chunks.iter().map(|chunk| chunk.bytes.len()).sum::<usize>(), usize::from(laid.bytes));
        for chunk in &chunks {
            assert_eq!((chunk.channel, chunk.sequence), (laid.channel, *sequence as u16));
            *sequence += 1;
        }
        chunks.iter().map(|chunk| (chunk.bytes.to_vec(), chunk.form)).collect()
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
            let (mut frames, mut chunks) = (Vec::new(), 0);
            for (index, message) in messages.iter().enumerate() {
                let (mut at, mut own) = (0, 0);
                while at < message.len() {
                    let (length, laid) = sheets.put(9, at == 0, &message[at..]);
                    at += length;
                    own += u64::from(length > 0);
                    frames.extend(laid);
                }
                prop_assert!(own <= sheets.most_chunks(message.len()));
                chunks += own;
                if index % close_every == 0 {
                    frames.extend(sheets.close());
                }
            }
            frames.extend(sheets.close());
            prop_assert_eq!(chunks, frames.iter().map(|laid| u64::from(laid.chunks)).sum::<u64>());
            let (mut sequence, mut numbered) = ((1 << 16) - 3, (1 << 16) - 3);
            let (mut got, mut partial): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
            for laid in &frames {
                prop_assert!(laid.body().end + check <= sheets.length());
                prop_assert!(HEADER + usize::from(laid.body) + check <= frame);
                sheets.number(laid, numbered);
                numbered += u64::from(laid.chunks);
                for (bytes, form) in read(&sheets, laid, &mut sequence) {
                    let Form::Piece { start, end } = form else { panic!("no pack was laid out") };
                    prop_assert_eq!(start, partial.is_none());
                    let mut message = partial.take().unwrap_or_default();
                    message.extend(bytes);
                    if end { got.push(message) } else { partial = Some(message) }
                }
            }
            prop_assert_eq!(&got, &messages);
            // A copy differs in what is said of it only.
            let (laid, mut copy) = (&frames[0], vec![0; frame]);
            let length = sheets.copy(laid, ASK, 77, None, &mut copy);
            let mut there = sheets.lend(laid.sheet);
            complete(laid, (1 << 16) - 3, ASK, 77, &mut there[laid.at as usize..]);
            prop_assert_eq!(&copy[..length], &there[laid.at as usize..laid.body().end]);
            sheets.give_back(laid.sheet, there);
            for laid in &frames {
                sheets.release(laid.sheet);
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
        let frames: Vec<Laid> = (0..100 * 44).filter_map(|_| sheets.put(0, true, &[1; 1460]).1).collect();
        assert_eq!(frames.len(), 4400);
        assert_eq!(sheets.sheets.len(), 100);
        frames.iter().for_each(|laid| sheets.release(laid.sheet));
        assert_eq!(sheets.spare.len(), SPARE);
    }
}
