//! Columns of a table by GETBULK (RFC 3416, section 4.2.3).
//!
//! Every request asks for the uptime and for the next rows of several columns, as many as fit a datagram. Columns may be of
//! different length: each goes on from where it stands. A walk ends by itself: objects have to increase, and there is a
//! most of rows.

use std::collections::BTreeMap;

use async_snmp::{Oid, Value, VarBind};

use super::{Fault, mib};

/// Octets of a message that are no objects: headers of version 3 with its security, and the uptime.
const AROUND: usize = 160;
/// What an object takes until one was seen: its number and a counter.
const OBJECT: usize = 26;
/// What it takes at least: a counter of a table takes about 20.
const LEAST_OBJECT: usize = 18;
/// What it takes at most: a long name. Longer ones are rare, and come in fragments.
const MOST_OBJECT: usize = 300;
/// Most rows that are asked for at once.
const MOST_REPEATS: u32 = 64;
/// Most parts of a row's number.
const MOST_INDEX: usize = 32;
/// Most octets of a text.
const MOST_TEXT: usize = 4_096;
/// Most octets of an opaque value that can be a number.
const MOST_OPAQUE: usize = 16;
/// An uptime that is less than an hour from its end at 497 days may begin anew.
const NEAR_WRAP: u32 = u32::MAX - 360_000;

/// Rows by their numbers, and a value a column.
pub type Rows = BTreeMap<Vec<u32>, Vec<Option<Value>>>;

/// A walk through the columns of a table.
#[derive(Debug)]
pub struct Walk {
    columns: Vec<Column>,
    rows: Rows,
    most: usize,
    expected: usize,
    shape: Shape,
    uptime: Option<u32>,
    /// Octets of an object in the last answer, on average.
    object: usize,
    shrunk: bool,
    /// Which columns the last request asked for.
    asked: Vec<usize>,
}

/// How large requests may be: what was learned of an agent, for its next walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Octets of an answer.
    datagram: usize,
    repeats: u32,
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
    /// Of answers of at most so many octets.
    pub fn new(datagram: usize) -> Shape {
        Shape { datagram, repeats: MOST_REPEATS, columns: usize::MAX }
    }
}

impl Walk {
    /// Through these columns; of at most `most` rows, of which about `expected` will come (0: that is not known).
    pub fn new(columns: impl IntoIterator<Item = Oid>, shape: Shape, most: usize, expected: usize) -> Walk {
        let column = |root: Oid| Column { cursor: root.clone(), root, rows: 0, done: false };
        let columns = columns.into_iter().map(column).collect();
        let (rows, uptime, object, asked) = (Rows::new(), None, OBJECT, Vec::new());
        Walk { columns, rows, most, expected, shape, uptime, object, shrunk: false, asked }
    }

    /// What to ask next: objects, the first of which is the uptime, and how many rows. None at the end.
    pub fn ask(&mut self) -> Option<(Vec<Oid>, u32)> {
        let room = self.shape.datagram.saturating_sub(AROUND) / self.object;
        let most = self.shape.columns.min(room).max(1);
        let left = (0..self.columns.len()).filter(|&at| !self.columns[at].done);
        self.asked = left.take(most).collect();
        let slowest = self.asked.iter().map(|&at| self.columns[at].rows).min()?;
        let fit = u32::try_from(room / self.asked.len()).unwrap_or(u32::MAX).max(1);
        let mut repeats = fit.min(self.shape.repeats);
        if let Some(left) = self.expected.checked_sub(slowest).filter(|_| self.expected > 0) {
            // And one more, which says that there is no more.
            repeats = repeats.min(u32::try_from(left + 1).unwrap_or(u32::MAX));
        }
        let uptime = std::iter::once(Oid::from_slice(mib::UPTIME));
        let objects = uptime.chain(self.asked.iter().map(|&at| self.columns[at].cursor.clone())).collect();
        Some((objects, repeats))
    }

    /// Asks for less next time; false if there is no less.
    pub fn shrink(&mut self) -> bool {
        self.shrunk = true;
        let rows = self.shape.repeats.min(
            u32::try_from(self.shape.datagram / self.object / self.asked.len().max(1))
                .unwrap_or(MOST_REPEATS),
        );
        match (rows, self.asked.len()) {
            (2.., _) => self.shape.repeats = rows / 2,
            (_, 2..) => (self.shape.repeats, self.shape.columns) = (1, self.asked.len() / 2),
            _ => return false,
        }
        true
    }

    /// Takes the answer to the last request.
    pub fn take(&mut self, answer: &[VarBind], repeats: u32) -> Result<(), Fault> {
        let mut objects = answer.iter();
        let first = objects.next().ok_or(Fault::TooBig)?;
        self.see(first)?;
        if objects.len() == 0 {
            return Err(Fault::TooBig); // cut down to nothing
        }
        let asked = std::mem::take(&mut self.asked);
        let wanted = asked.len() * repeats as usize;
        let octets: usize = objects.clone().map(VarBind::encoded_size).sum();
        self.object = (octets / objects.len()).clamp(LEAST_OBJECT, MOST_OBJECT);
        for (object, &at) in objects.take(wanted).zip(asked.iter().cycle()) {
            self.put(at, object)?;
        }
        Ok(())
    }

    /// The uptime: it must not go back within a walk.
    fn see(&mut self, first: &VarBind) -> Result<(), Fault> {
        let is_it = first.oid.arcs().strip_suffix(&[0]) == Some(mib::UPTIME);
        let Value::TimeTicks(now) = first.value else { return Ok(()) };
        if is_it {
            if self.uptime.is_some_and(|before| now < before && before < NEAR_WRAP) {
                return Err(Fault::Restarted);
            }
            self.uptime = Some(now);
        }
        Ok(())
    }

    fn put(&mut self, at: usize, object: &VarBind) -> Result<(), Fault> {
        let count = self.columns.len();
        let column = &mut self.columns[at];
        if column.done {
            return Ok(()); // later rows of a column that is over
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
        if index.len() > MOST_INDEX || column.rows > self.most {
            column.done = true;
            return Err(Fault::Rows(self.most));
        }
        if !self.rows.contains_key(index) && self.rows.len() >= self.most {
            return Err(Fault::Rows(self.most));
        }
        self.rows.entry(index.to_vec()).or_insert_with(|| vec![None; count])[at] = Some(kept(&object.value));
        Ok(())
    }

    /// What came: rows, the last uptime, and what was learned of the agent. Where nothing was too big the next walk may ask
    /// for more: what was too big once need not be for ever.
    pub fn end(mut self) -> (Rows, Option<u32>, Shape) {
        if !self.shrunk {
            self.shape.repeats = self.shape.repeats.saturating_mul(2).min(MOST_REPEATS);
            self.shape.columns = self.shape.columns.saturating_mul(2);
        }
        (self.rows, self.uptime, self.shape)
    }
}

/// What is kept of a value: texts of a bounded length and apart from the datagram that they came in.
fn kept(value: &Value) -> Value {
    match value {
        Value::OctetString(octets) => Value::from(&octets[..octets.len().min(MOST_TEXT)]),
        Value::Opaque(octets) if octets.len() > MOST_OPAQUE => Value::Null,
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

    /// An agent as the standard has it, that sends at most so many objects and is busy counting up.
    fn agent(objects: &BTreeMap<Vec<u32>, u32>, ask: &[Oid], repeats: u32, most: usize) -> Vec<VarBind> {
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
        for _ in 0..repeats {
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
        while let Some((ask, repeats)) = walk.ask() {
            walk.take(&agent(objects, &ask, repeats, most), repeats).unwrap();
            requests += 1;
        }
        (walk.end().0, requests)
    }

    proptest! {
        #[test]
        fn a_walk_finds_every_object_whatever_holes_there_are_and_however_answers_are_cut(
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
        fn a_walk_ends_whatever_comes(answers in prop::collection::vec(prop::collection::vec(
            (prop::collection::vec(0u32..4, 1..6), 0u8..3), 0..20), 0..40)) {
            let mut walk = Walk::new([oid(&[1]), oid(&[2])], Shape::new(1_400), 10, 0);
            for answer in answers {
                let Some((_, repeats)) = walk.ask() else { break };
                let answer: Vec<VarBind> = answer
                    .iter()
                    .map(|(o, kind)| VarBind::new(oid(o), match kind {
                        0 => Value::Counter32(1),
                        1 => Value::EndOfMibView,
                        _ => Value::TimeTicks(2),
                    }))
                    .collect();
                if walk.take(&answer, repeats).is_err() {
                    break;
                }
                prop_assert!(walk.rows.len() <= 10);
            }
        }
    }

    #[test]
    fn requests_are_as_few_as_fit() {
        let objects = (1..=17).flat_map(|c| (1..=50).map(move |row| (vec![1, 3, c, row], row))).collect();
        // At first 47 objects fit, two rows of seventeen columns; the agent's are short, so then four rows.
        let (rows, requests) = walk(&objects, 17, 1_000, 0);
        assert_eq!((rows.len(), requests), (50, 14));
    }

    #[test]
    fn objects_that_do_not_increase_end_a_walk() {
        for back in [[1, 3, 1, 5], [1, 3, 1, 4]] {
            let mut walk = Walk::new([oid(&[1, 3, 1])], Shape::new(1_400), 100, 0);
            let (_, repeats) = walk.ask().unwrap();
            let counter = |o: &[u32]| VarBind::new(oid(o), Value::Counter32(1));
            let answer = [counter(&[1]), counter(&[1, 3, 1, 5]), counter(&back)];
            assert_eq!(walk.take(&answer, repeats), Err(Fault::Order("1.3.1".into())));
        }
    }

    #[test]
    fn a_walk_without_end_has_one() {
        let mut walk = Walk::new([oid(&[1, 3, 1])], Shape::new(1_400), 100, 0);
        for n in 1u32.. {
            let (_, repeats) = walk.ask().unwrap();
            let answer = [VarBind::null(oid(&[1])), VarBind::new(oid(&[1, 3, 1, n]), Value::Counter32(n))];
            match walk.take(&answer, repeats) {
                Ok(()) => assert!(n <= 100),
                Err(fault) => return assert_eq!((n, fault), (101, Fault::Rows(100))),
            }
        }
    }

    #[test]
    fn an_agent_that_finds_answers_too_big_is_asked_for_less_until_there_is_no_less() {
        let mut walk = Walk::new((1..=8).map(|c| oid(&[1, 3, c])), Shape::new(1_400), 100, 0);
        let mut sizes = Vec::new();
        loop {
            let (ask, repeats) = walk.ask().unwrap();
            sizes.push((ask.len() - 1) * repeats as usize);
            if !walk.shrink() {
                break;
            }
        }
        assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
        assert_eq!(sizes.last(), Some(&1));
    }
}
