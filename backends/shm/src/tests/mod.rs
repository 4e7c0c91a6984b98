//! Members against members: in one process where that is enough, in several where one must die.

mod core_claims;
mod crash;
mod death;
mod frames;
mod hostile;
mod ipv6;
mod leave;
mod memory;
mod regions;
mod rights;
mod sleep;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringway_stack::device::{DeviceEvent, FlowRule, MacAddr, Protocol, Queues, RxBatch, SendError, TxBuffer, TxFrame, TxOffload, TxSlice};

use crate::{Rendezvous, Resolved, RxBuf, Settings, ShmQueues, TxBuf, attach};

/// An address that no other test uses, nor another run of them at the same time.
pub(crate) fn fresh_address() -> SocketAddrV4 {
    static PORT: AtomicU16 = AtomicU16::new(1000);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(127, high, low, 1), PORT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn tcp(local: impl Into<std::net::SocketAddr>) -> FlowRule {
    FlowRule::flow(Protocol::Tcp, local.into(), None)
}

/// Those of a small member, which waits for others as long as a busy machine or an emulator may need.
pub(crate) fn small() -> Settings {
    Settings { pool_bytes: 8 << 20, peers_max: 64, area_bytes: 1 << 20, resolve_timeout: Duration::from_secs(30), ..Settings::default() }
}

/// Whoever polls, until `done` gives something; fails after a minute, which a busy machine or an emulator may need.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "timed out: {what}");
        std::thread::yield_now();
    }
}

/// Serves a rendezvous until it is dropped.
pub(crate) struct Progress {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    pub(crate) fn of(rendezvous: &Arc<Rendezvous>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (stop, rendezvous) = (stop.clone(), rendezvous.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut entry = libc::pollfd { fd: rendezvous.epoll_fd(), events: libc::POLLIN, revents: 0 };
                    // SAFETY: one entry.
                    unsafe { libc::poll(&raw mut entry, 1, 10) };
                    rendezvous.service();
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A member with a progress thread.
pub(crate) struct Node {
    pub(crate) device: ShmQueues,
    pub(crate) rendezvous: Arc<Rendezvous>,
    pub(crate) batch: RxBatch<RxBuf>,
    _progress: Progress,
}

/// A frame as a test keeps it: whole, and its body's handle.
pub(crate) struct Got {
    pub(crate) source: MacAddr,
    pub(crate) vlan: Option<u16>,
    pub(crate) payload: Vec<u8>,
    pub(crate) body: Option<RxBuf>,
}

/// Who has that address and answers.
pub(crate) fn find(rendezvous: &Rendezvous, protocol: Protocol, address: impl Into<std::net::SocketAddr>) -> Option<Resolved> {
    match rendezvous.resolve(protocol, address) {
        Ok(found) => found,
        Err(crate::ResolveError::Silent) => None,
        Err(error) => panic!("no error of the system's: {error}"),
    }
}

impl Node {
    pub(crate) fn new() -> Self {
        Self::with(&small())
    }

    pub(crate) fn with(settings: &Settings) -> Self {
        let (device, rendezvous) = attach(settings).unwrap();
        let progress = Progress::of(&rendezvous);
        Self { device, rendezvous, batch: RxBatch::new(64), _progress: progress }
    }

    /// The member that has `address`.
    pub(crate) fn find(&self, address: impl Into<std::net::SocketAddr>) -> Option<Resolved> {
        find(&self.rendezvous, Protocol::Tcp, address)
    }

    /// Buffers that hold `bytes`.
    pub(crate) fn buffers(&mut self, bytes: &[u8]) -> Vec<(TxBuf, usize)> {
        bytes
            .chunks(crate::layout::LARGE_BYTES)
            .map(|chunk| {
                let mut buffer = self.device.tx_alloc(chunk.len()).expect("a send buffer");
                buffer.write(0, chunk);
                (buffer, chunk.len())
            })
            .collect()
    }

    /// Sends one frame with that payload, whose first ten bytes travel as headers.
    pub(crate) fn send(&mut self, to: MacAddr, payload: &[u8]) -> Result<(), SendError> {
        self.send_tagged(to, payload, None)
    }

    pub(crate) fn send_tagged(&mut self, to: MacAddr, payload: &[u8], vlan: Option<u16>) -> Result<(), SendError> {
        self.send_with(to, payload, TxOffload { vlan, ..TxOffload::default() })
    }

    /// A frame that may wait.
    pub(crate) fn send_unsolicited(&mut self, to: MacAddr, payload: &[u8]) -> Result<(), SendError> {
        self.send_with(to, payload, TxOffload { unsolicited: true, ..TxOffload::default() })
    }

    fn send_with(&mut self, to: MacAddr, payload: &[u8], offload: TxOffload) -> Result<(), SendError> {
        let (headers, rest) = payload.split_at(payload.len().min(10));
        let head = [&to.0[..], &self.device.mac().0, &[8, 0], headers].concat();
        let buffers = self.buffers(rest);
        let body: Vec<_> = buffers.iter().map(|(buffer, len)| TxSlice { buffer, offset: 0, len: *len }).collect();
        self.device.send(&TxFrame { head: &head, body: &body, offload })
    }

    /// What one poll receives.
    pub(crate) fn poll(&mut self) -> Vec<Got> {
        self.batch.clear();
        let count = self.device.poll_rx(ringway_stack::Instant::ZERO, &mut self.batch);
        let own = self.device.mac();
        let frames: Vec<_> = self
            .batch
            .frames_mut()
            .iter_mut()
            .map(|frame| {
                let payload = frame.to_vec().split_off(14);
                assert_eq!(frame.head()[..6], own.0);
                let body = frame.take_buffer();
                Got { source: MacAddr(frame.head()[6..12].try_into().unwrap()), vlan: frame.meta.vlan, payload, body }
            })
            .collect();
        assert_eq!(frames.len(), count);
        frames
    }

    #[track_caller]
    pub(crate) fn receive(&mut self) -> Got {
        let mut got = until("a frame", || Some(self.poll()).filter(|got| !got.is_empty()));
        assert_eq!(got.len(), 1);
        got.remove(0)
    }

    #[track_caller]
    pub(crate) fn await_event(&mut self) -> DeviceEvent {
        until("an event", || {
            self.poll();
            self.device.poll_event()
        })
    }
}

/// Two members, and how the first addresses the second.
pub(crate) fn pair() -> (Node, Node, MacAddr) {
    pair_with(&small())
}

pub(crate) fn pair_with(settings: &Settings) -> (Node, Node, MacAddr) {
    let (a, b) = (Node::with(settings), Node::with(settings));
    let address = fresh_address();
    b.device.steer(&tcp(address)).unwrap();
    let mac = a.find(address).expect("the other member").mac;
    (a, b, mac)
}

pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 7 + (i >> 8)) as u8).collect()
}
