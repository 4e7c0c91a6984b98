//! What the driver and the actors say to each other; `wire.h` is the actors' side.

use std::io::{self, Read as _, Write as _};
use std::net::Ipv6Addr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The numbers of `enum request`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Call {
    Socket = 1,
    Bind,
    Listen,
    Connect,
    Accept,
    Close,
    Shutdown,
    Send,
    Recv,
    Dup,
    Fcntl,
    Ioctl,
    SetSockOpt,
    GetSockOpt,
    Poll,
    EpollCreate,
    EpollCtl,
    EpollWait,
    View,
    Fork,
    Exit,
    Interrupt,
    CloseAll,
}

/// A call with its arguments, and what they point to.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) call: Call,
    pub(crate) arguments: [i64; 6],
    pub(crate) data: Vec<u8>,
}

impl Request {
    pub(crate) fn new(call: Call, arguments: &[i64]) -> Self {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        Self { call, arguments: all, data: Vec::new() }
    }

    pub(crate) fn with(mut self, data: Vec<u8>) -> Self {
        self.data = data;
        self
    }

    /// With an array of integers.
    pub(crate) fn with_numbers(self, numbers: impl IntoIterator<Item = i32>) -> Self {
        self.with(numbers.into_iter().flat_map(i32::to_le_bytes).collect())
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(56 + self.data.len());
        bytes.extend_from_slice(&(self.call as i32).to_le_bytes());
        bytes.extend_from_slice(&(self.data.len() as u32).to_le_bytes());
        self.arguments.iter().for_each(|a| bytes.extend_from_slice(&a.to_le_bytes()));
        bytes.extend_from_slice(&self.data);
        bytes
    }
}

/// What came of a call.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) result: i64,
    pub(crate) error: i32,
    /// SIGPIPEs that it raised.
    pub(crate) pipes: i32,
    pub(crate) data: Vec<u8>,
}

/// Reads fields one after the other.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn i32(&mut self) -> i32 {
        i32::from_le_bytes(self.take())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    /// 16 bytes as they are.
    pub(crate) fn ip(&mut self) -> Ipv6Addr {
        self.take::<16>().into()
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (first, rest) = self.0.split_first_chunk().expect("the actor sends whole structures");
        self.0 = rest;
        *first
    }
}

/// A thread of an actor, seen from here.
#[derive(Debug)]
pub(crate) struct Line {
    stream: UnixStream,
    /// Its kernel thread id.
    pub(crate) tid: i32,
    /// It was told to do something, and has not answered.
    pub(crate) busy: bool,
}

/// How an actor's thread introduces itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hello {
    pub(crate) token: i32,
    pub(crate) thread: usize,
    pub(crate) pid: i32,
}

impl Line {
    /// Takes up a line that was just connected.
    pub(crate) fn new(mut stream: UnixStream) -> io::Result<(Hello, Self)> {
        let mut bytes = [0; 16];
        stream.read_exact(&mut bytes)?;
        let mut fields = Fields(&bytes);
        let hello = Hello { token: fields.i32(), thread: fields.i32() as usize, pid: fields.i32() };
        Ok((hello, Self { stream, tid: fields.i32(), busy: false }))
    }

    pub(crate) fn send(&mut self, request: &Request) -> io::Result<()> {
        self.busy = true;
        self.stream.write_all(&request.encode())
    }

    /// The answer, if it comes within `limit`; an error if the process is gone.
    pub(crate) fn reply(&mut self, limit: Duration) -> io::Result<Option<Reply>> {
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        if poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&limit))? == 0 {
            return Ok(None);
        }
        let mut head = [0; 24];
        self.stream.read_exact(&mut head)?;
        let mut fields = Fields(&head);
        let (low, high) = (fields.u32(), fields.i32());
        let result = i64::from(high) << 32 | i64::from(low);
        let (error, pipes, length) = (fields.i32(), fields.i32(), fields.u32());
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data)?;
        self.busy = false;
        Ok(Some(Reply { result, error, pipes, data }))
    }
}
