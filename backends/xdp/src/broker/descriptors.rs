//! How many descriptors a broker may have open, and how many its users can have it have: who runs out of them serves nobody.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::events::Event;
use super::repair::REPAIRED_MAX;
use super::server::GUESTS_MAX;
use super::threads::HELD_MAX;
use super::wire::KERNELS_MAX;
use crate::card::QUEUES_MAX;

/// Its own: standard ones, of netlink, raw sockets, locks, and whatever the program around it has.
const OWN: u64 = 64;
/// Of an interface: its program and maps, and a ring that is on its way to a program.
const OF_INTERFACE: u64 = 8 + 2 * QUEUES_MAX as u64 + REPAIRED_MAX as u64;
/// What threads have of one user's, and one message more.
const OF_USER: u64 = (HELD_MAX + KERNELS_MAX) as u64;

/// Raises the limit as far as it may be, and says so if that is too little.
pub(super) fn raise_limit(interfaces: usize, users: usize, tell: &mut dyn FnMut(Event)) {
    let need = needed(interfaces as u64, users as u64);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // (None: no limit.)
    let have = match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(_) => current,
    };
    if let Some(have) = have.filter(|&have| have < need) {
        tell(Event::FewDescriptors { have, need });
    }
}

/// (Strangers are one user more, of whom nobody is listed.)
const fn needed(interfaces: u64, users: u64) -> u64 {
    OWN + interfaces * OF_INTERFACE + GUESTS_MAX as u64 + (users + 1) * OF_USER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_and_what_is_missing_is_told() {
        let before = getrlimit(Resource::Nofile);
        let mut told = Vec::new();
        raise_limit(1, 1, &mut |event| told.push(event.to_string()));
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
        assert!(told.is_empty() || before.maximum.is_some_and(|hard| hard < needed(1, 1)), "{told:?}");
        // (As many as nobody may have.)
        if let Some(hard) = before.maximum {
            let users = usize::try_from(hard / OF_USER).unwrap() + 1;
            raise_limit(1, users, &mut |event| told.push(event.to_string()));
            assert!(told.last().unwrap().contains(&format!("RLIMIT_NOFILE is {hard}")), "{told:?}");
        }
    }
}
