//! Accurate ECN (RFC 9768): the counters of both ends, and their fields.

use trunkline_endpoint::Ecn;

use crate::segment::EcnBytes;

/// First value of the counters of packets (section 3.2.1); without the CE mark of a SYN or its answer.
const FIRST_PACKETS: u32 = 5;
/// Counters in the option have 24 bits (section 3.2.3).
const BYTES_MASK: u32 = 0xff_ffff;
/// Segments of an acknowledgement up to which the three bits are unambiguous.
const UNAMBIGUOUS: u32 = 7;

/// How the handshake reports the ECN field of a SYN or of its answer (tables 2 and 3).
pub(crate) fn handshake(received: Ecn) -> u8 {
    match received {
        Ecn::NotEct => 0b010,
        Ecn::Ect1 => 0b011,
        Ecn::Ect0 => 0b100,
        Ecn::Ce => 0b110,
    }
}

/// Whether the first segment after the SYNs, whose field ACE is no count, is still to be sent or to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    /// This end opened the connection: its first segment reports the ECN field of the answer to its SYN.
    Sends(Ecn),
    /// The peer did.
    Awaits,
    Done,
}

/// State of a connection whose ends both use Accurate ECN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccurateEcn {
    handshake: Handshake,
    /// Packets received with CE (`r.cep`), and payload bytes by ECN field (`r.e0b`, `r.ceb`, `r.e1b`).
    packets: u32,
    ect0_bytes: u32,
    ce_bytes: u32,
    ect1_bytes: u32,
    /// The last segment with data that was not marked had ECT(1).
    is_ect1: bool,
    /// The last segment with data was marked.
    is_marked: bool,
    /// What the peer has reported: packets and bytes with CE (`s.cep`, `s.ceb`).
    reported_packets: u32,
    reported_bytes: u32,
}

impl AccurateEcn {
    /// Starts counting. `answer` is the ECN field of the answer to this end's SYN; none for the end that answers.
    pub(crate) fn new(answer: Option<Ecn>) -> AccurateEcn {
        AccurateEcn {
            handshake: answer.map_or(Handshake::Awaits, Handshake::Sends),
            packets: FIRST_PACKETS + u32::from(answer == Some(Ecn::Ce)),
            ect0_bytes: 1,
            ce_bytes: 0,
            ect1_bytes: 1,
            is_ect1: false,
            is_marked: false,
            reported_packets: FIRST_PACKETS,
            reported_bytes: 0,
        }
    }

    /// Counts a segment; returns whether it is to be acknowledged at once, because marks begin (section 3.2.2.5.1).
    pub(crate) fn count(&mut self, received: Ecn, payload: u32) -> bool {
        let counter = match received {
            Ecn::NotEct => return self.set_marked(payload, false),
            Ecn::Ect0 => &mut self.ect0_bytes,
            Ecn::Ect1 => &mut self.ect1_bytes,
            Ecn::Ce => &mut self.ce_bytes,
        };
        *counter = counter.wrapping_add(payload) & BYTES_MASK;
        match received {
            Ecn::Ce => self.packets = self.packets.wrapping_add(1),
            _ => self.is_ect1 = received == Ecn::Ect1,
        }
        self.set_marked(payload, received == Ecn::Ce)
    }

    fn set_marked(&mut self, payload: u32, is_marked: bool) -> bool {
        payload > 0 && !std::mem::replace(&mut self.is_marked, is_marked) && is_marked
    }

    /// Returns the field ACE of the segment that is sent now.
    pub(crate) fn next_ace(&mut self) -> u8 {
        if let Handshake::Sends(answer) = self.handshake {
            self.handshake = Handshake::Done;
            return handshake(answer);
        }
        (self.packets & 7) as u8
    }

    /// Returns the option of an acknowledgement.
    pub(crate) fn option(&self) -> EcnBytes {
        let (ect0, ect1) = match self.is_ect1 {
            true => (None, Some(self.ect1_bytes)),
            false => (Some(self.ect0_bytes), None),
        };
        EcnBytes { ect0, ce: Some(self.ce_bytes), ect1 }
    }

    /// Processes the feedback of an acknowledgement of `delivered` bytes in segments of at most `mss`; returns the bytes that
    /// were marked. Without the option, three bits count packets: of more than seven segments as many are marked as is
    /// possible (appendix A.2).
    pub(crate) fn marked(&mut self, ace: u8, option: Option<EcnBytes>, delivered: u32, mss: u32) -> u32 {
        if self.handshake == Handshake::Awaits {
            self.handshake = Handshake::Done;
            self.reported_packets = FIRST_PACKETS + u32::from(ace == handshake(Ecn::Ce));
            return 0;
        }
        if delivered == 0 {
            return 0; // it may be older than the last one
        }
        let least = u32::from(ace).wrapping_sub(self.reported_packets) & 7;
        let segments = delivered.div_ceil(mss.max(1));
        let packets = match segments.checked_sub(least).filter(|_| segments > UNAMBIGUOUS) {
            Some(unmarked) => segments - unmarked % 8,
            None => least,
        };
        if let Some(bytes) = option.and_then(|option| option.ce) {
            let marked = bytes.wrapping_sub(self.reported_bytes) & BYTES_MASK;
            if marked > BYTES_MASK / 2 {
                return 0; // fewer than before: it was overtaken
            }
            // With the bytes the packets only need their last three bits.
            self.reported_packets = self.reported_packets.wrapping_add(least);
            self.reported_bytes = bytes;
            return marked;
        }
        self.reported_packets = self.reported_packets.wrapping_add(packets);
        let bytes = packets.saturating_mul(mss);
        self.reported_bytes = self.reported_bytes.wrapping_add(bytes) & BYTES_MASK;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;

    fn pair() -> (AccurateEcn, AccurateEcn) {
        (AccurateEcn::new(Some(Ecn::NotEct)), AccurateEcn::new(None))
    }

    /// Each acknowledgement covers up to seven segments: the sender learns of every mark, with the option in bytes.
    #[test]
    fn every_mark_is_reported_once() {
        for with_option in [false, true] {
            let (mut sender, mut receiver) = pair();
            let (mut marked, mut reported) = (0, 0);
            for n in 0..1_000u32 {
                let batch = n % 8;
                for segment in 0..batch {
                    let is_marked = (n + segment) % 3 == 0;
                    receiver.count(if is_marked { Ecn::Ce } else { Ecn::Ect1 }, MSS);
                    marked += u32::from(is_marked) * MSS;
                }
                let option = with_option.then(|| receiver.option());
                reported += sender.marked(receiver.next_ace(), option, batch * MSS, MSS);
            }
            assert_eq!(reported, marked, "{with_option}");
        }
    }

    /// Appendix A.2.1: if nine of nine may be marked and the field says one, all nine are.
    #[test]
    fn ambiguous_counts_are_the_largest_possible() {
        for (segments, least, expected) in
            [(7, 1, 1), (9, 1, 9), (8, 1, 1), (20, 3, 19), (8, 0, 8), (2, 3, 3)]
        {
            let (mut sender, _) = pair();
            let ace = ((FIRST_PACKETS + least) & 7) as u8;
            assert_eq!(sender.marked(ace, None, segments * MSS, MSS), expected * MSS, "{segments} {least}");
            // The next acknowledgement reports nothing more.
            assert_eq!(sender.marked(ace, None, MSS, MSS), 0);
        }
    }

    #[test]
    fn bytes_wrap_and_marks_that_begin_are_acknowledged() {
        let (mut sender, mut receiver) = pair();
        let mut reported = 0u64;
        for _ in 0..40_000 {
            receiver.count(Ecn::Ce, MSS);
            reported += u64::from(sender.marked(0, Some(receiver.option()), MSS, MSS));
        }
        assert_eq!(reported, 40_000_000);
        let (_, mut receiver) = pair();
        let fields = [Ecn::Ect1, Ecn::Ce, Ecn::Ce, Ecn::NotEct, Ecn::Ce, Ecn::Ect0];
        let at_once = fields.map(|field| receiver.count(field, MSS));
        assert_eq!(at_once, [false, true, false, false, true, false]);
        // An acknowledgement that was overtaken reports nothing, and takes nothing back.
        let (mut sender, mut receiver) = pair();
        let old = receiver.option();
        receiver.count(Ecn::Ce, MSS);
        let new = receiver.option();
        let reports = [(6, new, MSS), (5, old, 0), (5, old, MSS), (6, new, MSS)];
        let marked = reports.map(|(ace, option, delivered)| sender.marked(ace, Some(option), delivered, MSS));
        assert_eq!(marked, [MSS, 0, 0, 0]);
        let (_, mut receiver) = pair();
        // A segment without data neither begins marks nor ends them.
        assert!(!receiver.count(Ecn::Ce, 0) && receiver.count(Ecn::Ce, MSS));
    }

    #[test]
    fn the_handshake_has_its_own_encoding() {
        for field in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            let mut client = AccurateEcn::new(Some(field));
            let mut server = AccurateEcn::new(None);
            let first = client.next_ace();
            assert_eq!(first, handshake(field));
            assert_eq!(server.marked(first, None, 0, MSS), 0);
            // The count of a marked answer is the first that the client reports, and the server knows it.
            let second = client.next_ace();
            assert_eq!(second, if field == Ecn::Ce { 6 } else { 5 });
            assert_eq!(server.marked(second, None, MSS, MSS), 0);
        }
    }
}
