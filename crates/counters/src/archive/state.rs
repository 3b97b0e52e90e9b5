//! The stored state of a table's trackers after its last chunk.

use std::time::Duration;

use super::chunk::{decode_tracker, encode_tracker};
use super::encoding::{ByteSource, DecodeError, Decoder, decode_part, encode_parts, put_varint, put_zigzag};
use crate::counter::table::{LastAnswer, Snapshot, TableState};
use crate::counter::{ColumnTracker, RawValue, Timestamp};

/// Returns the tracker of a column without readings: a missing object is not reported.
pub(crate) fn new_tracker() -> ColumnTracker {
    ColumnTracker { has_gap: true, ..ColumnTracker::default() }
}

/// Encodes the trackers after the last chunk: part 0 holds the table, part 1 its columns.
pub(crate) fn encode_state(state: &TableState, trackers: &[ColumnTracker]) -> Vec<u8> {
    let mut table = Vec::new();
    let out = &mut table;
    let put_times =
        |out: &mut Vec<u8>, times: &[Timestamp]| times.iter().for_each(|at| put_zigzag(out, at.0));
    out.push(
        u8::from(state.last_poll.is_some())
            | u8::from(state.last_answer.is_some()) << 1
            | u8::from(state.snapshot.is_some()) << 2
            | u8::from(state.is_busy) << 3,
    );
    if let Some((due_at, requested_at)) = state.last_poll {
        put_times(out, &[due_at, requested_at]);
    }
    if let Some(last) = &state.last_answer {
        put_times(out, &[last.requested_at, last.answered_at]);
        put_varint(out, last.uptime.map_or(0, |u| u64::from(u) + 1));
        put_varint(out, last.values.len() as u64);
        for value in &last.values {
            out.push(u8::from(value.is_some()));
            put_varint(out, value.map_or(0, |v| v.0));
        }
    }
    put_times(out, &[state.last_distinct_at]);
    if let Some(hold) = state.snapshot {
        put_times(out, &[hold.previous_requested_at, hold.first_answered_at, hold.last_requested_at]);
    }
    put_varint(out, state.observations.len() as u64);
    for (min, max) in &state.observations {
        put_varint(out, min.as_nanos() as u64);
        put_varint(out, max.as_nanos() as u64);
    }
    let mut columns = Vec::new();
    put_varint(&mut columns, trackers.len() as u64);
    trackers.iter().for_each(|tracker| encode_tracker(&mut columns, tracker, state.last_distinct_at));
    encode_parts(&[table, columns])
}

/// Decodes trackers of at most `columns` columns.
pub(crate) fn decode_state(
    bytes: &impl ByteSource,
    columns: usize,
) -> Result<(TableState, Vec<ColumnTracker>), DecodeError> {
    let table = decode_part(bytes, 0)?.ok_or(DecodeError::Truncated)?;
    let input = &mut Decoder(&table);
    let flags = input.byte()?;
    let mut state = TableState { is_busy: flags & 8 != 0, ..TableState::default() };
    if flags & 1 != 0 {
        state.last_poll = Some((Timestamp(input.zigzag()?), Timestamp(input.zigzag()?)));
    }
    if flags & 2 != 0 {
        let (requested_at, answered_at) = (Timestamp(input.zigzag()?), Timestamp(input.zigzag()?));
        let uptime = input.varint()?.checked_sub(1).map(|u| u as u32);
        let width = input.count(columns)?;
        let mut values = Vec::with_capacity(width);
        for _ in 0..width {
            let there = input.byte()? != 0;
            let value = RawValue(input.varint()?);
            values.push(there.then_some(value));
        }
        state.last_answer = Some(LastAnswer { requested_at, answered_at, uptime, values });
    }
    state.last_distinct_at = Timestamp(input.zigzag()?);
    if flags & 4 != 0 {
        state.snapshot = Some(Snapshot {
            previous_requested_at: Timestamp(input.zigzag()?),
            first_answered_at: Timestamp(input.zigzag()?),
            last_requested_at: Timestamp(input.zigzag()?),
        });
    }
    for _ in 0..input.count(64)? {
        let (min, max) = (input.varint()?, input.varint()?);
        state.observations.push_back((Duration::from_nanos(min), Duration::from_nanos(max)));
    }
    let bytes = decode_part(bytes, 1)?.ok_or(DecodeError::Truncated)?;
    let input = &mut Decoder(&bytes);
    let count = input.count(columns)?;
    let trackers =
        (0..count).map(|_| decode_tracker(input, state.last_distinct_at)).collect::<Result<_, _>>()?;
    Ok((state, trackers))
}
