//! What rings of cards and interfaces have in common before the host: one process's, whose peers see neither its memory nor its processors.
//!
//! What comes for such a ring makes descriptors of the kernel's readable, and stays so until it is taken. A ring's owner sleeps on an epoll instance over these
//! ([`CardSleep`]), and what else the host asks is answered alike on all of them ([`CardQueues`]).

use core::cell::Cell;
use std::io;
use std::os::fd::RawFd;

use ringway_stack::device::Queues;

use crate::queues::SLEEPER;
use crate::{EventFd, Fd, HostQueues, sleep};

/// What the owner of a ring sleeps on: an epoll instance over what frames come by, which is in it for as long as the ring is armed, over what counts always, and over
/// what threads of the process wake its one sleeper by.
#[derive(Debug)]
pub struct CardSleep {
    epoll: Fd,
    sleeper: EventFd,
    /// By which frames come.
    frames: Box<[RawFd]>,
    is_armed: bool,
    sleeper_is: Cell<Sleeper>,
}

/// The thread that sleeps in epoll_wait, which takes back itself what wakes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sleeper {
    #[default]
    Nobody,
    /// (The ring may be armed and disarmed by others meanwhile.)
    Asleep,
    /// Since the ring was disarmed last.
    Awake,
}

impl CardSleep {
    /// Over the descriptors that frames come by, disarmed, and those that count whether the ring is armed or not. All of them stay open as long as the value is used.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM, ENOSPC: what epoll_create1(2) and epoll_ctl(2) say.
    pub fn new(frames: impl Iterator<Item = RawFd>, always: &[RawFd]) -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let epoll = Fd::make(|| unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) })?;
        let sleep = Self { epoll, sleeper: EventFd::new()?, frames: frames.collect(), is_armed: false, sleeper_is: Cell::default() };
        sleep.control(libc::EPOLL_CTL_ADD, sleep.sleeper.fd(), libc::EPOLLIN, SLEEPER)?;
        for (at, fd) in (0..).zip(&sleep.frames) {
            sleep.control(libc::EPOLL_CTL_ADD, *fd, 0, at)?;
        }
        for (at, fd) in (sleep.frames.len() as u64..).zip(always) {
            sleep.control(libc::EPOLL_CTL_ADD, *fd, libc::EPOLLIN, at)?;
        }
        Ok(sleep)
    }

    fn control(&self, what: i32, of: RawFd, events: i32, data: u64) -> io::Result<()> {
        sleep::epoll_ctl(self.epoll.raw(), what, of, Some(libc::epoll_event { events: events as u32, u64: data }))
    }

    /// Whether what comes makes the descriptor readable. Whether that is a change.
    pub fn set_armed(&mut self, on: bool) -> bool {
        if core::mem::replace(&mut self.is_armed, on) == on {
            return false;
        }
        // Who wakes a sleeper does so when it has let go of all locks, and so perhaps too late. Those that sleep otherwise would find that wake-up, and nobody takes it back.
        if !on {
            match self.sleeper_is.get() {
                Sleeper::Nobody => self.sleeper.clear(),
                Sleeper::Asleep => {}
                Sleeper::Awake => self.sleeper_is.set(Sleeper::Nobody),
            }
        }
        let events = if on { libc::EPOLLIN } else { 0 };
        for (at, fd) in (0..).zip(&self.frames) {
            if let Err(error) = self.control(libc::EPOLL_CTL_MOD, *fd, events, at) {
                tracing::error!("frames cannot be slept on: {error}");
            }
        }
        true
    }

    /// Frames come by these descriptors from now on, or by none. To be called while the former ones are open.
    ///
    /// # Errors
    /// As [`CardSleep::new`]; those that could be had are there.
    pub fn set_frames(&mut self, frames: impl Iterator<Item = RawFd>) -> io::Result<()> {
        for fd in core::mem::take(&mut self.frames) {
            // (One that was closed already is there no longer.)
            let _ = sleep::epoll_ctl(self.epoll.raw(), libc::EPOLL_CTL_DEL, fd, None);
        }
        let events = if self.is_armed { libc::EPOLLIN } else { 0 };
        self.frames = frames.collect();
        (0..).zip(&self.frames).try_for_each(|(at, fd)| self.control(libc::EPOLL_CTL_ADD, *fd, events, at))
    }

    /// The epoll instance.
    pub fn fd(&self) -> RawFd {
        self.epoll.raw()
    }
}

/// Queues of a card or an interface, whose [`HostQueues`] are answered for them.
pub trait CardQueues: Queues {
    /// What their owner sleeps on: [`Queues::wait_fd`] is its descriptor.
    fn sleep(&self) -> &CardSleep;

    /// As [`HostQueues::queue_frames`].
    fn frames(&self) -> usize;

    /// As [`HostQueues::tx_buffers`].
    fn send_buffers(&self) -> (usize, usize);

    /// As [`HostQueues::copied_bytes`].
    fn bytes_copied(&self) -> u64;
}

impl<Q: CardQueues> HostQueues for Q {
    fn begin_sleep(&mut self) -> RawFd {
        self.sleep().sleeper_is.set(Sleeper::Asleep);
        self.sleep().sleeper.fd()
    }

    fn is_of_sleeper(event: u64) -> bool {
        event == SLEEPER
    }

    /// What has come stays readable until it is taken, or until the ring is disarmed, which follows: nothing is to be asked for once more.
    fn slept(&mut self, _: impl ExactSizeIterator<Item = u64>) {}

    fn clear_sleeper(&mut self) {
        self.sleep().sleeper.clear();
    }

    fn end_sleep(&mut self) {
        self.sleep().sleeper_is.set(Sleeper::Awake);
    }

    /// The card's peers do not see each other's processors.
    fn claim_core(&mut self, _: usize) -> bool {
        true
    }

    fn release_core(&mut self, _: usize) {}

    /// (Each frame is signalled or none: in a pause, none, and what comes waits in the queue.)
    fn pause(&mut self) {}

    fn resume(&mut self) -> bool {
        self.rx_ready()
    }

    fn queue_frames(&self) -> usize {
        self.frames()
    }

    fn tx_buffers(&mut self) -> (usize, usize) {
        self.send_buffers()
    }

    fn copied_bytes(&self) -> u64 {
        self.bytes_copied()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn is_readable(sleep: &CardSleep) -> bool {
        let mut fds = [libc::pollfd { fd: sleep.fd(), events: libc::POLLIN, revents: 0 }];
        sleep::ppoll(&mut fds, Some(Duration::ZERO), None).unwrap() > 0
    }

    #[test]
    fn frames_count_while_it_is_armed_and_the_rest_always() {
        let [first, second, always] = [(); 3].map(|()| EventFd::new().unwrap());
        let mut sleep = CardSleep::new([&first, &second].into_iter().map(EventFd::fd), &[always.fd()]).unwrap();
        second.signal();
        assert!(!is_readable(&sleep), "it is not armed");
        assert!(sleep.set_armed(true) && !sleep.set_armed(true) && is_readable(&sleep), "what came before counts too");
        assert!(sleep.set_armed(false) && !sleep.set_armed(false) && !is_readable(&sleep));
        always.signal();
        assert!(is_readable(&sleep));
        always.clear();
        sleep.sleeper.signal();
        assert!(is_readable(&sleep));
        sleep.sleeper.clear();
        assert!(sleep.set_armed(true) && is_readable(&sleep));
        sleep.set_frames(core::iter::once(first.fd())).unwrap();
        assert!(!is_readable(&sleep), "of what came by the second nobody hears any more");
        first.signal();
        assert!(is_readable(&sleep) && sleep.set_armed(false) && !is_readable(&sleep));
        sleep.set_frames(core::iter::empty()).unwrap();
        assert!(sleep.set_armed(true) && !is_readable(&sleep));
    }
    /// (A thread would have found the descriptor readable for ever that sleeps on several rings, or the progress thread.)
    #[test]
    fn a_wake_up_that_comes_too_late_wakes_others_once() {
        let mut sleep = CardSleep::new(core::iter::empty(), &[]).unwrap();
        sleep.set_armed(true);
        sleep.sleeper_is.set(Sleeper::Asleep);
        sleep.sleeper_is.set(Sleeper::Awake);
        sleep.set_armed(false);
        sleep.sleeper.signal();
        assert!(sleep.set_armed(true) && is_readable(&sleep));
        assert!(sleep.set_armed(false) && !is_readable(&sleep));
    }

    /// (Others poll the ring, and arm it again, while it sleeps.)
    #[test]
    fn a_sleepers_wake_up_is_its_own_to_take_back() {
        let mut sleep = CardSleep::new(core::iter::empty(), &[]).unwrap();
        sleep.set_armed(true);
        sleep.sleeper_is.set(Sleeper::Asleep);
        sleep.set_armed(false);
        sleep.set_armed(true);
        sleep.sleeper.signal();
        assert!(sleep.set_armed(false) && is_readable(&sleep));
        sleep.sleeper_is.set(Sleeper::Awake);
        assert!(sleep.set_armed(true) && sleep.set_armed(false) && is_readable(&sleep));
    }
}
