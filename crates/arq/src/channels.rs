//! A table of channels of which few are used.

/// Channels of a page.
const PAGE: usize = 64;

type Page<T> = [Option<Box<T>>; PAGE];

/// Something for each channel that was ever used. A page of 64 takes half a kilobyte, the table eight.
#[derive(Debug)]
pub(crate) struct Channels<T> {
    pages: Vec<Option<Box<Page<T>>>>,
}

impl<T> Default for Channels<T> {
    fn default() -> Self {
        Channels { pages: Vec::new() }
    }
}

impl<T> Channels<T> {
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

    /// The channel's; made anew if it was never used.
    #[inline]
    pub fn get_or(&mut self, channel: u16, new: impl FnOnce() -> T) -> &mut T {
        let at = usize::from(channel) / PAGE;
        if at >= self.pages.len() {
            self.pages.resize_with(at + 1, || None);
        }
        let page = self.pages[at].get_or_insert_with(|| Box::new([const { None }; PAGE]));
        page[usize::from(channel) % PAGE].get_or_insert_with(|| Box::new(new()))
    }

    /// All of them, in order.
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
    fn what_was_put_is_found() {
        let mut table = Channels::default();
        for channel in [0, 63, 64, 65_535, 64] {
            *table.get_or(channel, || 0) += 1;
        }
        assert_eq!(
            table.iter().map(|(c, n)| (c, *n)).collect::<Vec<_>>(),
            [(0, 1), (63, 1), (64, 2), (65_535, 1)]
        );
        assert!(table.get(1).is_none() && table.get_mut(700).is_none());
    }
}
