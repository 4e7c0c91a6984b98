use super::*;
use crate::rings::RingSet;

const WANTED: u32 = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32;

fn id() -> FlowId {
    FlowId { ring: 0, index: 3, generation: 1 }
}

#[test]
fn the_kernel_watches_only_its_own_half() {
    assert_eq!(Source::Fresh.kernel_mask(WANTED), None, "it would report a hang-up");
    assert_eq!(Source::Ring(id()).kernel_mask(WANTED), None);
    assert_eq!(Source::Both(None).kernel_mask(WANTED), Some(WANTED));
    assert_eq!(Source::Kernel.kernel_mask(WANTED), Some(WANTED));
    let half = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
    assert_eq!(Source::Both(Some(id())).kernel_mask(WANTED), Some(half), "the ring says when there is room to send");
}

#[test]
fn readiness_has_the_kernels_synonyms() {
    assert_eq!(expand(libc::EPOLLIN as u32), (libc::EPOLLIN | libc::EPOLLRDNORM) as u32);
    assert_eq!(expand((libc::EPOLLOUT | libc::EPOLLHUP) as u32), (libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLHUP) as u32);
    assert_eq!(expand(libc::EPOLLRDHUP as u32), libc::EPOLLRDHUP as u32);
}

#[test]
fn a_sleeper_is_signalled_once() {
    let event = ringway_host::EventFd::new().expect("eventfd");
    let mut state = State::default();
    let key = state.sleepers.insert(Sleeper {
        waker: event.fd(),
        signalled: false,
        told_to_doze: false,
        rings: RingSet::NONE,
        leads: RingSet::NONE,
    });
    let readable = || {
        let mut fds = [libc::pollfd { fd: event.fd(), events: libc::POLLIN, revents: 0 }];
        ringway_host::sleep::ppoll(&mut fds, Some(core::time::Duration::ZERO), None).expect("ppoll") == 1
    };
    assert!(!readable());
    state.wake(key.index);
    assert!(!readable(), "not under the lock");
    state.take_wakes().expect("there is one").signal();
    assert!(readable() && state.take_wakes().is_none());
    event.clear();
    state.wake(key.index);
    assert!(state.take_wakes().is_none(), "it is awake already");
}
