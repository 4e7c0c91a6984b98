//! Things by the numbers that a device gave them.

use core::cell::Cell;

/// What has a number each. The one that was asked for last is mostly asked for again: a program's calls about one connection follow each other.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    /// Invariant: numbers ascend.
    all: Vec<(u32, Box<T>)>,
    /// Where the one is that was asked for last, unless others came or went away.
    last: Cell<usize>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { all: Vec::new(), last: Cell::new(0) }
    }
}

impl<T> Numbered<T> {
    #[inline(always)]
    fn at(&self, number: u32) -> Option<usize> {
        let last = self.last.get();
        if self.all.get(last).is_some_and(|(of_last, _)| *of_last == number) {
            return Some(last);
        }
        self.find(number)
    }

    #[inline(never)]
    fn find(&self, number: u32) -> Option<usize> {
        let at = self.all.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.last.set(at);
        Some(at)
    }

    #[inline(always)]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.at(number).map(|at| &*self.all[at].1)
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.at(number).map(|at| &mut *self.all[at].1)
    }

    #[inline(always)]
    pub(crate) fn has(&self, number: u32) -> bool {
        self.at(number).is_some()
    }

    /// Puts one in, in place of what had its number.
    pub(crate) fn insert(&mut self, number: u32, value: T) {
        match self.all.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => *self.all[at].1 = value,
            Err(at) => self.all.insert(at, (number, Box::new(value))),
        }
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.at(number).map(|at| *self.all.remove(at).1)
    }

    pub(crate) const fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.all.iter().map(|(number, value)| (*number, &**value))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.all.iter_mut().map(|(_, value)| &mut **value)
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_is_found_by_its_number_whichever_was_asked_for_last_and_went_away() {
        let (mut all, mut model) = (Numbered::default(), BTreeMap::new());
        // (Numbers of a device come in any order.)
        for step in 0..2000_u32 {
            let number = step.wrapping_mul(2_654_435_761) >> 26;
            if step % 3 == 2 {
                assert_eq!(all.remove(number), model.remove(&number));
            } else {
                all.insert(number, step);
                model.insert(number, step);
            }
            let asked = step.wrapping_mul(40_503) % 64;
            assert_eq!((all.get(asked), all.has(asked)), (model.get(&asked), model.contains_key(&asked)));
            assert_eq!(all.get_mut(asked), model.get_mut(&asked));
            assert!(all.len() == model.len() && all.iter().eq(model.iter().map(|(number, value)| (*number, value))));
        }
        all.values_mut().for_each(|value| *value = 7);
        assert!(all.len() > 5 && all.iter().all(|(_, value)| *value == 7));
        all.clear();
        assert_eq!((all.len(), all.get(3)), (0, None));
    }
}
