//! A sparse table indexed by channel number.

/// Channels per page.
const PAGE: usize = 64;

type Page<T> = [Option<Box<T>>; PAGE];

/// One value for each channel that was ever used. A page of 64 entries takes 512 bytes, the page table at most 8 KiB.
#[derive(Debug)]
pub(crate) struct ChannelTable<T> {
    pages: Vec<Option<Box<Page<T>>>>,
}

impl<T> Default for ChannelTable<T> {
    fn default() -> Self {
        ChannelTable { pages: Vec::new() }
    }
}

impl<T> ChannelTable<T> {
    #[inline]
    pub fn get(&self, channel: u16) -> Option<&T> {
        let page = self.pages.get(usize::from(channel) / PAGE)?.as_ref()?;
        page[usize::from(channel) % PAGE].as_deref()
    }

    #[inline]
    pub fn get_mut(&mut self, channel: u16) -> Option<&mut T> {
        let page = self.pages.get_mut(usize::from(channel) / PAGE)?.as_mut()?;
        page[usize::from(channel) % PAGE].as_deref_mut()
    }

    /// Returns the value of a channel; creates it if the channel was never used.
    #[inline]
    pub fn get_or_insert_with(&mut self, channel: u16, new: impl FnOnce() -> T) -> &mut T {
        let at = usize::from(channel) / PAGE;
        if at >= self.pages.len() {
            self.pages.resize_with(at + 1, || None);
        }
        let page = self.pages[at].get_or_insert_with(|| Box::new([const { None }; PAGE]));
        page[usize::from(channel) % PAGE].get_or_insert_with(|| Box::new(new()))
    }

    /// Iterates over all values in the order of channel numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        let pages = self.pages.iter().enumerate().filter_map(|(at, page)| Some((at, page.as_ref()?)));
        pages.flat_map(|(at, page)| {
            let base = at * PAGE;
            page.iter().enumerate().filter_map(move |(i, t)| Some(((base + i) as u16, t.as_deref()?)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_values_are_found() {
        let mut table = ChannelTable::default();
        for channel in [0, 63, 64, 65_535, 64] {
            *table.get_or_insert_with(channel, || 0) += 1;
        }
        assert_eq!(
            table.iter().map(|(c, n)| (c, *n)).collect::<Vec<_>>(),
            [(0, 1), (63, 1), (64, 2), (65_535, 1)]
        );
        assert!(table.get(1).is_none() && table.get_mut(700).is_none());
    }
}
