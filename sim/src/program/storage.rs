//! A disk: a map that outlives the program which wrote it.

use core::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A program's durable map from keys to values, both bytes. What was put there is read at once; a crash of the host takes it
/// back unless [`Storage::sync`] came in between, and until the host starts again nothing can be written. (A killed program leaves
/// what it wrote: the host's cache is not the program's.)
///
/// An [`App`](crate::App) can have one, too: it keeps a clone, and calls [`Storage::crash`] in [`App::crash`](crate::App::crash).
#[derive(Clone, Debug, Default)]
pub struct Storage(Rc<RefCell<Disk>>);

#[derive(Debug, Default)]
struct Disk {
    cached: Map,
    durable: Map,
    /// Its host is down.
    dark: bool,
}

impl Storage {
    /// Writes `value` under `key`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) {
        self.write(|map| drop(map.insert(key.as_ref().to_vec(), value.into())));
    }

    /// What stands under `key`.
    pub fn value(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        self.0.borrow().cached.get(key.as_ref()).cloned()
    }

    /// Takes `key` away.
    pub fn remove(&self, key: impl AsRef<[u8]>) {
        self.write(|map| drop(map.remove(key.as_ref())));
    }

    /// Everything there is, in the order of the keys.
    pub fn entries(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.0.borrow().cached.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Makes everything that was written durable (fsync).
    pub fn sync(&self) {
        let Disk { cached, durable, .. } = &mut *self.0.borrow_mut();
        durable.clone_from(cached);
    }

    /// Power fails: what was not synced is gone.
    pub fn crash(&self) {
        let Disk { cached, durable, .. } = &mut *self.0.borrow_mut();
        cached.clone_from(durable);
    }

    /// It fails for as long as the host is down.
    pub(super) fn lose_power(&self) {
        self.crash();
        self.0.borrow_mut().dark = true;
    }

    /// The host starts.
    pub(super) fn power_up(&self) {
        self.0.borrow_mut().dark = false;
    }

    fn write(&self, change: impl FnOnce(&mut Map)) {
        let disk = &mut *self.0.borrow_mut();
        if !disk.dark {
            change(&mut disk.cached);
        }
    }
}
