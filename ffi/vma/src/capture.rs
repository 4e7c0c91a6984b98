//! `ringway capture`: another process of the user is shown what passes on this one's rings, for as long as its dialogue lasts.
//!
//! It asks ring by ring, `capture RING BYTES SNAPLEN DEVICE`, and gets a descriptor of the memory that the ring's frames are written to from then on
//! ([`ringway_host::capture`]). A ring that begins later has such memory from its first frame on, which waits there until it is asked for. One capture at a
//! time has a ring. With the dialogue's end (it ends with its process, however that does) the rings are as they were before.

use ringway_devices::Fd;
use ringway_host::Clock;
use ringway_host::capture::{self, Writer};

use crate::process::{Offload, Process};
use crate::report;
use crate::rings::RINGS_MAX;

/// Who captures asks for all.
const _: () = assert!(RINGS_MAX <= capture::RINGS_MAX as usize);

/// A dialogue, by the member that it is with and its number there.
pub(crate) type Asker = (u64, u64);

/// A ring that is captured.
#[derive(Debug)]
pub(crate) struct Capture {
    ring: u16,
    by: Asker,
    wish: Wish,
    /// The memory, until it is asked for.
    memory: Option<Fd>,
}

/// What is asked for.
#[derive(Clone, Debug)]
struct Wish {
    bytes: usize,
    snaplen: usize,
    /// On this device alone, unless it is `*`.
    device: String,
}

impl Wish {
    fn is_for(&self, device: &str) -> bool {
        self.device == "*" || self.device == device
    }

    /// The memory: who writes to it, and a descriptor for who reads it.
    fn memory(&self, clock: Clock) -> Result<(Writer, Fd), &'static str> {
        let (writer, memory) = Writer::new(self.bytes, self.snaplen, clock).map_err(|error| {
            tracing::debug!("no memory to show a ring in: {error}");
            "no memory"
        })?;
        // SAFETY: plain integers; the descriptor is open.
        let fd = Fd::make(|| match unsafe { libc::fcntl(memory.raw(), libc::F_DUPFD_CLOEXEC, 0) } {
            -1 => Err(std::io::Error::last_os_error()),
            raw => Ok(raw),
        });
        fd.map(|fd| (writer, fd)).map_err(|_| "no descriptor")
    }
}

/// Answers what comes behind the word `capture`.
pub(crate) fn asked(process: &'static Process, by: Asker, words: &[&str]) -> (String, Vec<Fd>) {
    match show(process, by, words) {
        Ok((answer, fd)) => (answer, vec![fd]),
        Err(why) => (why.to_owned(), Vec::new()),
    }
}

fn show(process: &'static Process, by: Asker, words: &[&str]) -> Result<(String, Fd), &'static str> {
    let &[ring, bytes, snaplen, device] = words else { return Err("malformed") };
    let (Ok(ring), Ok(bytes), Ok(snaplen)) = (ring.parse::<u16>(), bytes.parse(), snaplen.parse()) else { return Err("malformed") };
    let wish = Wish { bytes, snaplen, device: device.to_owned() };
    // (Who may not trace a process does not see by this what it says either: ptrace(2).)
    // SAFETY: no memory is involved.
    if unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) } != 1 {
        return Err("undumpable");
    }
    let answer = |found| format!("ring {found} {}", crate::params::program_name());
    let found = {
        let offload = &mut *process.lock();
        if let Some(memory) = waiting(offload, ring, by) {
            return Ok((answer(report::device_of(offload, ring)), memory));
        }
        may_show(offload, ring, &wish)?
    };
    // (The memory is made without the lock.)
    let (writer, fd) = wish.memory(process.clock)?;
    let mut guard = process.lock();
    may_show(&guard, ring, &wish)?;
    begin(&mut guard, writer, Capture { ring, by, wish, memory: None });
    Ok((answer(found), fd))
}

fn begin(offload: &mut Offload, writer: Writer, capture: Capture) {
    let _ = offload.rings.at_mut(capture.ring).ring.set_tap(Some(Box::new(writer)));
    offload.captures.push(capture);
}

/// The memory of a ring that began after its asker's last question.
fn waiting(offload: &mut Offload, ring: u16, by: Asker) -> Option<Fd> {
    offload.captures.iter_mut().find(|capture| capture.ring == ring && capture.by == by)?.memory.take()
}

/// The ring's device, if there is such a ring, it is on that device, and nobody captures there.
fn may_show(offload: &Offload, ring: u16, wish: &Wish) -> Result<String, &'static str> {
    if usize::from(ring) >= offload.rings.len() {
        return Err("none");
    }
    let own = report::device_of(offload, ring);
    if !wish.is_for(&own) {
        return Err("other");
    }
    if offload.captures.iter().any(|capture| capture.ring == ring) {
        return Err("busy");
    }
    Ok(own)
}

/// A ring has begun: who captures the others sees it from its first frame on.
pub(crate) fn ring_begins(offload: &mut Offload, clock: Clock, ring: u16) {
    let Some(Capture { by, wish, .. }) = offload.captures.first() else { return };
    let (by, wish) = (*by, wish.clone());
    let is_shown = offload.captures.iter().any(|capture| capture.ring == ring);
    if is_shown || !wish.is_for(&report::device_of(offload, ring)) {
        return;
    }
    // (Where there is no memory now, there may be when it is asked for.)
    if let Ok((writer, fd)) = wish.memory(clock) {
        begin(offload, writer, Capture { ring, by, wish, memory: Some(fd) });
    }
}

/// A dialogue has ended.
pub(crate) fn hung_up(process: &Process, by: Asker) {
    // (Much memory takes its time to be given back: without the lock.)
    let mut taps = Vec::new();
    let mut guard = process.lock();
    let Offload { captures, rings, .. } = &mut *guard;
    captures.retain(|capture| {
        let is_over = capture.by == by;
        if is_over {
            taps.push(rings.at_mut(capture.ring).ring.set_tap(None));
        }
        !is_over
    });
    drop(guard);
}
