//! Keeps the way of a packet warm, in Rust: while there is nothing to send, messages that go the whole way but the last step keep that way's
//! code and data in the processor's caches, so that the message that matters does not pay for a cold start.
//!
//! It sends a message every 50 ms to itself, once with and once without dummies between, and prints how long the send call takes.
//!
//! Try it:
//!     rustc --edition 2024 -O dummy_send.rs
//!     ringway run -- ./dummy_send

mod vma_extra;

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use vma_extra::{VMA_SND_FLAGS_DUMMY, send};

const MESSAGES: u32 = 20;
const GAP: Duration = Duration::from_millis(50);
/// At most 50000 a second are advised.
const DUMMY_EVERY: Duration = Duration::from_micros(100);

/// Waits so long; with dummies, if they are wanted.
fn wait(socket: &UdpSocket, message: &[u8], dummies: bool) -> io::Result<()> {
    let began = Instant::now();
    let mut next = began;
    while began.elapsed() < GAP {
        if !dummies || Instant::now() < next {
            continue;
        }
        next += DUMMY_EVERY;
        // SAFETY: the message is as long as it is said to be.
        if unsafe { send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), VMA_SND_FLAGS_DUMMY) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// How long a send takes.
fn measure(sender: &UdpSocket, receiver: &UdpSocket, dummies: bool) -> io::Result<Duration> {
    let (message, mut got, mut spent) = ([b'b'; 64], [0; 65], Duration::ZERO);
    for _ in 0..MESSAGES {
        wait(sender, &message, dummies)?;
        let began = Instant::now();
        sender.send(&message)?;
        spent += began.elapsed();
        receiver.set_nonblocking(false)?;
        let len = receiver.recv(&mut got)?;
        receiver.set_nonblocking(true)?;
        // Nothing but the message itself ever arrives.
        if got[..len] != message || receiver.recv(&mut got).is_ok() {
            return Err(io::Error::other("a dummy has arrived"));
        }
    }
    Ok(spent / MESSAGES)
}

fn main() -> ExitCode {
    if vma_extra::api().is_none() {
        eprintln!("there is no library: a dummy would be a message");
        return ExitCode::from(77);
    }
    let run = || {
        let receiver = UdpSocket::bind(("127.0.0.1", 0))?;
        let sender = UdpSocket::bind(("127.0.0.1", 0))?;
        sender.connect(receiver.local_addr()?)?;
        for dummies in [false, true] {
            let time = measure(&sender, &receiver, dummies)?;
            println!("{} dummies: {:.2} us a send", if dummies { "with" } else { "without" }, time.as_secs_f64() * 1e6);
        }
        Ok::<_, io::Error>(())
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dummy_send: {error}");
            ExitCode::FAILURE
        }
    }
}
