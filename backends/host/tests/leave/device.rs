//! A device on an ordinary interface: a packet socket, with a map of flows for its rules. It stands for what has a kernel's interface beside it.

use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::{
    Attached, Capabilities, Device, DeviceEvent, FlowRule, HEAD_MAX, IpMatch, MacAddr, OpenError, Queues, QueuesConfig, RuleError, RuleId,
    RxBatch, RxBuffer, SendError, Steering, Target, TxBuffer, TxFrame, Wake,
};
use ringway_stack::offload::DeviceKind;
use ringway_stack::wire::checksum;

use crate::bpf::{Flows, Key};

const MTU: usize = 1500;
const TX_BYTES: usize = 16 << 10;

/// The card.
#[derive(Clone)]
pub(crate) struct Card(Rc<Shared>);

struct Shared {
    capabilities: Capabilities,
    flows: Flows,
    rules: RefCell<BTreeMap<u64, Key>>,
    next: Cell<u64>,
}

impl Card {
    pub(crate) fn rules(&self) -> usize {
        self.0.rules.borrow().len()
    }
}

fn key_of(rule: &FlowRule) -> Option<Key> {
    let mut key = [0; 36];
    let transport = rule.outer.transport?;
    match rule.outer.ip? {
        IpMatch::V4 { src, dst, .. } => {
            key[..4].copy_from_slice(&src.map_or([0; 4], |src| src.octets()));
            key[4..8].copy_from_slice(&dst?.octets());
        }
        IpMatch::V6 { src, dst, .. } => {
            key[..16].copy_from_slice(&src.map_or([0; 16], |src| src.octets()));
            key[16..32].copy_from_slice(&dst?.octets());
        }
    }
    key[32..34].copy_from_slice(&transport.src_port.unwrap_or(0).to_be_bytes());
    key[34..].copy_from_slice(&transport.dst_port?.to_be_bytes());
    Some(key)
}

impl Device for Card {
    type Queues = PacketQueues;

    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    fn open(&self, _: &QueuesConfig) -> Result<PacketQueues, OpenError> {
        Err(OpenError::Full)
    }

    fn attach(&self, rule: &FlowRule, _: Target) -> Result<Attached, RuleError> {
        let key = key_of(rule).ok_or_else(|| self.0.capabilities.lacks("rules of that kind"))?;
        let mut rules = self.0.rules.borrow_mut();
        if rules.values().any(|other| *other == key) {
            return Err(RuleError::Taken);
        }
        self.0.flows.add(&key).map_err(|_| RuleError::Full)?;
        let id = self.0.next.replace(self.0.next.get() + 1);
        rules.insert(id, key);
        Ok(Attached { rule: RuleId(id), is_ready: true })
    }

    fn retarget(&self, rule: RuleId, _: Target, _: u32) -> Result<(), RuleError> {
        if self.0.rules.borrow().contains_key(&rule.0) { Ok(()) } else { Err(RuleError::Ended) }
    }

    fn detach(&self, rule: RuleId) {
        if let Some(key) = self.0.rules.borrow_mut().remove(&rule.0) {
            self.0.flows.remove(&key).expect("it was in the map");
        }
    }
}

/// Its only ring.
pub(crate) struct PacketQueues {
    card: Card,
    fd: OwnedFd,
    mac: MacAddr,
    /// So many of the frames that come next are lost.
    pub(crate) lose: usize,
    /// Of so many frames, one is lost; zero: none.
    pub(crate) lose_one_of: u32,
    received: u32,
}

impl PacketQueues {
    /// On the interface of that number, in the network namespace of the calling thread.
    pub(crate) fn open(interface: u32, mac: MacAddr) -> io::Result<Self> {
        let flows = Flows::attach(interface)?;
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is involved. (Of no protocol: it receives nothing before it is bound.)
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it, for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        set(&fd, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, flows.filter())?;
        set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20)?;
        set(&fd, libc::SOL_PACKET, 23 /* PACKET_IGNORE_OUTGOING */, 1)?;
        // SAFETY: all zeroes is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        // Only taps of all protocols come before tcx.
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = interface as i32;
        let len = core::mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address is readable for its length.
        if unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let capabilities =
            Capabilities { gather_max: 8, is_beside_kernel: true, steering: Steering::IPV6, ..Capabilities::least(DeviceKind::Xdp, MTU) };
        let card = Card(Rc::new(Shared { capabilities, flows, rules: RefCell::default(), next: Cell::new(1) }));
        Ok(Self { card, fd, mac, lose: 0, lose_one_of: 0, received: 0 })
    }

    fn receive(&self, into: &mut [u8]) -> Option<usize> {
        // SAFETY: the buffer is writable for its length.
        let len = unsafe { libc::recv(self.fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_TRUNC) };
        usize::try_from(len).ok().inspect(|len| assert!(*len <= into.len(), "a frame of {len} bytes: an offload is on"))
    }
}

fn set(fd: &OwnedFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value is readable for its length.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), 4) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Queues for PacketQueues {
    type Device = Card;
    type Rx = Bytes;
    type Tx = Room;

    fn device(&self) -> &Card {
        &self.card
    }

    fn mac(&self) -> MacAddr {
        self.mac
    }

    fn poll_rx(&mut self, _: Instant, batch: &mut RxBatch<Bytes>) -> usize {
        let (mut count, mut bytes) = (0, [0; MTU + 18]);
        while !batch.is_full() {
            let Some(len) = self.receive(&mut bytes) else { break };
            self.received = self.received.wrapping_add(1);
            if self.lose > 0 || (self.lose_one_of > 0 && self.received.is_multiple_of(self.lose_one_of)) {
                self.lose = self.lose.saturating_sub(1);
                continue;
            }
            let Some(frame) = batch.push_slot() else { break };
            frame.fill(&bytes[..len], (len > HEAD_MAX).then(|| Bytes { all: bytes[..len].into(), start: 0, len }));
            count += 1;
        }
        count
    }

    fn rx_ready(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry is readable and writable.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
    }

    fn tx_alloc(&mut self, len: usize) -> Option<Room> {
        let len = len.clamp(1, TX_BYTES);
        Some(Room { bytes: Rc::new(RefCell::new(vec![0; len])) })
    }

    fn send(&mut self, frame: &TxFrame<'_, Room>) -> Result<(), SendError> {
        let mut bytes = frame.head.to_vec();
        for slice in frame.body {
            let at = bytes.len();
            bytes.resize(at + slice.len, 0);
            slice.buffer.copy_to(slice.offset, &mut bytes[at..]);
        }
        // SAFETY: the frame is readable for its length.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 { Err(SendError::Full) } else { Ok(()) }
    }

    fn doorbell(&mut self) {}

    fn reap(&mut self) {}

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        None
    }

    fn arm(&mut self, _: Wake) -> bool {
        !self.rx_ready()
    }

    fn disarm(&mut self) {}
}

/// Received bytes.
#[derive(Clone)]
pub(crate) struct Bytes {
    all: Rc<[u8]>,
    start: usize,
    len: usize,
}

impl Bytes {
    fn part(&self, offset: usize, len: usize) -> &[u8] {
        &self.all[self.start..self.start + self.len][offset..offset + len]
    }
}

impl RxBuffer for Bytes {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(self.part(offset, out.len()));
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        checksum::sum(self.part(offset, len))
    }

    fn slice(&self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= self.len);
        Self { all: Rc::clone(&self.all), start: self.start + offset, len }
    }
}

/// A send buffer.
#[derive(Clone)]
pub(crate) struct Room {
    bytes: Rc<RefCell<Vec<u8>>>,
}

impl TxBuffer for Room {
    fn capacity(&self) -> usize {
        self.bytes.borrow().len()
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes.borrow()[offset..offset + out.len()]);
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        checksum::sum(&self.bytes.borrow()[offset..offset + len])
    }
}
