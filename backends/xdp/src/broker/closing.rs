//! Closing what a program has passed may take as long as it likes: a socket that lingers (SO_LINGER), a file of a file system of its own. So it is closed by a thread, of
//! which each user has a few at a time.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of one user's.
const CLOSING_MAX: usize = 16;

/// How many messages' descriptors are being closed, by users.
#[derive(Clone, Debug, Default)]
pub(super) struct Closing(Arc<Mutex<BTreeMap<u32, usize>>>);

impl Closing {
    /// Closes what a user's program has passed. Whether that is in order: else there are too many.
    pub(super) fn close(&self, uid: u32, descriptors: Vec<OwnedFd>) -> bool {
        if descriptors.is_empty() {
            return true;
        }
        *self.counts().entry(uid).or_default() += 1;
        let (own, count) = (self.clone(), self.count(uid));
        let work = move || {
            drop(descriptors);
            own.has_closed(uid);
        };
        // (Where there is no thread to be had, they were closed by that.)
        if std::thread::Builder::new().name("closing".to_owned()).spawn(work).is_err() {
            self.has_closed(uid);
        }
        count <= CLOSING_MAX
    }

    fn has_closed(&self, uid: u32) {
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(&uid) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&uid);
            }
        }
    }

    /// How many of that user are.
    pub(super) fn count(&self, uid: u32) -> usize {
        self.counts().get(&uid).copied().unwrap_or(0)
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
