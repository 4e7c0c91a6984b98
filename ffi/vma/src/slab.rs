//! A table whose slots are used again while their generations are not, so that a stale name is recognised.

/// Names an entry of a [`Slab`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The slot; dense.
    pub(crate) index: u32,
    /// Which use of the slot; never zero.
    pub(crate) generation: u32,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), len: 0 }
    }

    // (So that large values are built where they stay.)
    #[inline(always)]
    pub(crate) fn insert(&mut self, value: T) -> Key {
        self.len += 1;
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Key { index, generation: slot.generation };
        }
        let index = u32::try_from(self.slots.len()).expect("descriptors are fewer than 2^32");
        self.slots.push(Slot { generation: 1, value: Some(value) });
        Key { index, generation: 1 }
    }

    /// Enters a value under a name that it had in another table (a parent's, after a fork). The slot must be free.
    pub(crate) fn insert_at(&mut self, key: Key, value: T) {
        while self.slots.len() <= key.index as usize {
            self.free.push(u32::try_from(self.slots.len()).expect("descriptors are fewer than 2^32"));
            self.slots.push(Slot { generation: 1, value: None });
        }
        self.free.retain(|&index| index != key.index);
        self.slots[key.index as usize] = Slot { generation: key.generation, value: Some(value) };
        self.len += 1;
    }

    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn find_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    /// The entry in a slot, whatever its generation.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    /// The entry in a slot, whatever its generation.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    /// The name of the entry in a slot.
    #[inline]
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize)?;
        slot.value.as_ref().map(|_| Key { index, generation: slot.generation })
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1).max(1);
        self.free.push(key.index);
        self.len -= 1;
        Some(value)
    }

    /// As [`Slab::remove`], of what nobody wants any more: it is dropped where it is. Whether it was there.
    #[inline]
    pub(crate) fn discard(&mut self, key: Key) -> bool {
        match self.slots.get_mut(key.index as usize) {
            Some(slot) if slot.generation == key.generation && slot.value.is_some() => {
                slot.value = None;
                slot.generation = slot.generation.wrapping_add(1).max(1);
                self.free.push(key.index);
                self.len -= 1;
                true
            }
            _ => false,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots
            .iter()
            .zip(0u32..)
            .filter_map(|(slot, index)| slot.value.as_ref().map(|value| (Key { index, generation: slot.generation }, value)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.slots.iter_mut().zip(0u32..).filter_map(|(slot, index)| {
            let generation = slot.generation;
            slot.value.as_mut().map(|value| (Key { index, generation }, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut slab = Slab::new();
        let a = slab.insert('a');
        assert_eq!(slab.remove(a), Some('a'));
        let b = slab.insert('b');
        assert_eq!(a.index, b.index, "slots are used again");
        assert_eq!(slab.find(a), None);
        assert_eq!(slab.remove(a), None);
        assert!(!slab.discard(a));
        assert_eq!(slab.find(b), Some(&'b'));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn what_is_discarded_is_dropped_and_its_slot_used_again() {
        let mut slab = Slab::new();
        let value = std::rc::Rc::new(());
        let key = slab.insert(value.clone());
        assert!(slab.discard(key) && !slab.discard(key));
        assert_eq!((std::rc::Rc::strong_count(&value), slab.len()), (1, 0));
        let other = slab.insert(value);
        assert!(other.index == key.index && other != key);
    }

    #[test]
    fn a_value_keeps_its_name_in_another_table() {
        let mut slab = Slab::new();
        let key = Key { index: 2, generation: 7 };
        slab.insert_at(key, 'x');
        assert_eq!(slab.find(key), Some(&'x'));
        let others = [slab.insert('y'), slab.insert('z')].map(|k| k.index);
        assert!(!others.contains(&2), "{others:?}");
    }

    #[test]
    fn iteration_sees_what_is_there() {
        let mut slab = Slab::new();
        let keys = ['a', 'b', 'c'].map(|c| slab.insert(c));
        slab.remove(keys[1]);
        assert_eq!(slab.iter().map(|(k, &c)| (k.index, c)).collect::<Vec<_>>(), [(0, 'a'), (2, 'c')]);
        assert_eq!(slab.key_at(1), None);
        assert_eq!(slab.key_at(2), Some(keys[2]));
    }
}
