//! Variable-length integers, and a container of parts with checksums.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Why bytes could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The magic number is missing.
    #[error("not a chunk")]
    NotAChunk,
    /// The input is too short.
    #[error("unexpected end of data")]
    Truncated,
    /// The checksum of a part does not match.
    #[error("the checksum of part {0} is wrong")]
    Checksum(usize),
    /// A value is out of range.
    #[error("{0} is invalid")]
    Invalid(&'static str),
    /// A compressed column is invalid.
    #[error("a column cannot be decompressed")]
    Decompression,
}

/// Appends an unsigned integer as LEB128: seven bits per byte, the low ones first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed integer in zigzag coding: small absolute values are short.
pub(crate) fn put_zigzag(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a signed 128-bit integer as two LEB128 halves.
pub(crate) fn put_zigzag128(out: &mut Vec<u8>, value: i128) {
    let bits = ((value << 1) ^ (value >> 127)) as u128;
    put_varint(out, bits as u64);
    put_varint(out, (bits >> 64) as u64);
}

/// Reads values from the front of a slice.
pub(crate) struct Decoder<'a>(pub &'a [u8]);

impl<'a> Decoder<'a> {
    pub fn bytes(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.bytes(1)?[0])
    }

    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(DecodeError::Invalid("an integer of more than 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Invalid("an integer of more than 64 bits"))
    }

    pub fn zigzag(&mut self) -> Result<i64, DecodeError> {
        let bits = self.varint()?;
        Ok((bits >> 1) as i64 ^ -((bits & 1) as i64))
    }

    pub fn zigzag128(&mut self) -> Result<i128, DecodeError> {
        let bits = u128::from(self.varint()?) | u128::from(self.varint()?) << 64;
        Ok((bits >> 1) as i128 ^ -((bits & 1) as i128))
    }

    pub fn float(&mut self) -> Result<f64, DecodeError> {
        let bytes = self.bytes(8)?.try_into().expect("eight bytes");
        Ok(f64::from_le_bytes(bytes))
    }

    /// Reads a count of at most `most`.
    pub fn count(&mut self, most: usize) -> Result<usize, DecodeError> {
        let count = usize::try_from(self.varint()?).ok().filter(|c| *c <= most);
        count.ok_or(DecodeError::Invalid("a count"))
    }
}

/// Bytes with random access: a slice, or a BLOB of the database.
pub trait ByteSource {
    /// Fills `into` with the bytes at `offset`.
    fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), DecodeError>;
    /// Returns the number of bytes.
    fn size(&self) -> usize;
}

impl ByteSource for &[u8] {
    fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), DecodeError> {
        let end = offset.checked_add(into.len()).ok_or(DecodeError::Truncated)?;
        into.copy_from_slice(self.get(offset..end).ok_or(DecodeError::Truncated)?);
        Ok(())
    }

    fn size(&self) -> usize {
        self.len()
    }
}

impl ByteSource for Box<dyn ByteSource + '_> {
    fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), DecodeError> {
        (**self).read_at(offset, into)
    }

    fn size(&self) -> usize {
        (**self).size()
    }
}

impl ByteSource for rusqlite::blob::Blob<'_> {
    fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), DecodeError> {
        self.read_at_exact(into, offset).map_err(|_| DecodeError::Truncated)
    }

    fn size(&self) -> usize {
        self.len()
    }
}

/// Magic number of a chunk.
const MAGIC: [u8; 4] = *b"TKC1";
const HEADER_LENGTH: usize = 8;
const ENTRY_LENGTH: usize = 8;

fn checksum(part: usize, bytes: &[u8]) -> u32 {
    xxh3_64_with_seed(bytes, part as u64) as u32
}

/// Joins parts behind a directory. The directory holds, for each part, where it ends and its checksum: four bytes
/// each, little endian.
pub fn encode_parts(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend((parts.len() as u32).to_le_bytes());
    let mut end = HEADER_LENGTH + ENTRY_LENGTH * parts.len();
    for (number, part) in parts.iter().enumerate() {
        end += part.len();
        out.extend((end as u32).to_le_bytes());
        out.extend(checksum(number, part).to_le_bytes());
    }
    parts.iter().for_each(|part| out.extend(part));
    out
}

pub(crate) fn part_count(source: &impl ByteSource) -> Result<usize, DecodeError> {
    let mut head = [0; HEADER_LENGTH];
    source.read_at(0, &mut head)?;
    if head[..4] != MAGIC {
        return Err(DecodeError::NotAChunk);
    }
    let parts = u32::from_le_bytes(head[4..].try_into().expect("four bytes")) as usize;
    if HEADER_LENGTH + parts.saturating_mul(ENTRY_LENGTH) > source.size() {
        return Err(DecodeError::Truncated);
    }
    Ok(parts)
}

/// Reads one part only; `None` if the part does not exist.
pub(crate) fn decode_part(source: &impl ByteSource, number: usize) -> Result<Option<Vec<u8>>, DecodeError> {
    let parts = part_count(source)?;
    if number >= parts {
        return Ok(None);
    }
    let mut entries = [0; 2 * ENTRY_LENGTH];
    let at = HEADER_LENGTH + ENTRY_LENGTH * number;
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
    };
    let begin = if number == 0 {
        source.read_at(at, &mut entries[ENTRY_LENGTH..])?;
        HEADER_LENGTH + ENTRY_LENGTH * parts
    } else {
        source.read_at(at - ENTRY_LENGTH, &mut entries)?;
        word(&entries, 0)
    };
    let end = word(&entries, ENTRY_LENGTH);
    if begin > end || end > source.size() {
        return Err(DecodeError::Truncated);
    }
    let mut bytes = vec![0; end - begin];
    source.read_at(begin, &mut bytes)?;
    if checksum(number, &bytes) as usize != word(&entries, ENTRY_LENGTH + 4) {
        return Err(DecodeError::Checksum(number));
    }
    Ok(Some(bytes))
}
