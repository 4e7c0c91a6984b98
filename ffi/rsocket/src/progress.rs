//! The progress thread: greets who comes, and looks after the plane while the program computes.

use core::time::Duration;
use std::io;

use ringway_devices::messages::Fabric;
use ringway_host::{Plan, Progress, Work};

use crate::library::{self, Library};

/// Within so long of a call there is another one, perhaps, which polls as well: until then nobody need be woken.
const DOZE: Duration = Duration::from_millis(2);
/// The same where nothing but connections' ends waits for that ([`ringway_devices::messages::Plane::is_patient`]).
const LONG_DOZE: Duration = Duration::from_millis(20);

/// For so long it goes away again where somebody is in a call just then, each time.
const BUSY_MAX: Duration = Duration::from_millis(16);

/// What the progress thread is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// It looks every now and then.
    Looks,
    /// It sleeps on the plane, which is armed. Whoever disarms the plane calls it.
    Sleeps,
    /// Threads in calls sleep on the plane, and it sleeps beside that. Whoever was the last of them calls it.
    Relies,
}

struct Watcher {
    fabric: Fabric,
    is_prompt: bool,
    /// For how long it has found somebody in a call each time.
    busy: Duration,
}

/// The kernel's shortest turn, in nanoseconds.
const TURN_NS: u64 = 100_000;

/// `struct sched_attr` in its first form (SCHED_ATTR_SIZE_VER0).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

impl SchedAttr {
    const SIZE: u32 = size_of::<Self>() as u32;

    /// The calling thread's.
    fn current() -> Option<Self> {
        let mut attr = Self { size: Self::SIZE, policy: 0, flags: 0, nice: 0, priority: 0, runtime_ns: 0, deadline_ns: 0, period_ns: 0 };
        // SAFETY: they go to memory that has as many bytes as are said.
        let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, Self::SIZE, 0) };
        (got == 0).then_some(attr)
    }
}

/// Has the kernel run this thread as soon as it is woken, though a thread of the program computes on its core: who asks for short turns goes before those that
/// have long ones (sched_setattr(2), of any thread from Linux 6.12 on; before that it changes nothing).
fn be_prompt() {
    // (A program in real time keeps what it has.)
    let Some(attr) = SchedAttr::current().filter(|attr| attr.policy == libc::SCHED_OTHER as u32) else { return };
    let attr = SchedAttr { size: SchedAttr::SIZE, runtime_ns: TURN_NS, flags: 0, ..attr };
    // SAFETY: as many bytes as they say themselves. What is refused leaves all as it was.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

/// Starts it.
///
/// # Errors
/// The system's, for want of a descriptor or a thread.
pub(crate) fn start(fabric: Fabric) -> io::Result<Progress> {
    Progress::start("rsocket", Watcher { fabric, is_prompt: false, busy: Duration::ZERO })
}

impl Work for Watcher {
    fn turn(&mut self, is_called: bool) -> Plan {
        if !core::mem::replace(&mut self.is_prompt, true) {
            be_prompt();
        }
        self.fabric.service();
        let mut plan = Plan::default();
        let is_waited_for = is_called || self.busy >= BUSY_MAX;
        let guard = if is_waited_for { Some(library::lock()) } else { library::try_lock() };
        let Some(mut guard) = guard else {
            // (Who calls polls; and a program that calls all the while would have to let us in each time, by system calls.)
            let doze = doze(self.fabric.is_patient());
            self.busy += doze;
            return Plan { descriptors: vec![self.fabric.service_fd()], timeout: Some(doze) };
        };
        self.busy = Duration::ZERO;
        if let Some(library) = guard.as_deref_mut() {
            if is_called && library.watch != Watch::Looks {
                library.plane.on_woken();
            }
            if library.take_udp() {
                library.sleepers.wake();
            }
            plan = watch(library);
            plan.descriptors.push(library.udp());
        }
        drop(guard);
        plan.descriptors.push(self.fabric.service_fd());
        plan
    }
}

const fn doze(is_patient: bool) -> Duration {
    if is_patient { LONG_DOZE } else { DOZE }
}

fn watch(library: &mut Library) -> Plan {
    // (Who has memory mapped for its peers may look at that memory alone, and make no call.)
    let doze = doze(library.plane.is_patient());
    if !library.has_mappings() && library.now().since(library.called_at) < doze {
        library.watch = Watch::Looks;
        return Plan { descriptors: Vec::new(), timeout: Some(doze) };
    }
    library.poll_unasked();
    if !library.arm() {
        library.watch = Watch::Looks;
        return Plan { descriptors: Vec::new(), timeout: Some(Duration::ZERO) };
    }
    let descriptors = if library.sleepers.is_empty() {
        library.watch = Watch::Sleeps;
        vec![Fabric::wait_fd(&mut library.plane)]
    } else {
        library.watch = Watch::Relies;
        Vec::new()
    };
    library.watch_until = library.deadline();
    let now = library.now();
    Plan { descriptors, timeout: library.watch_until.map(|at| at.since(now)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_thread_has_short_turns_and_else_what_it_had() {
        std::thread::spawn(|| {
            let before = SchedAttr::current().expect("Linux has it since 3.14");
            be_prompt();
            let after = SchedAttr::current().expect("as before");
            assert_eq!((before.policy, before.nice, before.priority), (after.policy, after.nice, after.priority));
            // (Before Linux 6.12 there are no such turns.)
            assert!(after.runtime_ns == TURN_NS || after.runtime_ns == before.runtime_ns, "{after:?}");
        })
        .join()
        .expect("as it should be");
    }
}
