//! A flow rule for an ordinary interface: a BPF program at its ingress (tcx, Linux 6.6) drops what a map of flows has, so that the kernel sees none of it and
//! resets nothing, and a socket filter with the same map lets a packet socket see just that. The programs are so short that they are assembled here.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

/// Source and destination address (IPv4's in the first eight bytes), source and destination port: as on the wire.
pub(crate) type Key = [u8; 36];

const MAP_CREATE: i32 = 0;
const MAP_UPDATE_ELEM: i32 = 2;
const MAP_DELETE_ELEM: i32 = 3;
const PROG_LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;
const MAP_TYPE_HASH: u32 = 1;
const PROG_TYPE_SOCKET_FILTER: u32 = 1;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const ATTACH_TCX_INGRESS: u32 = 46;

/// What the program at the ingress says of a packet in the map, and of another (include/uapi/linux/bpf.h: TCX_DROP, TCX_NEXT).
const INGRESS: [i32; 2] = [2, -1];
/// What the socket filter says: how many bytes of it pass.
const FILTER: [i32; 2] = [i32::MAX, 0];

const HELPER_MAP_LOOKUP: i32 = 1;
const HELPER_SKB_LOAD_BYTES: i32 = 26;

/// `union bpf_attr`.
struct Attr([u8; 128]);

impl Attr {
    fn new(words: &[(usize, u32)], longs: &[(usize, u64)]) -> Self {
        let mut bytes = [0; 128];
        words.iter().for_each(|(at, word)| bytes[*at..at + 4].copy_from_slice(&word.to_ne_bytes()));
        longs.iter().for_each(|(at, long)| bytes[*at..at + 8].copy_from_slice(&long.to_ne_bytes()));
        Self(bytes)
    }

    /// What it points to is alive.
    fn call(&mut self, command: i32) -> io::Result<i32> {
        // SAFETY: the attributes are readable for their length; the callers below give pointers to what they borrow meanwhile.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), self.0.len()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
    }

    fn open(&mut self, command: i32) -> io::Result<OwnedFd> {
        let fd = self.call(command)?;
        // SAFETY: the kernel has just made it, for us.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// The map of flows that do not come to the kernel, on one interface.
pub(crate) struct Flows {
    map: OwnedFd,
    filter: OwnedFd,
    _link: OwnedFd,
}

impl Flows {
    pub(crate) fn attach(interface: u32) -> io::Result<Self> {
        let map = Attr::new(&[(0, MAP_TYPE_HASH), (4, 36), (8, 4), (12, 1024)], &[]).open(MAP_CREATE)?;
        let ingress = load(PROG_TYPE_SCHED_CLS, ATTACH_TCX_INGRESS, &program(map.as_raw_fd(), INGRESS))?;
        let filter = load(PROG_TYPE_SOCKET_FILTER, 0, &program(map.as_raw_fd(), FILTER))?;
        let link = Attr::new(&[(0, ingress.as_raw_fd() as u32), (4, interface), (8, ATTACH_TCX_INGRESS)], &[]).open(LINK_CREATE)?;
        Ok(Self { map, filter, _link: link })
    }

    /// The filter of a packet socket that is to see these flows (SO_ATTACH_BPF).
    pub(crate) fn filter(&self) -> RawFd {
        self.filter.as_raw_fd()
    }

    pub(crate) fn add(&self, key: &Key) -> io::Result<()> {
        let value = 1u32;
        let longs = [(8, key.as_ptr() as u64), (16, (&raw const value) as u64)];
        Attr::new(&[(0, self.map.as_raw_fd() as u32)], &longs).call(MAP_UPDATE_ELEM).map(drop)
    }

    pub(crate) fn remove(&self, key: &Key) -> io::Result<()> {
        Attr::new(&[(0, self.map.as_raw_fd() as u32)], &[(8, key.as_ptr() as u64)]).call(MAP_DELETE_ELEM).map(drop)
    }
}

fn load(kind: u32, attach: u32, program: &[u8]) -> io::Result<OwnedFd> {
    let (license, mut log) = (c"MIT", vec![0u8; 1 << 16]);
    let words = [(0, kind), (4, program.len() as u32 / 8), (24, 1), (28, log.len() as u32), (68, attach)];
    let longs = [(8, program.as_ptr() as u64), (16, license.as_ptr() as u64), (32, log.as_mut_ptr() as u64)];
    Attr::new(&words, &longs).open(PROG_LOAD).map_err(|error| {
        let said = log.split(|byte| *byte == 0).next().unwrap_or_default();
        io::Error::other(format!("{error}: {}", String::from_utf8_lossy(said)))
    })
}

/// Instructions, with jumps to labels.
#[derive(Default)]
struct Assembler {
    code: Vec<[u8; 8]>,
    jumps: Vec<(usize, &'static str)>,
    labels: Vec<(&'static str, usize)>,
}

impl Assembler {
    fn emit(&mut self, code: u8, dst: u8, src: u8, offset: i16, immediate: i32) {
        let (offset, immediate) = (offset.to_ne_bytes(), immediate.to_ne_bytes());
        let registers = if cfg!(target_endian = "little") { src << 4 | dst } else { dst << 4 | src };
        self.code.push([code, registers, offset[0], offset[1], immediate[0], immediate[1], immediate[2], immediate[3]]);
    }

    fn set(&mut self, dst: u8, immediate: i32) {
        self.emit(0xb7, dst, 0, 0, immediate);
    }

    fn copy(&mut self, dst: u8, src: u8) {
        self.emit(0xbf, dst, src, 0, 0);
    }

    /// The address of a byte of the stack.
    fn stack(&mut self, dst: u8, at: i32) {
        self.copy(dst, 10);
        self.emit(0x07, dst, 0, 0, at);
    }

    /// Zeroes of `code`'s size on the stack.
    fn clear(&mut self, code: u8, at: i16) {
        self.emit(code, 10, 0, at, 0);
    }

    fn jump(&mut self, to: &'static str) {
        self.jumps.push((self.code.len(), to));
        self.emit(0x05, 0, 0, 0, 0);
    }

    fn jump_if(&mut self, register: u8, equals: i32, to: &'static str) {
        self.jumps.push((self.code.len(), to));
        self.emit(0x15, register, 0, 0, equals);
    }

    fn jump_unless(&mut self, register: u8, equals: i32, to: &'static str) {
        self.jumps.push((self.code.len(), to));
        self.emit(0x55, register, 0, 0, equals);
    }

    fn label(&mut self, label: &'static str) {
        self.labels.push((label, self.code.len()));
    }

    /// Copies `len` bytes of the frame (r6) to the stack, or says that it is not in the map.
    fn copy_bytes(&mut self, from: i32, at: i32, len: i32) {
        self.copy(1, 6);
        self.set(2, from);
        self.stack(3, at);
        self.set(4, len);
        self.emit(0x85, 0, 0, 0, HELPER_SKB_LOAD_BYTES);
        self.jump_unless(0, 0, "other");
    }

    fn look_up(&mut self, map: RawFd) {
        // (A 64-bit immediate takes two; its source register says that it is a map's descriptor.)
        self.emit(0x18, 1, 1, 0, map);
        self.emit(0, 0, 0, 0, 0);
        self.stack(2, KEY);
        self.emit(0x85, 0, 0, 0, HELPER_MAP_LOOKUP);
        self.jump_unless(0, 0, "found");
    }

    fn finish(mut self) -> Vec<u8> {
        for (at, to) in self.jumps {
            let target = self.labels.iter().find(|(label, _)| *label == to).expect("a label").1;
            let offset = (target as i16 - at as i16 - 1).to_ne_bytes();
            self.code[at][2..4].copy_from_slice(&offset);
        }
        self.code.concat()
    }
}

/// Where the key lies on the stack: the addresses, and the ports behind them.
const KEY: i32 = -40;
const PORTS: i32 = -8;
/// Where the protocol's number lies.
const PROTOCOL: i32 = -48;

/// Looks a frame's addresses and ports up; and then its destination alone, under zeroes for its source. (No IP options, no extension headers.)
fn program(map: RawFd, [found, other]: [i32; 2]) -> Vec<u8> {
    const STORE_LONG: u8 = 0x7a;
    const STORE_WORD: u8 = 0x62;
    const STORE_HALF: u8 = 0x6a;
    let mut a = Assembler::default();
    a.copy(6, 1);
    for at in (KEY..0).step_by(8) {
        a.clear(STORE_LONG, at as i16);
    }
    a.clear(STORE_LONG, PROTOCOL as i16);
    // `protocol` of struct __sk_buff: in network order.
    a.emit(0x61, 7, 6, 16, 0);
    a.jump_if(7, i32::from(0x0800u16.to_be()), "v4");
    a.jump_if(7, i32::from(0x86ddu16.to_be()), "v6");
    a.jump("other");
    a.label("v4");
    a.copy_bytes(14 + 9, PROTOCOL, 1);
    a.copy_bytes(14 + 12, KEY, 8);
    a.copy_bytes(14 + 20, PORTS, 4);
    a.jump("transport");
    a.label("v6");
    a.copy_bytes(14 + 6, PROTOCOL, 1);
    a.copy_bytes(14 + 8, KEY, 32);
    a.copy_bytes(14 + 40, PORTS, 4);
    a.label("transport");
    a.emit(0x71, 8, 10, PROTOCOL as i16, 0);
    a.jump_unless(8, libc::IPPROTO_TCP, "other");
    a.look_up(map);
    a.clear(STORE_WORD, KEY as i16);
    a.clear(STORE_HALF, PORTS as i16);
    a.jump_if(7, i32::from(0x0800u16.to_be()), "listener");
    a.clear(STORE_WORD, KEY as i16 + 4);
    a.clear(STORE_LONG, KEY as i16 + 8);
    a.label("listener");
    a.look_up(map);
    a.label("other");
    a.set(0, other);
    a.emit(0x95, 0, 0, 0, 0);
    a.label("found");
    a.set(0, found);
    a.emit(0x95, 0, 0, 0, 0);
    a.finish()
}
