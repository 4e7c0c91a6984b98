use std::sync::mpsc::{Sender, channel};

use super::*;

const LONG: Duration = Duration::from_secs(20);

/// Reports each turn (whether it is called, and whether signals are blocked), and sleeps on what it was given.
struct Reporter {
    turns: Sender<(bool, bool)>,
    plan: Plan,
}

impl Work for Reporter {
    fn turn(&mut self, is_called: bool) -> Plan {
        // SAFETY: a null set is allowed: the mask is only read.
        let blocked = unsafe {
            let mut mask: libc::sigset_t = core::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), &raw mut mask);
            libc::sigismember(&raw const mask, libc::SIGTERM) == 1
        };
        let _ = self.turns.send((is_called, blocked));
        self.plan.clone()
    }
}

#[test]
fn turns_come_at_the_start_by_waking_by_descriptor_and_by_time() {
    let (turns, turned) = channel();
    let ready = EventFd::new().expect("eventfd");
    let plan = Plan { descriptors: vec![-1, ready.fd()], timeout: None };
    let progress = Progress::start("test", Reporter { turns, plan }).expect("thread");
    assert_eq!(turned.recv_timeout(LONG), Ok((true, true)), "signals are blocked");
    progress.wake();
    assert_eq!(turned.recv_timeout(LONG), Ok((true, true)));
    assert!(turned.recv_timeout(Duration::from_millis(30)).is_err(), "nothing to do: it sleeps");
    static RAN: AtomicBool = AtomicBool::new(false);
    progress.request(|| RAN.store(true, Ordering::Relaxed));
    assert!(turned.recv_timeout(LONG).is_ok());
    assert!(RAN.load(Ordering::Relaxed), "an errand runs before the turn that it causes");
    ready.signal();
    assert_eq!(turned.recv_timeout(LONG), Ok((true, true)));
    drop(progress);

    let (turns, turned) = channel();
    let plan = Plan { descriptors: Vec::new(), timeout: Some(Duration::from_millis(1)) };
    let _progress = Progress::start("test", Reporter { turns, plan }).expect("thread");
    let called = [(); 3].map(|()| turned.recv_timeout(LONG).map(|(is_called, _)| is_called));
    assert_eq!(called, [Ok(true), Ok(false), Ok(false)], "its time came, and nothing else");
}

#[test]
fn the_starters_signals_stay_as_they_were() {
    let (turns, _turned) = channel();
    let _progress = Progress::start("test", Reporter { turns, plan: Plan::default() }).expect("thread");
    // SAFETY: a null set is allowed: the mask is only read.
    let blocked = unsafe {
        let mut mask: libc::sigset_t = core::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), &raw mut mask);
        libc::sigismember(&raw const mask, libc::SIGTERM)
    };
    assert_eq!(blocked, 0);
}
