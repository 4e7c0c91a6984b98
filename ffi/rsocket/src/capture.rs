//! `ringway capture`: another process of the user is shown this one's frames, which are RoCEv2's, for as long as its dialogue lasts.
//!
//! It asks `capture RING BYTES SNAPLEN DEVICE`, and gets a descriptor of the memory that frames are written to from then on ([`ringway_host::capture`]). There
//! is one ring. Bytes that a peer places in memory by itself are in no frame.

use ringway_devices::{DialogueHandler, Fd};
use ringway_host::capture::Writer;
use ringway_stack::offload::DeviceKind;
use ringway_stack::ring::{Seen, Tap as _};

use crate::library::{enter, enter_or_none};
use crate::report;

/// Answers for the process.
pub(crate) struct Answers;

impl DialogueHandler for Answers {
    fn asked(&self, dialogue: u64, _: &[u64], words: &[u8], _: Vec<Fd>) -> (Vec<u8>, Vec<Fd>) {
        let words = String::from_utf8_lossy(words);
        let shown = match *words.split_ascii_whitespace().collect::<Vec<_>>() {
            ["capture", ring, bytes, snaplen, device] => show(dialogue, [ring, bytes, snaplen], device),
            _ => Err("malformed"),
        };
        match shown {
            Ok((answer, fd)) => (answer.into_bytes(), vec![fd]),
            Err(why) => (why.into(), Vec::new()),
        }
    }

    fn hung_up(&self, dialogue: u64) {
        let Some(mut library) = enter_or_none().filter(|library| library.captured_by == Some(dialogue)) else { return };
        library.captured_by = None;
        let tap = library.plane.set_tap(None);
        // (Much memory takes its time to be given back: without the lock.)
        drop(library);
        drop(tap);
    }
}

fn show(dialogue: u64, numbers: [&str; 3], device: &str) -> Result<(String, Fd), &'static str> {
    let [Ok(ring), Ok(bytes), Ok(snaplen)] = numbers.map(str::parse::<usize>) else { return Err("malformed") };
    // (Who may not trace a process does not see by this what it says either: ptrace(2).)
    // SAFETY: no memory is involved.
    if unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) } != 1 {
        return Err("undumpable");
    }
    let own = DeviceKind::Shm.name();
    if ring > 0 {
        return Err("none");
    }
    if device != "*" && device != own {
        return Err("other");
    }
    let clock = enter().map_err(|_| "none")?.clock();
    // (The memory is made without the lock.)
    let (mut writer, memory) = Writer::new(bytes, snaplen, clock).map_err(|_| "no memory")?;
    // SAFETY: plain integers; the descriptor is open.
    let fd = Fd::make(|| match unsafe { libc::fcntl(memory.raw(), libc::F_DUPFD_CLOEXEC, 0) } {
        -1 => Err(std::io::Error::last_os_error()),
        raw => Ok(raw),
    });
    let fd = fd.map_err(|_| "no descriptor")?;
    let mut library = enter().map_err(|_| "none")?;
    if library.captured_by.is_some() {
        return Err("busy");
    }
    library.captured_by = Some(dialogue);
    let _ = library.plane.set_tap(Some(Box::new(move |is_sent, frame| {
        writer.frame(&Seen { is_sent, head: frame, len: frame.len(), vlan: None, checksums_left: false, rest: &|_| () });
    })));
    Ok((format!("ring {own} {}", report::program()), fd))
}
