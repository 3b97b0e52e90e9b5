//! Columns of a table by GETBULK (RFC 3416, section 4.2.3).
//!
//! Every request asks for the uptime and for the next rows of several columns, as many as fit a datagram. Columns may
//! differ in length: each continues from its last object. Every walk terminates: object identifiers must increase, and
//! the number of rows is limited.

use std::collections::BTreeMap;

use async_snmp::{Oid, Value, VarBind};

use super::{Fault, mib};

/// Octets of a message other than table objects: version 3 headers with security parameters, and the uptime.
const HEADER_OCTETS: usize = 160;
/// Assumed octets of an object before the first response: its identifier and a counter.
const INITIAL_OBJECT_OCTETS: usize = 26;
/// Minimum octets of an object: a table counter takes about 20.
const MIN_OBJECT_OCTETS: usize = 18;
/// Maximum octets of an object: a long name. Responses with longer ones are rare, and IP fragments them.
const MAX_OBJECT_OCTETS: usize = 300;
/// Maximum number of rows in a request (max-repetitions).
const MAX_REPETITIONS: u32 = 64;
/// Maximum number of arcs in the index of a row.
const MAX_INDEX_LENGTH: usize = 32;
/// Maximum octets of a text.
const MAX_TEXT_OCTETS: usize = 4_096;
/// Maximum octets of an opaque value that encodes a number.
const MAX_OPAQUE_OCTETS: usize = 16;
/// Uptimes above this value, one hour below the wrap at 497 days, may wrap.
const NEAR_WRAP: u32 = u32::MAX - 360_000;

/// Rows by index, with one value per column.
pub type Rows = BTreeMap<Vec<u32>, Vec<Option<Value>>>;

/// A walk through the columns of a table.
#[derive(Debug)]
pub struct Walk {
    columns: Vec<Column>,
    rows: Rows,
    max_rows: usize,
    expected: usize,
    shape: Shape,
    uptime: Option<u32>,
    /// Mean octets of an object in the last response.
    object_octets: usize,
    has_shrunk: bool,
    /// Columns of the last request.
    requested: Vec<usize>,
}

/// Request limits learned from an agent, for its next walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Maximum octets of a response.
    datagram: usize,
    repetitions: u32,
    columns: usize,
}

#[derive(Debug)]
struct Column {
    root: Oid,
    cursor: Oid,
    rows: usize,
    done: bool,
}

impl Shape {
    /// Creates the initial limits for responses of at most `datagram` octets.
    pub fn new(datagram: usize) -> Shape {
        Shape { datagram, repetitions: MAX_REPETITIONS, columns: usize::MAX }
    }
}

impl Walk {
    /// Creates a walk through `columns` that stores at most `max_rows` rows. About `expected` rows are expected (0 if
    /// unknown).
    pub fn new(
        columns: impl IntoIterator<Item = Oid>,
        shape: Shape,
        max_rows: usize,
        expected: usize,
    ) -> Walk {
        let column = |root: Oid| Column { cursor: root.clone(), root, rows: 0, done: false };
        let columns = columns.into_iter().map(column).collect();
        let (rows, uptime, object_octets, requested) = (Rows::new(), None, INITIAL_OBJECT_OCTETS, Vec::new());
        Walk { columns, rows, max_rows, expected, shape, uptime, object_octets, has_shrunk: false, requested }
    }

    /// Returns the next request: the object identifiers, starting with the uptime, and the number of rows. `None` at the
    /// end of the walk.
    pub fn next_request(&mut self) -> Option<(Vec<Oid>, u32)> {
        let max_objects = self.shape.datagram.saturating_sub(HEADER_OCTETS) / self.object_octets;
        let max_columns = self.shape.columns.min(max_objects).max(1);
        let left = (0..self.columns.len()).filter(|&at| !self.columns[at].done);
        self.requested = left.take(max_columns).collect();
        let slowest = self.requested.iter().map(|&at| self.columns[at].rows).min()?;
        let fit = u32::try_from(max_objects / self.requested.len()).unwrap_or(u32::MAX).max(1);
        let mut repetitions = fit.min(self.shape.repetitions);
        if let Some(left) = self.expected.checked_sub(slowest).filter(|_| self.expected > 0) {
            // One row more, which signals the end.
            repetitions = repetitions.min(u32::try_from(left + 1).unwrap_or(u32::MAX));
        }
        let uptime = std::iter::once(Oid::from_slice(mib::UPTIME));
        let objects =
            uptime.chain(self.requested.iter().map(|&at| self.columns[at].cursor.clone())).collect();
        Some((objects, repetitions))
    }

    /// Halves the next request; returns `false` if it has only one value.
    pub fn shrink(&mut self) -> bool {
        self.has_shrunk = true;
        let rows = self.shape.repetitions.min(
            u32::try_from(self.shape.datagram / self.object_octets / self.requested.len().max(1))
                .unwrap_or(MAX_REPETITIONS),
        );
        match (rows, self.requested.len()) {
            (2.., _) => self.shape.repetitions = rows / 2,
            (_, 2..) => (self.shape.repetitions, self.shape.columns) = (1, self.requested.len() / 2),
            _ => return false,
        }
        true
    }

    /// Handles the response to the last request.
    pub fn handle_response(&mut self, answer: &[VarBind], repetitions: u32) -> Result<(), Fault> {
        let mut objects = answer.iter();
        let first = objects.next().ok_or(Fault::TooBig)?;
        self.check_uptime(first)?;
        if objects.len() == 0 {
            return Err(Fault::TooBig); // truncated to nothing
        }
        let requested = std::mem::take(&mut self.requested);
        let count = requested.len() * repetitions as usize;
        let octets: usize = objects.clone().map(VarBind::encoded_size).sum();
        self.object_octets = (octets / objects.len()).clamp(MIN_OBJECT_OCTETS, MAX_OBJECT_OCTETS);
        for (object, &at) in objects.take(count).zip(requested.iter().cycle()) {
            self.store(at, object)?;
        }
        Ok(())
    }

    /// Checks that the uptime does not decrease within a walk.
    fn check_uptime(&mut self, first: &VarBind) -> Result<(), Fault> {
        let is_uptime = first.oid.arcs().strip_suffix(&[0]) == Some(mib::UPTIME);
        let Value::TimeTicks(now) = first.value else { return Ok(()) };
        if is_uptime {
            if self.uptime.is_some_and(|before| now < before && before < NEAR_WRAP) {
                return Err(Fault::Restarted);
            }
            self.uptime = Some(now);
        }
        Ok(())
    }

    fn store(&mut self, at: usize, object: &VarBind) -> Result<(), Fault> {
        let count = self.columns.len();
        let column = &mut self.columns[at];
        if column.done {
            return Ok(()); // rows after the end of the column
        }
        if object.value.is_exception() || !object.oid.starts_with(&column.root) {
            column.done = true;
            return Ok(());
        }
        if object.oid <= column.cursor {
            column.done = true;
            return Err(Fault::Order(column.root.to_string()));
        }
        column.cursor = object.oid.clone();
        column.rows += 1;
        let index = &object.oid.arcs()[column.root.len()..];
        if index.len() > MAX_INDEX_LENGTH || column.rows > self.max_rows {
            column.done = true;
            return Err(Fault::Rows(self.max_rows));
        }
        if !self.rows.contains_key(index) && self.rows.len() >= self.max_rows {
            return Err(Fault::Rows(self.max_rows));
        }
        self.rows.entry(index.to_vec()).or_insert_with(|| vec![None; count])[at] =
            Some(bounded(&object.value));
        Ok(())
    }

    /// Returns the rows, the last uptime, and the limits for the next walk. If no response was too big, the limits grow
    /// again.
    pub fn finish(mut self) -> (Rows, Option<u32>, Shape) {
        if !self.has_shrunk {
            self.shape.repetitions = self.shape.repetitions.saturating_mul(2).min(MAX_REPETITIONS);
            self.shape.columns = self.shape.columns.saturating_mul(2);
        }
        (self.rows, self.uptime, self.shape)
    }
}

/// Copies a value out of its datagram and truncates long texts; values that are neither number nor text become null.
fn bounded(value: &Value) -> Value {
    match value {
        Value::OctetString(octets) => Value::from(&octets[..octets.len().min(MAX_TEXT_OCTETS)]),
        Value::Opaque(octets) if octets.len() > MAX_OPAQUE_OCTETS => Value::Null,
        Value::Unknown { .. } | Value::Nsap(_) | Value::ObjectIdentifier(_) => Value::Null,
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn oid(arcs: &[u32]) -> Oid {
        Oid::from_slice(arcs)
    }

    /// Answers like a conforming agent, with at most `most` objects.
    fn agent(objects: &BTreeMap<Vec<u32>, u32>, ask: &[Oid], repetitions: u32, most: usize) -> Vec<VarBind> {
        let next = |after: &Oid| {
            let found =
                objects.range((std::ops::Bound::Excluded(after.arcs().to_vec()), std::ops::Bound::Unbounded));
            let end = VarBind::new(after.clone(), Value::EndOfMibView);
            found.map(|(o, v)| VarBind::new(oid(o), Value::Counter32(*v))).next().unwrap_or(end)
        };
        let mut uptime = oid(mib::UPTIME).arcs().to_vec();
        uptime.push(0);
        let mut out = vec![VarBind::new(oid(&uptime), Value::TimeTicks(7))];
        let mut cursors = ask[1..].to_vec();
        for _ in 0..repetitions {
            for cursor in &mut cursors {
                let found = next(cursor);
                *cursor = found.oid.clone();
                out.push(found);
            }
        }
        out.truncate(most + 1);
        out
    }

    fn walk(objects: &BTreeMap<Vec<u32>, u32>, columns: u32, most: usize, expected: usize) -> (Rows, usize) {
        let mut walk = Walk::new((1..=columns).map(|c| oid(&[1, 3, c])), Shape::new(1_400), 1_000, expected);
        let mut requests = 0;
        while let Some((ask, repetitions)) = walk.next_request() {
            walk.handle_response(&agent(objects, &ask, repetitions, most), repetitions).unwrap();
            requests += 1;
        }
        (walk.finish().0, requests)
    }

    proptest! {
        #[test]
        fn a_walk_finds_every_object_of_sparse_tables_in_truncated_responses(
            cells in prop::collection::btree_map((1u32..5, 1u32..40), any::<u32>(), 0..100),
            most in 1usize..200,
            expected in 0usize..50,
        ) {
            let mut objects: BTreeMap<Vec<u32>, u32> =
                cells.iter().map(|(&(column, row), v)| (vec![1, 3, column, row], *v)).collect();
            objects.insert(vec![1, 4, 1], 3);
            let (rows, _) = walk(&objects, 4, most, expected);
            let found: BTreeMap<(u32, u32), u32> = rows
                .iter()
                .flat_map(|(index, values)| {
                    let row = index[0];
                    (1..).zip(values).filter_map(move |(c, v)| Some(((c, row), v.as_ref()?.as_u32()?)))
                })
                .collect();
            prop_assert_eq!(found, cells);
        }

        #[test]
        fn every_walk_terminates(answers in prop::collection::vec(prop::collection::vec(
            (prop::collection::vec(0u32..4, 1..6), 0u8..3), 0..20), 0..40)) {
            let mut walk = Walk::new([oid(&[1]), oid(&[2])], Shape::new(1_400), 10, 0);
            for answer in answers {
                let Some((_, repetitions)) = walk.next_request() else { break };
                let answer: Vec<VarBind> = answer
                    .iter()
                    .map(|(o, kind)| VarBind::new(oid(o), match kind {
                        0 => Value::Counter32(1),
                        1 => Value::EndOfMibView,
                        _ => Value::TimeTicks(2),
                    }))
                    .collect();
                if walk.handle_response(&answer, repetitions).is_err() {
                    break;
                }
                prop_assert!(walk.rows.len() <= 10);
            }
        }
    }

    #[test]
    fn requests_fill_a_datagram() {
        let objects = (1..=17).flat_map(|c| (1..=50).map(move |row| (vec![1, 3, c, row], row))).collect();
        // The first request fits 47 objects, two rows of 17 columns. The objects are short, so later requests fit four rows.
        let (rows, requests) = walk(&objects, 17, 1_000, 0);
        assert_eq!((rows.len(), requests), (50, 14));
    }

    #[test]
    fn objects_that_do_not_increase_end_a_walk() {
        for back in [[1, 3, 1, 5], [1, 3, 1, 4]] {
            let mut walk = Walk::new([oid(&[1, 3, 1])], Shape::new(1_400), 100, 0);
            let (_, repetitions) = walk.next_request().unwrap();
            let counter = |o: &[u32]| VarBind::new(oid(o), Value::Counter32(1));
            let answer = [counter(&[1]), counter(&[1, 3, 1, 5]), counter(&back)];
            assert_eq!(walk.handle_response(&answer, repetitions), Err(Fault::Order("1.3.1".into())));
        }
    }

    #[test]
    fn an_endless_table_ends_at_the_row_limit() {
        let mut walk = Walk::new([oid(&[1, 3, 1])], Shape::new(1_400), 100, 0);
        for n in 1u32.. {
            let (_, repetitions) = walk.next_request().unwrap();
            let answer = [VarBind::null(oid(&[1])), VarBind::new(oid(&[1, 3, 1, n]), Value::Counter32(n))];
            match walk.handle_response(&answer, repetitions) {
                Ok(()) => assert!(n <= 100),
                Err(fault) => return assert_eq!((n, fault), (101, Fault::Rows(100))),
            }
        }
    }

    #[test]
    fn too_big_responses_shrink_requests_to_one_value() {
        let mut walk = Walk::new((1..=8).map(|c| oid(&[1, 3, c])), Shape::new(1_400), 100, 0);
        let mut sizes = Vec::new();
        loop {
            let (ask, repetitions) = walk.next_request().unwrap();
            sizes.push((ask.len() - 1) * repetitions as usize);
            if !walk.shrink() {
                break;
            }
        }
        assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
        assert_eq!(sizes.last(), Some(&1));
    }
}
