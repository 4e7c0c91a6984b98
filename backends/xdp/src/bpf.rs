//! bpf(2), as far as a device needs it: two maps, one program, and the link that puts it in front of an interface.
//!
//! No loader and no compiler takes part: the program is a few dozen instructions, which [`assembler`] writes.

pub(crate) mod assembler;

use std::io;
use std::os::fd::RawFd;

use ringway_host::Fd;

// include/uapi/linux/bpf.h.
const MAP_CREATE: i32 = 0;
const MAP_LOOKUP_ELEM: i32 = 1;
const MAP_UPDATE_ELEM: i32 = 2;
const MAP_DELETE_ELEM: i32 = 3;
const MAP_GET_NEXT_KEY: i32 = 4;
const PROG_LOAD: i32 = 5;
const PROG_GET_FD_BY_ID: i32 = 13;
const MAP_GET_FD_BY_ID: i32 = 14;
const OBJ_GET_INFO_BY_FD: i32 = 15;
const LINK_CREATE: i32 = 28;
const LINK_GET_FD_BY_ID: i32 = 30;
const LINK_GET_NEXT_ID: i32 = 31;
const MAP_TYPE_HASH: u32 = 1;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// BPF_F_XDP_HAS_FRAGS: the program takes frames that lie in several buffers, of which it sees the first.
const HAS_FRAGS: u32 = 1 << 5;

/// An update that makes a new element, or fails (BPF_NOEXIST).
const NOEXIST: u64 = 1;

/// `union bpf_attr`, whose fields are named by their offsets.
struct Attr([u8; 128]);

impl Attr {
    fn new(words: &[(usize, u32)], longs: &[(usize, u64)]) -> Self {
        let mut bytes = [0; 128];
        words.iter().for_each(|(at, word)| bytes[*at..at + 4].copy_from_slice(&word.to_ne_bytes()));
        longs.iter().for_each(|(at, long)| bytes[*at..at + 8].copy_from_slice(&long.to_ne_bytes()));
        Self(bytes)
    }

    fn ask(&mut self, command: i32) -> libc::c_long {
        // SAFETY: the attributes are readable and writable for their length; what they point to is borrowed by the callers below meanwhile.
        unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), self.0.len()) }
    }

    fn call(&mut self, command: i32) -> io::Result<()> {
        if self.ask(command) < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn open(&mut self, command: i32) -> io::Result<Fd> {
        Fd::make(|| self.ask(command))
    }
}

/// A map with values of four bytes.
#[derive(Debug)]
pub(crate) struct Map {
    fd: Fd,
    key_len: usize,
}

impl Map {
    /// A hash table with keys of so many bytes.
    pub(crate) fn hash(key_len: usize, entries: u32) -> io::Result<Self> {
        Self::create(MAP_TYPE_HASH, key_len, entries)
    }

    /// AF_XDP sockets by the numbers of their queues.
    pub(crate) fn sockets(entries: u32) -> io::Result<Self> {
        Self::create(MAP_TYPE_XSKMAP, 4, entries)
    }

    fn create(kind: u32, key_len: usize, entries: u32) -> io::Result<Self> {
        let fd = Attr::new(&[(0, kind), (4, key_len as u32), (8, 4), (12, entries)], &[]).open(MAP_CREATE)?;
        Ok(Self { fd, key_len })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.raw()
    }

    /// Sets a key's value.
    pub(crate) fn put(&self, key: &[u8], value: u32) -> io::Result<()> {
        self.update(key, value, 0)
    }

    /// The same, for a key that is not there yet: else EEXIST.
    pub(crate) fn insert(&self, key: &[u8], value: u32) -> io::Result<()> {
        self.update(key, value, NOEXIST)
    }

    fn update(&self, key: &[u8], value: u32, flags: u64) -> io::Result<()> {
        assert_eq!(key.len(), self.key_len, "the kernel reads that many bytes");
        let longs = [(8, key.as_ptr() as u64), (16, (&raw const value) as u64), (24, flags)];
        Attr::new(&[(0, self.fd() as u32)], &longs).call(MAP_UPDATE_ELEM)
    }

    /// A key's value.
    pub(crate) fn value(&self, key: &[u8]) -> io::Result<u32> {
        assert_eq!(key.len(), self.key_len, "the kernel reads that many bytes");
        let mut value = 0_u32;
        Attr::new(&[(0, self.fd() as u32)], &[(8, key.as_ptr() as u64), (16, (&raw mut value) as u64)]).call(MAP_LOOKUP_ELEM)?;
        Ok(value)
    }

    /// The key behind another one, or the first; ENOENT: there is none.
    pub(crate) fn next_key<const LEN: usize>(&self, key: Option<&[u8; LEN]>) -> io::Result<[u8; LEN]> {
        assert_eq!(LEN, self.key_len, "the kernel reads, and writes, that many bytes");
        let mut next = [0; LEN];
        let longs = [(8, key.map_or(0, |key| key.as_ptr() as u64)), (16, next.as_mut_ptr() as u64)];
        Attr::new(&[(0, self.fd() as u32)], &longs).call(MAP_GET_NEXT_KEY)?;
        Ok(next)
    }

    pub(crate) fn remove(&self, key: &[u8]) -> io::Result<()> {
        assert_eq!(key.len(), self.key_len, "the kernel reads that many bytes");
        Attr::new(&[(0, self.fd() as u32)], &[(8, key.as_ptr() as u64)]).call(MAP_DELETE_ELEM)
    }
}

/// Loads an XDP program, which sees of a frame that lies in several buffers the first one, if there are such frames (`has_frags`: Linux 5.18). What the verifier says
/// of one that it refuses is part of the error.
pub(crate) fn load(program: &[u8], has_frags: bool) -> io::Result<Fd> {
    let flags = if has_frags { HAS_FRAGS } else { 0 };
    let attempt = |log: &mut [u8]| {
        let license = c"MIT";
        let (level, log_len) = if log.is_empty() { (0, 0) } else { (1, log.len() as u32) };
        let words = [(0, PROG_TYPE_XDP), (4, program.len() as u32 / 8), (24, level), (28, log_len), (44, flags), (68, ATTACH_XDP)];
        let log_at = if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 };
        Attr::new(&words, &[(8, program.as_ptr() as u64), (16, license.as_ptr() as u64), (32, log_at)]).open(PROG_LOAD)
    };
    attempt(&mut []).or_else(|error| {
        if error.raw_os_error() == Some(libc::EPERM) {
            return Err(error);
        }
        let mut log = vec![0; 1 << 16];
        attempt(&mut log).map_err(|error| {
            let said = log.split(|byte| *byte == 0).next().unwrap_or_default();
            io::Error::new(error.kind(), format!("{error}: {}", String::from_utf8_lossy(said).trim()))
        })
    })
}

/// Puts a program in front of an interface, for as long as the link is open: in its driver where that can, else behind it.
pub(crate) fn attach(program: &Fd, interface: u32) -> io::Result<Fd> {
    Attr::new(&[(0, program.raw() as u32), (4, interface), (8, ATTACH_XDP)], &[]).open(LINK_CREATE)
}

/// What is to be known of a program, a map or a link: the words of its `struct bpf_*_info`.
fn info_of<const WORDS: usize>(of: &Fd, mut info: [u32; WORDS]) -> io::Result<[u32; WORDS]> {
    let len = size_of_val(&info) as u32;
    Attr::new(&[(0, of.raw() as u32), (4, len)], &[(8, info.as_mut_ptr() as u64)]).call(OBJ_GET_INFO_BY_FD)?;
    Ok(info)
}

/// The program of that number.
pub(crate) fn program_by_id(id: u32) -> io::Result<Fd> {
    Attr::new(&[(0, id)], &[]).open(PROG_GET_FD_BY_ID)
}

/// A program's number.
pub(crate) fn id_of(program: &Fd) -> io::Result<u32> {
    let [_, id] = info_of(program, [0; 2])?;
    Ok(id)
}

/// What tells programs apart, maps aside. (`struct bpf_prog_info`: its type, its number, its tag.)
pub(crate) fn tag_of(program: &Fd) -> io::Result<[u32; 2]> {
    let [_, _, tag @ ..] = info_of(program, [0; 4])?;
    Ok(tag)
}

/// A program's hash table with keys of so many bytes, and its map of sockets.
pub(crate) fn maps_of(program: &Fd, key_len: usize) -> io::Result<[Map; 2]> {
    let mut ids = [0_u32; 8];
    // (`struct bpf_prog_info` has how many there is room for at 52, and where at 56.)
    let mut info = [0; 16];
    let at = (ids.as_mut_ptr() as u64).to_ne_bytes();
    let word = |from: usize| u32::from_ne_bytes([at[from], at[from + 1], at[from + 2], at[from + 3]]);
    (info[13], info[14], info[15]) = (ids.len() as u32, word(0), word(4));
    let count = info_of(program, info)?[13] as usize;
    let mut found = [None, None];
    for id in ids.into_iter().take(count) {
        let fd = Attr::new(&[(0, id)], &[]).open(MAP_GET_FD_BY_ID)?;
        // `struct bpf_map_info`: its type, its number, the lengths of keys and of values.
        match info_of(&fd, [0; 4])? {
            [MAP_TYPE_HASH, _, len, 4] if len as usize == key_len => found[0] = Some(Map { fd, key_len }),
            [MAP_TYPE_XSKMAP, _, 4, 4] => found[1] = Some(Map { fd, key_len: 4 }),
            _ => {}
        }
    }
    let [Some(rules), Some(sockets)] = found else { return Err(io::ErrorKind::InvalidData.into()) };
    Ok([rules, sockets])
}

/// The link of the program of that number, by which it is in front of an interface; none, if it is there otherwise.
pub(crate) fn link_of(program: u32) -> io::Result<Option<Fd>> {
    let mut id = 0;
    loop {
        let mut next = Attr::new(&[(0, id)], &[]);
        match next.call(LINK_GET_NEXT_ID) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            result => result?,
        }
        id = u32::from_ne_bytes([next.0[4], next.0[5], next.0[6], next.0[7]]);
        // (One that is gone by now is none.)
        let Ok(link) = Attr::new(&[(0, id)], &[]).open(LINK_GET_FD_BY_ID) else { continue };
        if info_of(&link, [0; 32])?[2] == program {
            return Ok(Some(link));
        }
    }
}

/// What is to be known of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkInfo {
    /// The number of the program that it puts there.
    pub(crate) program: u32,
    /// The index of the interface that it is in front of; zero: it no longer is, as somebody has detached it, or the interface is gone.
    pub(crate) interface: u32,
}

/// See [`LinkInfo`].
pub(crate) fn link_info(link: &Fd) -> io::Result<LinkInfo> {
    // `struct bpf_link_info`: its type, its number, its program's, padding; of XDP then the interface's index.
    let info: [u32; 32] = info_of(link, [0; 32])?;
    Ok(LinkInfo { program: info[2], interface: info[4] })
}
