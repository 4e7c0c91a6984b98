//! Round trips of raw frames between two processes, each pinned to a core, beside round trips of one cache line between the same two:
//! `cargo run --release -p ringway-shm --example pingpong [ROUNDS]`.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use ringway_shm::{Rendezvous, RxBuf, Settings, ShmQueues, attach};
use ringway_stack::device::{FlowRule, Protocol, Queues, RxBatch, TxBuffer, TxFrame, TxOffload, TxSlice};

/// Batches whose fastest and middle averages are shown.
const BATCHES: usize = 20;

fn main() {
    let rounds: u32 = std::env::args().nth(1).map_or(100_000, |word| word.parse().expect("a number of rounds"));
    let line = cache_line(rounds);
    print_row("cache line", &line, &line);
    for payload in [22, 64, 180, 1000, 8192, 60_000] {
        let times = frames(rounds / if payload > 4096 { 10 } else { 1 }, payload);
        print_row(&format!("frame, {payload} bytes of payload"), &times, &line);
    }
}

fn print_row(name: &str, times_ns: &[f64], line_ns: &[f64]) {
    let (best, median) = (times_ns[0], times_ns[times_ns.len() / 2]);
    println!("{name:32} min {best:8.1} ns   median {median:8.1} ns   {:5.2} lines", median / line_ns[line_ns.len() / 2]);
}

/// Times batches of rounds; sorted averages in nanoseconds.
fn time(rounds: u32, mut round: impl FnMut()) -> Vec<f64> {
    (0..rounds / 10).for_each(|_| round());
    let mut times: Vec<_> = (0..BATCHES)
        .map(|_| {
            let begin = Instant::now();
            (0..rounds).for_each(|_| round());
            begin.elapsed().as_nanos() as f64 / f64::from(rounds)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times
}

fn pin(core: usize) {
    // SAFETY: the set is plain memory, filled by the macro's functions.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Runs `echo` in a forked process on the second core, and `ask` here on the first.
fn with_child<T>(echo: impl FnOnce(), ask: impl FnOnce() -> T) -> T {
    // SAFETY: this process has one thread at this point.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no memory is involved.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        pin(1);
        echo();
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    pin(0);
    let result = ask();
    // SAFETY: our own child.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, core::ptr::null_mut(), 0);
    }
    result
}

/// Two lines, one written by each side, as in the device.
fn cache_line(rounds: u32) -> Vec<f64> {
    // SAFETY: a fresh shared page.
    let page = unsafe {
        libc::mmap(core::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0)
    };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: both words lie in the page, which stays mapped.
    let (ping, pong) = unsafe { (&*page.cast::<AtomicU64>(), &*page.cast::<AtomicU64>().add(64)) };
    with_child(
        || {
            for i in 1.. {
                while ping.load(Ordering::Acquire) != i {}
                pong.store(i, Ordering::Release);
            }
        },
        || {
            let mut i = 0;
            time(rounds, || {
                i += 1;
                ping.store(i, Ordering::Release);
                while pong.load(Ordering::Acquire) != i {}
            })
        },
    )
}

/// Serves the rendezvous in its own thread until the process, or the flag, ends.
fn progress(rendezvous: &Arc<Rendezvous>) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let (rendezvous, flag) = (rendezvous.clone(), stop.clone());
    std::thread::spawn(move || {
        while !flag.load(Ordering::Relaxed) {
            let mut entry = libc::pollfd { fd: rendezvous.epoll_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry.
            unsafe { libc::poll(&raw mut entry, 1, 100) };
            rendezvous.service();
        }
    });
    stop
}

fn frames(rounds: u32, payload: usize) -> Vec<f64> {
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9);
    let rule = FlowRule::flow(Protocol::Udp, address.into(), None);
    with_child(
        || {
            let (mut device, rendezvous) = attach(&Settings::default()).expect("attach");
            device.steer(&rule).expect("a rule");
            progress(&rendezvous);
            let mut batch = RxBatch::new(32);
            let bytes = vec![0x5A; payload];
            let mut scratch = vec![0; payload];
            loop {
                let source = receive(&mut device, &mut batch, &mut scratch);
                send(&mut device, &source, &bytes);
            }
        },
        || {
            let (mut device, rendezvous) = attach(&Settings::default()).expect("attach");
            let stop = progress(&rendezvous);
            let mac = loop {
                let begin = Instant::now();
                if let Some(found) = rendezvous.resolve(Protocol::Udp, address).expect("resolve") {
                    eprintln!("resolved in {:?}", begin.elapsed());
                    break found.mac.0;
                }
            };
            let mut batch = RxBatch::new(32);
            let bytes = vec![0xA5; payload];
            let mut scratch = vec![0; payload];
            let times = time(rounds, || {
                send(&mut device, &mac, &bytes);
                receive(&mut device, &mut batch, &mut scratch);
            });
            stop.store(true, Ordering::Relaxed);
            times
        },
    )
}

fn send(device: &mut ShmQueues, to: &[u8; 6], bytes: &[u8]) {
    let mut head = [0u8; 42];
    head[..6].copy_from_slice(to);
    let mut buffers: [Option<(ringway_shm::TxBuf, usize)>; 2] = [None, None];
    for (place, chunk) in buffers.iter_mut().zip(bytes.chunks(32768)) {
        let mut buffer = loop {
            match device.tx_alloc(chunk.len()) {
                Some(buffer) => break buffer,
                None => device.reap(),
            }
        };
        buffer.write(0, chunk);
        *place = Some((buffer, chunk.len()));
    }
    let slice = |i: usize| buffers[i].as_ref().map(|(buffer, len)| TxSlice { buffer, offset: 0, len: *len });
    let frame = |body: &[TxSlice<'_, _>], device: &mut ShmQueues| {
        while device.send(&TxFrame { head: &head, body, offload: TxOffload::default() }).is_err() {
            device.reap();
        }
    };
    match (slice(0), slice(1)) {
        (Some(a), Some(b)) => frame(&[a, b], device),
        (Some(a), None) => frame(&[a], device),
        _ => frame(&[], device),
    }
    device.doorbell();
    device.reap();
}

fn receive(device: &mut ShmQueues, batch: &mut RxBatch<RxBuf>, scratch: &mut [u8]) -> [u8; 6] {
    while device.poll_rx(ringway_stack::Instant::ZERO, batch) == 0 {}
    let frame = &mut batch.frames_mut()[0];
    let head = frame.head().len();
    frame.copy_to(head, &mut scratch[..frame.len() - head]);
    let mut source = [0; 6];
    source.copy_from_slice(&frame.head()[6..12]);
    batch.clear();
    source
}
