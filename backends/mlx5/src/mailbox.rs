//! What happens to a card beside frames, and the thread that hears of it: the library's asynchronous events, which come by a descriptor that nobody wants to look
//! at with each frame.

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rdma_core_sys as sys;
use ringway_host::{Blocked, EventFd, sleep};
use ringway_stack::device::DeviceEvent;

use crate::mutants::{self, Mutant};
use crate::verbs::Context;

/// What of a ring has failed, as bits.
pub(crate) const SEND_FAILED: u8 = 1;
pub(crate) const RECEIVE_FAILED: u8 = 2;
/// The completion queue of receives, and with it the receive queue.
pub(crate) const RECEIVE_LOST: u8 = 4;

/// Events of one ring that it has not taken.
#[derive(Debug)]
pub(crate) struct Mailbox {
    /// There are some. (What a wait that spins looks at.)
    is_full: AtomicBool,
    events: Mutex<VecDeque<DeviceEvent>>,
    failed: AtomicU8,
    /// Wakes who sleeps on the ring.
    pub(crate) waker: EventFd,
}

impl Mailbox {
    fn new() -> io::Result<Self> {
        let (is_full, failed) = (AtomicBool::new(false), AtomicU8::new(0));
        Ok(Self { is_full, events: Mutex::default(), failed, waker: EventFd::new()? })
    }

    /// Whether something is in it.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    pub(crate) fn put(&self, event: DeviceEvent) {
        locked(&self.events).push_back(event);
        self.wake();
    }

    fn put_failure(&self, what: u8) {
        // (Under the lock by which [`Self::take`] finds that nothing is left.)
        let _events = locked(&self.events);
        self.failed.fetch_or(what, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        self.is_full.store(true, Ordering::Release);
        self.waker.signal();
    }

    /// What has failed since this was asked last.
    pub(crate) fn take_failures(&self) -> u8 {
        self.failed.swap(0, Ordering::AcqRel)
    }

    /// What has failed is no more. (An object ends when its events have been handed back, so that none comes later.)
    pub(crate) fn forget(&self, what: u8) {
        self.failed.fetch_and(!what, Ordering::AcqRel);
    }

    /// The next event.
    pub(crate) fn take(&self) -> Option<DeviceEvent> {
        let mut events = locked(&self.events);
        let event = events.pop_front();
        if events.is_empty() && self.failed.load(Ordering::Acquire) == 0 {
            self.is_full.store(false, Ordering::Release);
            self.waker.clear();
        }
        event
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The rings' mailboxes, by their numbers.
#[derive(Debug, Default)]
struct Boxes {
    of: BTreeMap<u32, Arc<Mailbox>>,
    /// The card is gone: who comes late hears of it, too.
    is_gone: bool,
}

/// Who fills the mailboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// A thread of the card's.
    ByThread,
    /// Who calls [`Post::hear`].
    ByCaller,
}

/// The rings' mailboxes, and the thread that fills them, if one does.
#[derive(Debug)]
pub(crate) struct Post {
    boxes: Arc<Mutex<Boxes>>,
    context: Arc<Context>,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Post {
    /// Of an opened card.
    pub(crate) fn new(context: Arc<Context>, hearing: Hearing) -> io::Result<Self> {
        let mut post = Self { boxes: Arc::default(), context, stop: Arc::new(EventFd::new()?), thread: None };
        if hearing == Hearing::ByThread {
            let (context, boxes, stop) = (Arc::clone(&post.context), Arc::clone(&post.boxes), Arc::clone(&post.stop));
            // (The program's signals are for its own threads.)
            let _blocked = Blocked::new();
            post.thread = Some(std::thread::Builder::new().name("mlx5-events".into()).spawn(move || listen(&context, &boxes, &stop))?);
        }
        Ok(post)
    }

    /// Takes the events that are there.
    pub(crate) fn hear(&self) {
        take_events(&self.context, &self.boxes, false);
    }

    /// A ring's mailbox.
    pub(crate) fn open(&self, ring: u32) -> io::Result<Arc<Mailbox>> {
        let mailbox = Arc::new(Mailbox::new()?);
        let mut boxes = locked(&self.boxes);
        if boxes.is_gone {
            mailbox.put(DeviceEvent::Gone);
        }
        boxes.of.insert(ring, Arc::clone(&mailbox));
        Ok(mailbox)
    }

    /// The ring is no more.
    pub(crate) fn close(&self, ring: u32) {
        locked(&self.boxes).of.remove(&ring);
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the thread of the card's events has panicked");
        }
    }
}

/// Waits for events until `stop` is signalled, or until the card is gone.
fn listen(context: &Context, boxes: &Mutex<Boxes>, stop: &EventFd) {
    loop {
        let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [readable(context.async_fd()), readable(stop.fd())];
        match sleep::ppoll(&mut fds, None, None) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return tracing::error!("events of the card: {error}"),
            _ if fds[1].revents != 0 => return,
            _ => {}
        }
        // (When the card has been removed, no event is read any more, but an error: uverbs_main.c, `ib_uverbs_event_read` and `_poll`.)
        let is_removed = fds[0].revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0;
        if take_events(context, boxes, is_removed) {
            return;
        }
    }
}

/// Delivers the events that are there. Whether the card is gone, which all are told then.
fn take_events(context: &Context, boxes: &Mutex<Boxes>, is_removed: bool) -> bool {
    let mut is_gone = is_removed;
    while context.next_event(|event| is_gone |= deliver(event, &locked(boxes).of)) {}
    if is_gone {
        tracing::warn!("the card is gone");
        let mut boxes = locked(boxes);
        boxes.is_gone = true;
        boxes.of.values().for_each(|mailbox| mailbox.put(DeviceEvent::Gone));
    }
    is_gone
}

/// The number that an object was made with.
fn owner(context: *mut core::ffi::c_void) -> u32 {
    context.addr() as u32
}

/// Tells those whom an event is about. Whether the card is gone.
fn deliver(event: &sys::ibv_async_event, boxes: &BTreeMap<u32, Arc<Mailbox>>) -> bool {
    tracing::debug!("event {} of the card", event.event_type);
    let to_all = |event| boxes.values().for_each(|mailbox| mailbox.put(event));
    let to_one = |ring: u32, what| boxes.get(&ring).into_iter().for_each(|mailbox| mailbox.put_failure(what));
    if mutants::is(Mutant::FailuresUnheard) && event.event_type != sys::IBV_EVENT_DEVICE_FATAL {
        return false;
    }
    // SAFETY: which member of the element counts is the kind's to say (ibv_get_async_event(3)), and the object does not end before its events were handed back.
    unsafe {
        match event.event_type {
            sys::IBV_EVENT_PORT_ACTIVE => to_all(DeviceEvent::Link { up: true }),
            sys::IBV_EVENT_PORT_ERR => to_all(DeviceEvent::Link { up: false }),
            sys::IBV_EVENT_CQ_ERR => {
                let cq = event.element.cq;
                // (That of sends has no channel.)
                to_one(owner((*cq).cq_context), if (*cq).channel.is_null() { SEND_FAILED } else { RECEIVE_LOST });
            }
            sys::IBV_EVENT_QP_FATAL | sys::IBV_EVENT_QP_REQ_ERR | sys::IBV_EVENT_QP_ACCESS_ERR => {
                to_one(owner((*event.element.qp).qp_context), SEND_FAILED);
            }
            sys::IBV_EVENT_WQ_FATAL => to_one(owner((*event.element.wq).wq_context), RECEIVE_FAILED),
            sys::IBV_EVENT_DEVICE_FATAL => return !mutants::is(Mutant::GoneUnheard),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (A ring asks for what has failed, and then takes events until there are none. What fails in between is not asked for yet.)
    #[test]
    fn a_failure_that_is_told_before_the_mailbox_is_found_empty_is_not_forgotten() {
        let mailbox = Mailbox::new().expect("a descriptor");
        let is_waking = || {
            let mut fds = [libc::pollfd { fd: mailbox.waker.fd(), events: libc::POLLIN, revents: 0 }];
            sleep::ppoll(&mut fds, Some(core::time::Duration::ZERO), None).expect("a look") > 0
        };
        mailbox.put(DeviceEvent::Link { up: true });
        assert_eq!(mailbox.take_failures(), 0);
        mailbox.put_failure(RECEIVE_FAILED);
        assert_eq!(mailbox.take(), Some(DeviceEvent::Link { up: true }));
        assert!(mailbox.take().is_none() && mailbox.has_mail() && is_waking(), "the ring is to look once more");
        assert_eq!(mailbox.take_failures(), RECEIVE_FAILED);
        assert!(mailbox.take().is_none() && !mailbox.has_mail() && !is_waking());
    }
}
