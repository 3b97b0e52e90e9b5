//! Encoding of number columns: runs of missing values, constants and constant steps take a few bytes; `pco`
//! compresses the rest.

use pco::data_types::Number;
use pco::wrapped::{FileCompressor, FileDecompressor};
use pco::{ChunkConfig, DeltaSpec, ModeSpec};

use super::encoding::{DecodeError, Decoder, put_varint};
use crate::counter::{RawValue, ValueKind};

/// All numbers are equal.
const CONSTANT: u8 = 0;
/// Every number is the previous one plus a constant.
const STEPS: u8 = 1;
/// Compressed by `pco` as unsigned, signed or floating-point numbers.
const UNSIGNED: u8 = 2;
const SIGNED: u8 = 3;
const REAL: u8 = 4;

/// Appends numbers. The reader must know how many.
pub(crate) fn encode(out: &mut Vec<u8>, values: &[u64], kind: ValueKind) {
    let Some(&first) = values.first() else { return };
    let step = values.get(1).map_or(0, |second| second.wrapping_sub(first));
    if values.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == step) {
        out.push(if step == 0 { CONSTANT } else { STEPS });
        put_varint(out, first);
        if step != 0 {
            put_varint(out, step);
        }
        return;
    }
    let differences = DeltaSpec::TryConsecutive(1);
    let (tag, packed) = match kind {
        ValueKind::Counter32 | ValueKind::Counter64 => {
            (UNSIGNED, compress(values, ModeSpec::Classic, differences))
        }
        ValueKind::Gauge => {
            let signed: Vec<i64> = values.iter().map(|v| *v as i64).collect();
            (SIGNED, compress(&signed, ModeSpec::Auto, DeltaSpec::Auto))
        }
        ValueKind::Real => {
            let real: Vec<f64> = values.iter().map(|v| f64::from_bits(*v)).collect();
            (REAL, compress(&real, ModeSpec::Auto, DeltaSpec::Auto))
        }
    };
    out.push(tag);
    out.extend(packed);
}

/// Compresses numbers as one `pco` chunk of one page, without the framing of a file.
fn compress<T: Number>(values: &[T], mode: ModeSpec, delta: DeltaSpec) -> Vec<u8> {
    let config = ChunkConfig::default().with_mode_spec(mode).with_delta_spec(delta);
    let file = FileCompressor::default();
    let packed = file.chunk_compressor(values, &config).and_then(|mut chunk| {
        let mut out = file.write_header(Vec::new())?;
        out = chunk.write_meta(out)?;
        chunk.write_page(0, out)
    });
    packed.expect("there are numbers, not too many, and a vector takes what is written")
}

/// Reads `count` numbers.
pub(crate) fn decode(input: &mut Decoder<'_>, count: usize) -> Result<Vec<u64>, DecodeError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    match input.byte()? {
        CONSTANT => Ok(vec![input.varint()?; count]),
        STEPS => {
            let (first, step) = (input.varint()?, input.varint()?);
            Ok((0..count as u64).map(|at| first.wrapping_add(step.wrapping_mul(at))).collect())
        }
        UNSIGNED => decompress::<u64>(input, count),
        SIGNED => Ok(decompress::<i64>(input, count)?.into_iter().map(|v| v as u64).collect()),
        REAL => Ok(decompress::<f64>(input, count)?.into_iter().map(f64::to_bits).collect()),
        _ => Err(DecodeError::Invalid("the encoding of a column")),
    }
}

fn decompress<T: Number>(input: &mut Decoder<'_>, count: usize) -> Result<Vec<T>, DecodeError> {
    let damage = |_| DecodeError::Decompression;
    let (file, rest) = FileDecompressor::new(input.0).map_err(damage)?;
    let (mut chunk, rest) = file.chunk_decompressor::<T, _>(rest).map_err(damage)?;
    let mut page = chunk.page_decompressor(rest, count).map_err(damage)?;
    let mut values = vec![T::default(); count];
    let progress = page.read(&mut values).map_err(damage)?;
    input.0 = page.into_src();
    if progress.n_processed == count { Ok(values) } else { Err(DecodeError::Decompression) }
}

/// Appends numbers of which some may be missing: the number of runs, the length of each run, starting with present
/// values (no runs if nothing is missing), then the present numbers.
pub(crate) fn encode_optional(out: &mut Vec<u8>, values: &[Option<RawValue>], kind: ValueKind) {
    let mut runs = Vec::new();
    if values.iter().any(Option::is_none) {
        let (mut there, mut length) = (true, 0);
        for value in values {
            if value.is_some() != there {
                runs.push(length);
                (there, length) = (!there, 0);
            }
            length += 1;
        }
        runs.push(length);
    }
    put_varint(out, runs.len() as u64);
    runs.iter().for_each(|run| put_varint(out, *run));
    let there: Vec<u64> = values.iter().flatten().map(|v| v.0).collect();
    encode(out, &there, kind);
}

/// Reads `count` numbers written by [`encode_optional`].
pub(crate) fn decode_optional(
    input: &mut Decoder<'_>,
    count: usize,
) -> Result<Vec<Option<RawValue>>, DecodeError> {
    let runs = input.count(count + 1)?;
    let mut there = Vec::with_capacity(count);
    for run in 0..runs {
        let length = input.count(count - there.len())?;
        there.resize(there.len() + length, run % 2 == 0);
    }
    if runs == 0 {
        there.resize(count, true);
    }
    if there.len() != count {
        return Err(DecodeError::Invalid("runs that do not fill a column"));
    }
    let mut values = decode(input, there.iter().filter(|t| **t).count())?.into_iter();
    Ok(there.into_iter().map(|t| if t { values.next().map(RawValue) } else { None }).collect())
}
