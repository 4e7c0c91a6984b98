//! splice(2) with a connection of the ring at one end: by copying, so that no byte is taken that cannot be given. (tee(2) and vmsplice(2)
//! are between pipes and memory: a socket is none of their business.)
//!
//! From a pipe, the bytes are first duplicated (tee), and only taken once the connection has them. Into a pipe, so much is taken from the
//! connection as one look says that there is room for. Several splices at once on one pipe may block where the kernel's would not.

use core::ffi::{c_int, c_uint};
use std::io::IoSliceMut;

use libc::{off64_t, size_t, ssize_t};

use super::receive;
use crate::cancel::Masked;
use crate::descendants;
use crate::errno::{self, Errno, to_ssize};
use crate::extra::resume::{self, DUE};
use crate::fdtable::{self, Entry};
use crate::moving;
use crate::process::process;
use crate::real;
use crate::socket::Kind;

/// What a writable pipe is sure to have room for: one of its buffers (PIPE_BUF).
const ROOM: usize = 4096;

/// splice(2).
#[inline(always)]
pub(super) unsafe fn splice(input: c_int, at: *mut off64_t, output: c_int, to: *mut off64_t, len: size_t, flags: c_uint) -> ssize_t {
    let (from_ring, to_ring) = (on_ring(input), on_ring(output));
    crate::receiving_point!({
        if from_ring || to_ring {
            crate::boundary!(-1, {
                let (pipe, offset, file_offset) = if from_ring { (output, to, at) } else { (input, at, to) };
                to_ssize(check(pipe, from_ring, !offset.is_null(), !file_offset.is_null(), flags, len).and_then(|goes_on| match goes_on {
                    false => Ok(0),
                    true if from_ring => into_pipe(input, output, len, flags),
                    true => out_of_pipe(input, output, len, flags),
                }))
            })
        } else {
            // SAFETY: the program's promise to splice(2).
            unsafe { real::splice(input, at, output, to, len, flags) }
        }
    })
}

pub(super) fn on_ring(fd: c_int) -> bool {
    let (Entry::Socket(key), Some(process)) = (fdtable::lookup(fd), process()) else { return false };
    let (is_there, is_moving) =
        process.lock().sockets.find(key).map_or((false, false), |socket| (socket.ring_id().is_some(), socket.kind == Kind::Moving));
    is_there || is_moving && moving::stays(process, fd, key)
}

/// The kernel's checks, in its order; whether there is anything to do.
fn check(pipe: c_int, pipe_is_output: bool, pipe_offset: bool, offset: bool, flags: c_uint, len: size_t) -> Result<bool, Errno> {
    const FLAGS: c_uint = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | 8;
    if len == 0 {
        return Ok(false);
    }
    if flags & !FLAGS != 0 {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: plain integers.
    let mode = unsafe { real::fcntl(pipe, libc::F_GETFL, 0) };
    let wrong_way = if pipe_is_output { libc::O_RDONLY } else { libc::O_WRONLY };
    if mode < 0 || mode & libc::O_ACCMODE == wrong_way {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: all of it is integers, for which zero is a value.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the structure is valid for writing.
    let known = unsafe { libc::fstat(pipe, &raw mut status) } == 0;
    if !known || status.st_mode & libc::S_IFMT != libc::S_IFIFO {
        return Err(Errno(libc::EINVAL));
    }
    match (pipe_offset, offset) {
        (true, _) => Err(Errno(libc::ESPIPE)),
        // A socket has no positions.
        (false, true) => Err(Errno(libc::EINVAL)),
        (false, false) => Ok(true),
    }
}

/// Waits until the pipe has room, or bytes. EAGAIN: it hasn't, and nobody wants to wait.
fn await_pipe(pipe: c_int, events: i16, flags: c_uint) -> Result<i16, Errno> {
    let mut poll = libc::pollfd { fd: pipe, events, revents: 0 };
    let timeout = if flags & libc::SPLICE_F_NONBLOCK != 0 { 0 } else { -1 };
    // SAFETY: one valid pollfd.
    match unsafe { super::poll(&raw mut poll, 1, timeout) } {
        1 => Ok(poll.revents),
        0 => Err(Errno(libc::EAGAIN)),
        _ => Err(Errno::last()),
    }
}

/// A piece at a time, until there is nothing more at once.
fn into_pipe(socket: c_int, pipe: c_int, len: size_t, flags: c_uint) -> Result<usize, Errno> {
    let saved = errno::current();
    let mut buffer = [0u8; ROOM];
    let mut done = 0;
    while done < len {
        let more = if done == 0 { 0 } else { libc::SPLICE_F_NONBLOCK };
        let piece = await_pipe(pipe, libc::POLLOUT, flags | more).and_then(|ready| {
            // The write says what is wrong with it, and raises SIGPIPE: it takes nothing.
            let wanted = if ready & libc::POLLERR != 0 { 0 } else { ROOM.min(len - done) };
            piece_into_pipe(socket, pipe, &mut buffer[..wanted], more != 0)
        });
        match piece {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if done > 0 => {
                if error == DUE {
                    resume::forget();
                }
                break;
            }
            Err(error) => return Err(error),
        }
    }
    errno::set(saved);
    Ok(done)
}

fn piece_into_pipe(socket: c_int, pipe: c_int, buffer: &mut [u8], only_at_once: bool) -> Result<usize, Errno> {
    let count = if buffer.is_empty() {
        1
    } else {
        let flags = if only_at_once { libc::MSG_DONTWAIT } else { 0 };
        let mut into = IoSliceMut::new(buffer);
        // SAFETY: the buffer is as long as it says.
        let received = unsafe { receive::recv_once(socket, into.as_mut_ptr().cast(), into.len(), flags) };
        usize::try_from(received).map_err(|_| Errno::last())?
    };
    let mut done = 0;
    let nothing = [0u8; 1];
    while done < count {
        let rest = if buffer.is_empty() { &nothing[..] } else { &buffer[done..count] };
        let _masked = Masked::new();
        // SAFETY: the slice is as long as it says.
        let written = unsafe { real::write(pipe, rest.as_ptr().cast(), rest.len()) };
        done += usize::try_from(written).map_err(|_| Errno::last())?;
    }
    Ok(count)
}

fn out_of_pipe(pipe: c_int, socket: c_int, len: size_t, flags: c_uint) -> Result<usize, Errno> {
    await_pipe(pipe, libc::POLLIN, flags)?;
    let scratch = Scratch::new()?;
    let _masked = Masked::new();
    // SAFETY: plain integers.
    let there = unsafe { libc::tee(pipe, scratch.write, len, libc::SPLICE_F_NONBLOCK) };
    let there = usize::try_from(there).map_err(|_| Errno::last())?;
    let mut bytes = vec![0u8; there];
    // SAFETY: the buffer is as long as it says.
    let read = unsafe { real::read(scratch.read, bytes.as_mut_ptr().cast(), there) };
    let read = usize::try_from(read).map_err(|_| Errno::last())?;
    if read == 0 {
        return Ok(0);
    }
    let more = if flags & libc::SPLICE_F_MORE != 0 { libc::MSG_MORE } else { 0 };
    // SAFETY: so many bytes were read just now.
    let sent = unsafe { super::send(socket, bytes.as_ptr().cast(), read, more) };
    let sent = usize::try_from(sent).map_err(|_| Errno::last())?;
    let mut taken = 0;
    while taken < sent {
        // SAFETY: the buffer is at least that long; its bytes are not needed any more.
        match unsafe { real::read(pipe, bytes.as_mut_ptr().cast(), sent - taken) } {
            count @ 1.. => taken += count.unsigned_abs(),
            // Somebody else took them from the pipe.
            _ => break,
        }
    }
    Ok(sent)
}

/// A pipe of our own, for a moment.
struct Scratch {
    read: c_int,
    write: c_int,
}

impl Scratch {
    fn new() -> Result<Self, Errno> {
        let [read, write] = descendants::pipe_out_of_the_way().ok_or_else(Errno::last)?;
        Ok(Self { read, write })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let saved = errno::current();
        let _masked = Masked::new();
        [self.read, self.write].into_iter().for_each(|fd| _ = fdtable::clear(fd));
        // SAFETY: both were made here.
        unsafe {
            real::close(self.read);
            real::close(self.write);
        }
        errno::set(saved);
    }
}
