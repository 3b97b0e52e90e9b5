//! How many of something are open for each key or source.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Numbers of open connections by `K`.
#[derive(Clone, Debug)]
pub struct Counts<K> {
    counts: Arc<Mutex<BTreeMap<K, usize>>>,
    max: usize,
}

/// A connection that counts until it is dropped.
#[derive(Debug)]
pub struct Counted<K: Ord> {
    counts: Counts<K>,
    key: K,
}

impl<K: Ord + Clone> Counts<K> {
    /// Counts up to `max` connections for each `K`.
    pub fn new(max: usize) -> Counts<K> {
        Counts { counts: Arc::default(), max }
    }

    /// Counts a connection until the returned value is dropped; `None` if there are too many.
    pub fn enter(&self, key: K) -> Option<Counted<K>> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key.clone()).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Counted { counts: Counts { counts: self.counts.clone(), max: self.max }, key })
    }
}

impl<K: Ord> Drop for Counted<K> {
    fn drop(&mut self) {
        let mut counts = self.counts.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_for_each_key_is_limited() {
        let counts = Counts::new(2);
        let first = counts.enter("a");
        let second = counts.enter("a");
        assert!(first.is_some() && second.is_some() && counts.enter("a").is_none());
        assert!(counts.enter("b").is_some());
        drop(first);
        assert!(counts.enter("a").is_some());
        drop(second);
        assert!(counts.counts.lock().unwrap().is_empty(), "memory is freed");
    }
}
