//! Integers in few bytes, and parts that are read one by one.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What is wrong with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// They are not a chunk's.
    #[error("these are not the bytes of a chunk")]
    Foreign,
    /// They end before what they say is in them.
    #[error("bytes are missing")]
    Short,
    /// A part's checksum is wrong.
    #[error("the checksum of part {0} is wrong")]
    Checksum(usize),
    /// They say what cannot be.
    #[error("{0} cannot be")]
    Nonsense(&'static str),
    /// A compressed column cannot be read.
    #[error("a column cannot be decompressed")]
    Column,
}

/// Appends an integer, seven bits a byte, the low ones first.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed integer: small ones of either sign are short.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a signed integer of 128 bits.
pub(crate) fn put_wide(out: &mut Vec<u8>, value: i128) {
    let bits = ((value << 1) ^ (value >> 127)) as u128;
    put(out, bits as u64);
    put(out, (bits >> 64) as u64);
}

/// Bytes that are taken from the front.
pub(crate) struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn bytes(&mut self, length: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Damage::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn byte(&mut self) -> Result<u8, Damage> {
        Ok(self.bytes(1)?[0])
    }

    pub fn take(&mut self) -> Result<u64, Damage> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(Damage::Nonsense("an integer of more than 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Damage::Nonsense("an integer of more than 64 bits"))
    }

    pub fn signed(&mut self) -> Result<i64, Damage> {
        let bits = self.take()?;
        Ok((bits >> 1) as i64 ^ -((bits & 1) as i64))
    }

    pub fn wide(&mut self) -> Result<i128, Damage> {
        let bits = u128::from(self.take()?) | u128::from(self.take()?) << 64;
        Ok((bits >> 1) as i128 ^ -((bits & 1) as i128))
    }

    pub fn real(&mut self) -> Result<f64, Damage> {
        let bytes = self.bytes(8)?.try_into().expect("eight bytes");
        Ok(f64::from_le_bytes(bytes))
    }

    /// A count that may not exceed `most`.
    pub fn count(&mut self, most: usize) -> Result<usize, Damage> {
        let count = usize::try_from(self.take()?).ok().filter(|c| *c <= most);
        count.ok_or(Damage::Nonsense("a count"))
    }
}

/// Bytes that are read in pieces: a slice, or a BLOB of the database.
pub trait Source {
    /// Fills `into` with what stands at `offset`.
    fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), Damage>;
    /// How many there are.
    fn length(&self) -> usize;
}

impl Source for &[u8] {
    fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), Damage> {
        let end = offset.checked_add(into.len()).ok_or(Damage::Short)?;
        into.copy_from_slice(self.get(offset..end).ok_or(Damage::Short)?);
        Ok(())
    }

    fn length(&self) -> usize {
        self.len()
    }
}

impl Source for Box<dyn Source + '_> {
    fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), Damage> {
        (**self).read_at(offset, into)
    }

    fn length(&self) -> usize {
        (**self).length()
    }
}

impl Source for rusqlite::blob::Blob<'_> {
    fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), Damage> {
        self.read_at_exact(into, offset).map_err(|_| Damage::Short)
    }

    fn length(&self) -> usize {
        self.len()
    }
}

/// What the parts of a chunk begin with.
const MAGIC: [u8; 4] = *b"TKC1";
const HEAD: usize = 8;
const ENTRY: usize = 8;

fn checksum(part: usize, bytes: &[u8]) -> u32 {
    xxh3_64_with_seed(bytes, part as u64) as u32
}

/// Puts parts behind a directory: for each where it ends and its checksum, four bytes each, little endian.
pub fn join(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend((parts.len() as u32).to_le_bytes());
    let mut end = HEAD + ENTRY * parts.len();
    for (number, part) in parts.iter().enumerate() {
        end += part.len();
        out.extend((end as u32).to_le_bytes());
        out.extend(checksum(number, part).to_le_bytes());
    }
    parts.iter().for_each(|part| out.extend(part));
    out
}

/// How many parts there are.
pub(crate) fn parts(source: &impl Source) -> Result<usize, Damage> {
    let mut head = [0; HEAD];
    source.read_at(0, &mut head)?;
    if head[..4] != MAGIC {
        return Err(Damage::Foreign);
    }
    let parts = u32::from_le_bytes(head[4..].try_into().expect("four bytes")) as usize;
    if HEAD + parts.saturating_mul(ENTRY) > source.length() {
        return Err(Damage::Short);
    }
    Ok(parts)
}

/// Reads one part and nothing of the others; none if there is no such part.
pub(crate) fn part(source: &impl Source, number: usize) -> Result<Option<Vec<u8>>, Damage> {
    let parts = parts(source)?;
    if number >= parts {
        return Ok(None);
    }
    let mut entries = [0; 2 * ENTRY];
    let at = HEAD + ENTRY * number;
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
    };
    let begin = if number == 0 {
        source.read_at(at, &mut entries[ENTRY..])?;
        HEAD + ENTRY * parts
    } else {
        source.read_at(at - ENTRY, &mut entries)?;
        word(&entries, 0)
    };
    let end = word(&entries, ENTRY);
    if begin > end || end > source.length() {
        return Err(Damage::Short);
    }
    let mut bytes = vec![0; end - begin];
    source.read_at(begin, &mut bytes)?;
    if checksum(number, &bytes) as usize != word(&entries, ENTRY + 4) {
        return Err(Damage::Checksum(number));
    }
    Ok(Some(bytes))
}
