//! What `ringway stats`, `vma_stats` and `ringway doctor` hear from this process.

mod gather;
mod kernels;
mod published;
mod sample;

use std::ffi::{CString, OsString};
use std::io;
use std::sync::{Mutex, OnceLock};

use ringway_params::Id;
use ringway_report::published::LOOK;
use ringway_report::{ProcessReport, SOCKETS, STATS_FILE_ENV, SocketReport};
use ringway_stack::Instant;
use serde::Serialize;

use crate::process::{Offload, Process};
use crate::socket::Socket;
use crate::{descendants, fdtable, params, real};

pub(crate) use gather::{all, one};
pub(crate) use published::Published;

/// Where the report goes, as the environment had it when the state was first made: nginx's workers clear theirs.
fn stats_file() -> Option<&'static OsString> {
    static PATH: OnceLock<Option<OsString>> = OnceLock::new();
    PATH.get_or_init(|| std::env::var_os(STATS_FILE_ENV)).as_ref()
}

/// VMA_STATS_FILE: where each socket's statistics go.
fn sockets_file() -> Option<String> {
    params::settings().path(Id::StatsFile)
}

/// A socket is closed for good: what there is to say of it, if VMA_STATS_FILE names a file. It was known as `fd`, and may be open there still.
pub(crate) fn of_closed(offload: &Offload, socket: &Socket, (fd, is_open): (i32, bool), now: Instant) -> Option<Box<SocketReport>> {
    sockets_file().map(|_| Box::new(gather::closed(offload, socket, (fd, is_open), now)))
}

/// Appends it to that file. The state is not to be locked.
pub(crate) fn write_closed(report: &SocketReport) {
    if let Some(path) = sockets_file() {
        append_lines(&path, &[report]);
    }
}

/// Appends each as a line of JSON, all of them in one write.
fn append_lines<T: Serialize>(path: &str, values: &[T]) {
    let lines = values.iter().map(|value| serde_json::to_string(value).map(|line| line + "\n")).collect::<Result<String, _>>();
    let written = lines.map_err(io::Error::from).and_then(|lines| append_to(path, lines.as_bytes()));
    // Of each file once, not for each socket that is closed: what goes wrong with one goes wrong with all.
    static FAILED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    if let (Err(error), Ok(mut failed)) = (written, FAILED.try_lock())
        && !failed.iter().any(|known| known == path)
    {
        failed.push(path.to_owned());
        tracing::warn!("the statistics were not written to {path}: {error}");
    }
}

/// By libc's own calls: nobody but the program is to be counted, or waited for.
fn append_to(path: &str, bytes: &[u8]) -> io::Result<()> {
    let path = CString::new(path)?;
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: a C string and plain integers.
    let open = || unsafe { real::open(path.as_ptr(), flags, 0o666) };
    let fd = descendants::make_out_of_the_way(|| match open() {
        fd @ 0.. => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    })?;
    // SAFETY: plain integers; the pointer and length are a slice's; the descriptor was made here.
    unsafe {
        // (To be opened, a FIFO needs a reader; but who reads one may be slow.)
        real::fcntl(fd, libc::F_SETFL, (libc::O_WRONLY | libc::O_APPEND) as usize);
        let result = match usize::try_from(real::write(fd, bytes.as_ptr().cast(), bytes.len())) {
            Ok(written) if written == bytes.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
            Err(_) => Err(io::Error::last_os_error()),
        };
        fdtable::clear(fd);
        real::close(fd);
        result
    }
}

/// Answers the control socket with the report.
pub(crate) fn serve(process: &'static Process) {
    stats_file();
    process.rendezvous().set_control_handler(Box::new(move |request| {
        // A question lies in the file, and is answered there.
        if request == LOOK {
            process.published.look(process, true);
            return "{}".to_owned();
        }
        let report = if request == SOCKETS { gather::process_and_rest(process) } else { gather::process(process, usize::MAX) };
        serde_json::to_string(&report).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
    }));
}

/// The report for the files that RINGWAY_STATS_FILE and VMA_STATS_FILE name, if they name any: taken while the sockets are still there, to be
/// written by [`append`] once what they had queued was sent.
pub(crate) fn last(process: &Process) -> Option<ProcessReport> {
    (stats_file().is_some() || sockets_file().is_some()).then(|| gather::process(process, usize::MAX))
}

/// Appends the report, with the ring's totals as they are now, in one write; and the sockets that are open to the other file.
pub(crate) fn append(process: &Process, mut report: ProcessReport) {
    report.ring = gather::ring(process, &mut process.lock());
    if let Some(path) = sockets_file() {
        append_lines(&path, &report.sockets);
    }
    let Some(path) = stats_file() else { return };
    append_lines(&path.to_string_lossy().replacen("%d", &std::process::id().to_string(), 1), &[report]);
}
