//! The progress thread: greets who comes, and looks after the plane while the program computes.

use core::time::Duration;
use std::io;

use ringway_host::{Plan, Progress, Work};

use crate::devices::Fabric;
use crate::library::{self, Library};

/// Within so long of a call there is another one, perhaps, which polls as well: until then nobody need be woken.
const DOZE: Duration = Duration::from_millis(2);

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

struct Watcher(Fabric);

/// Starts it.
///
/// # Errors
/// The system's, for want of a descriptor or a thread.
pub(crate) fn start(fabric: Fabric) -> io::Result<Progress> {
    Progress::start("rsocket", Watcher(fabric))
}

impl Work for Watcher {
    fn turn(&mut self, _: bool) -> Plan {
        self.0.service();
        let mut plan = Plan::default();
        if let Some(library) = library::lock().as_deref_mut() {
            if library.take_udp() {
                library.sleepers.wake();
            }
            plan = watch(library);
            plan.descriptors.push(library.udp());
        }
        plan.descriptors.push(self.0.service_fd());
        plan
    }
}

fn watch(library: &mut Library) -> Plan {
    // (Who has memory mapped for its peers may look at that memory alone, and make no call.)
    if !library.has_mappings() && library.now().since(library.called_at) < DOZE {
        library.watch = Watch::Looks;
        return Plan { descriptors: Vec::new(), timeout: Some(DOZE) };
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
