//! Columns of numbers: runs of missing values, constants and steps in a few bytes, the rest by `pco`.

use pco::data_types::Number;
use pco::wrapped::{FileCompressor, FileDecompressor};
use pco::{ChunkConfig, DeltaSpec, ModeSpec};

use super::bytes::{Damage, Input, put};
use crate::counter::{Kind, Raw};

/// All are equal.
const CONSTANT: u8 = 0;
/// Each is the one before it and so much more.
const STEPS: u8 = 1;
/// Compressed by `pco`, as unsigned, signed or real numbers.
const UNSIGNED: u8 = 2;
const SIGNED: u8 = 3;
const REAL: u8 = 4;

/// Appends numbers; how many there are has to be known who reads them.
pub(crate) fn write(out: &mut Vec<u8>, values: &[u64], kind: Kind) {
    let Some(&first) = values.first() else { return };
    let step = values.get(1).map_or(0, |second| second.wrapping_sub(first));
    if values.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == step) {
        out.push(if step == 0 { CONSTANT } else { STEPS });
        put(out, first);
        if step != 0 {
            put(out, step);
        }
        return;
    }
    let differences = DeltaSpec::TryConsecutive(1);
    let (tag, packed) = match kind {
        Kind::Counter32 | Kind::Counter64 => (UNSIGNED, pack(values, ModeSpec::Classic, differences)),
        Kind::Gauge => {
            let signed: Vec<i64> = values.iter().map(|v| *v as i64).collect();
            (SIGNED, pack(&signed, ModeSpec::Auto, DeltaSpec::Auto))
        }
        Kind::Real => {
            let real: Vec<f64> = values.iter().map(|v| f64::from_bits(*v)).collect();
            (REAL, pack(&real, ModeSpec::Auto, DeltaSpec::Auto))
        }
    };
    out.push(tag);
    out.extend(packed);
}

/// The numbers as one chunk of one page, without what a file of them would begin and end with.
fn pack<T: Number>(values: &[T], mode: ModeSpec, delta: DeltaSpec) -> Vec<u8> {
    let config = ChunkConfig::default().with_mode_spec(mode).with_delta_spec(delta);
    let file = FileCompressor::default();
    let packed = file.chunk_compressor(values, &config).and_then(|mut chunk| {
        let mut out = file.write_header(Vec::new())?;
        out = chunk.write_meta(out)?;
        chunk.write_page(0, out)
    });
    packed.expect("there are numbers, not too many, and a vector takes what is written")
}

/// Reads `count` numbers and everything that is left of `input`.
pub(crate) fn read(input: &mut Input<'_>, count: usize) -> Result<Vec<u64>, Damage> {
    if count == 0 {
        return Ok(Vec::new());
    }
    match input.byte()? {
        CONSTANT => Ok(vec![input.take()?; count]),
        STEPS => {
            let (first, step) = (input.take()?, input.take()?);
            Ok((0..count as u64).map(|at| first.wrapping_add(step.wrapping_mul(at))).collect())
        }
        UNSIGNED => unpack::<u64>(input, count),
        SIGNED => Ok(unpack::<i64>(input, count)?.into_iter().map(|v| v as u64).collect()),
        REAL => Ok(unpack::<f64>(input, count)?.into_iter().map(f64::to_bits).collect()),
        _ => Err(Damage::Nonsense("the coding of a column")),
    }
}

fn unpack<T: Number>(input: &mut Input<'_>, count: usize) -> Result<Vec<T>, Damage> {
    let damage = |_| Damage::Column;
    let (file, rest) = FileDecompressor::new(input.0).map_err(damage)?;
    let (mut chunk, rest) = file.chunk_decompressor::<T, _>(rest).map_err(damage)?;
    let mut page = chunk.page_decompressor(rest, count).map_err(damage)?;
    let mut values = vec![T::default(); count];
    let progress = page.read(&mut values).map_err(damage)?;
    input.0 = page.into_src();
    if progress.n_processed == count { Ok(values) } else { Err(Damage::Column) }
}

/// Appends numbers of which some are missing: how many runs there are, each run's length, the first of what is there
/// (none if nothing is missing); then what is there.
pub(crate) fn write_some(out: &mut Vec<u8>, values: &[Option<Raw>], kind: Kind) {
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
    put(out, runs.len() as u64);
    runs.iter().for_each(|run| put(out, *run));
    let there: Vec<u64> = values.iter().flatten().map(|v| v.0).collect();
    write(out, &there, kind);
}

/// Reads what [`write_some`] wrote of `count` numbers.
pub(crate) fn read_some(input: &mut Input<'_>, count: usize) -> Result<Vec<Option<Raw>>, Damage> {
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
        return Err(Damage::Nonsense("runs that do not fill a column"));
    }
    let mut values = read(input, there.iter().filter(|t| **t).count())?.into_iter();
    Ok(there.into_iter().map(|t| if t { values.next().map(Raw) } else { None }).collect())
}
