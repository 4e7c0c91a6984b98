//! Where a wheel's entries lie: in pieces that never move, so that more of them stop nobody for longer than one piece takes, and what was once used is used again. A slot
//! of the wheel is a list of them. So whoever sets timers allocates nothing once as many were set as ever are at a time.

/// How many entries a piece has.
const PIECE: usize = 256;
/// No entry.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<T> {
    pub(super) token: T,
    pub(super) tick: u64,
}

#[derive(Clone, Copy, Debug)]
struct Node<T> {
    entry: Entry<T>,
    /// The one behind it in its list.
    next: u32,
}

/// The entries of a slot, in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE };

    pub(super) fn is_empty(self) -> bool {
        self.first == NONE
    }
}

/// All entries of a wheel.
#[derive(Debug)]
pub(super) struct Entries<T> {
    pieces: Vec<Vec<Node<T>>>,
    /// Those that are in no list.
    free: List,
    used: usize,
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self { pieces: Vec::new(), free: List::EMPTY, used: 0 }
    }
}

impl<T: Copy> Entries<T> {
    /// How many are in lists.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// How many pieces there are.
    #[cfg(test)]
    pub(super) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    #[inline]
    fn node(&mut self, index: u32) -> &mut Node<T> {
        &mut self.pieces[index as usize / PIECE][index as usize % PIECE]
    }

    /// Adds an entry to the end of a list.
    #[inline]
    pub(super) fn push(&mut self, list: &mut List, entry: Entry<T>) {
        let node = Node { entry, next: NONE };
        let index = match self.free.first {
            NONE => self.more(node),
            index => {
                let place = self.node(index);
                let next = core::mem::replace(place, node).next;
                self.free.first = next;
                index
            }
        };
        self.used += 1;
        self.append(list, index);
    }

    /// One place more, with a node in it.
    #[cold]
    fn more(&mut self, node: Node<T>) -> u32 {
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        let before = (self.pieces.len() - 1) * PIECE;
        let piece = self.pieces.last_mut().expect("there is one with room");
        piece.push(node);
        // (Four thousand million timers have no room in any memory.)
        u32::try_from(before + piece.len() - 1).expect("fewer than 2^32 timers")
    }

    #[inline]
    fn append(&mut self, list: &mut List, index: u32) {
        match list.last {
            NONE => list.first = index,
            last => self.node(last).next = index,
        }
        list.last = index;
    }

    /// Takes the first one out of a list.
    #[inline]
    pub(super) fn pop(&mut self, list: &mut List) -> Option<Entry<T>> {
        if list.is_empty() {
            return None;
        }
        let index = list.first;
        let free = self.free.first;
        let node = self.node(index);
        let Node { entry, next } = *node;
        node.next = free;
        self.free.first = index;
        list.first = next;
        if next == NONE {
            list.last = NONE;
        }
        self.used -= 1;
        Some(entry)
    }

    /// Takes those out of a list of which that is said.
    pub(super) fn take_out(&mut self, list: &mut List, mut is_out: impl FnMut(T) -> bool) {
        let mut rest = core::mem::replace(list, List::EMPTY);
        while let Some(entry) = self.pop(&mut rest) {
            if !is_out(entry.token) {
                self.push(list, entry);
            }
        }
    }

    /// Gives memory back, if there are no entries left. (A crowd that has gone had many.)
    pub(super) fn release(&mut self) {
        if self.used == 0 && self.pieces.len() > 1 {
            self.pieces.truncate(1);
            self.pieces[0].clear();
            self.free = List::EMPTY;
        }
    }
}
