//! A question to the kernel and its answers: whole, or asked again.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, NetlinkBuffer, NetlinkHeader,
};

use super::Error;
use super::socket::Socket;

/// How often a dump is begun anew whose state changed meanwhile, and a snapshot that did.
pub(super) const TRIES_MAX: u32 = 16;

/// As long as the kernel's own limit of a dump's message (32 KiB), and more; it grows.
const BUFFER: usize = 64 * 1024;

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;

/// Asks, and collects answers.
#[derive(Debug)]
pub(super) struct Questions {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

/// How a dump ended.
enum End {
    Whole,
    /// The state changed meanwhile, so that entries may be missing or there twice (NLM_F_DUMP_INTR).
    Interrupted,
    /// The kernel's answer was an error number.
    Refused(i32),
}

impl Questions {
    /// Of rtnetlink(7).
    pub(super) fn new() -> Result<Self, Error> {
        Self::of(libc::NETLINK_ROUTE)
    }

    /// Of one of netlink's protocols.
    pub(super) fn of(protocol: i32) -> Result<Self, Error> {
        Ok(Self { socket: Socket::open(protocol).map_err(Error::Open)?, sequence: 0, buffer: vec![0; BUFFER] })
    }

    /// Everything of one kind that there is: each answer's payload is given to `parse`, which says `None` for what it leaves out. A kernel that
    /// has no such thing (EOPNOTSUPP: built without IPv6, or without rules) gives nothing.
    pub(super) fn dump<T>(
        &mut self,
        what: &'static str,
        kind: u16,
        body: &[u8],
        parse: impl Fn(&[u8]) -> Result<Option<T>, Error>,
    ) -> Result<Option<Vec<T>>, Error> {
        for _ in 0..TRIES_MAX {
            let mut all = Vec::new();
            let end = self.ask(what, kind, NLM_F_DUMP, body, |payload| {
                all.extend(parse(payload)?);
                Ok(())
            });
            match end {
                Ok(End::Whole) => return Ok(Some(all)),
                Ok(End::Interrupted) => {}
                Ok(End::Refused(libc::EOPNOTSUPP | libc::EAFNOSUPPORT)) => return Ok(None),
                Ok(End::Refused(errno)) => return Err(Error::Ask { what, error: io::Error::from_raw_os_error(errno) }),
                // (The message did not fit, and the buffer has grown; or the kernel lacked memory for a moment.)
                Err(Error::Ask { error, .. }) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Unsettled { what, tries: TRIES_MAX })
    }

    /// One question with one answer, or the kernel's error number.
    pub(super) fn get<T>(
        &mut self,
        what: &'static str,
        kind: u16,
        body: &[u8],
        parse: impl Fn(&[u8]) -> Result<T, Error>,
    ) -> Result<Result<T, i32>, Error> {
        let mut answer = None;
        let end = self.ask(what, kind, 0, body, |payload| {
            answer = Some(parse(payload)?);
            Ok(())
        })?;
        match (end, answer) {
            (End::Refused(errno), _) => Ok(Err(errno)),
            (_, Some(answer)) => Ok(Ok(answer)),
            (_, None) => Err(Error::Malformed { what }),
        }
    }

    /// Something that the kernel is to do, which it acknowledges; or its error number.
    pub(super) fn tell(&mut self, what: &'static str, kind: u16, flags: u16, body: &[u8]) -> Result<Result<(), i32>, Error> {
        match self.ask(what, kind, flags | NLM_F_ACK, body, |_| Ok(()))? {
            End::Refused(errno) => Ok(Err(errno)),
            End::Whole | End::Interrupted => Ok(Ok(())),
        }
    }

    fn ask(
        &mut self,
        what: &'static str,
        kind: u16,
        flags: u16,
        body: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<End, Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let failed = |error| Error::Ask { what, error };
        self.socket.send(&message(kind, NLM_F_REQUEST | flags, self.sequence, body)).map_err(failed)?;
        let mut end = End::Whole;
        loop {
            let received = self.socket.receive(&mut self.buffer).map_err(failed)?;
            for answer in Messages(received) {
                let (header, payload) = answer.map_err(|Malformed| Error::Malformed { what })?;
                // What is left of a question that was given up.
                if header.sequence_number != self.sequence {
                    continue;
                }
                if header.flags & NLM_F_DUMP_INTR != 0 {
                    end = End::Interrupted;
                }
                match header.message_type {
                    // (An error number is there as well.)
                    NLMSG_DONE => return Ok(refusal(payload).map_or(end, End::Refused)),
                    // (Without a number, it acknowledges what was told.)
                    NLMSG_ERROR if flags & NLM_F_ACK != 0 => return Ok(refusal(payload).map_or(End::Whole, End::Refused)),
                    NLMSG_ERROR => return Ok(End::Refused(refusal(payload).unwrap_or(libc::EIO))),
                    NLMSG_NOOP | NLMSG_OVERRUN => {}
                    _ => take(payload)?,
                }
                if flags & NLM_F_DUMP == 0 {
                    return Ok(end);
                }
            }
        }
    }
}

/// Whether it may go well the next time.
fn is_passing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::OutOfMemory || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// The error number at the beginning of NLMSG_ERROR and NLMSG_DONE, which is negative there; `None`: it is 0, or there is none.
fn refusal(payload: &[u8]) -> Option<i32> {
    let number = i32::from_ne_bytes(*payload.first_chunk()?);
    (number != 0).then_some(number.wrapping_neg())
}

/// A message of one header and a body.
pub(super) fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADER];
    message.extend_from_slice(body);
    let mut buffer = NetlinkBuffer::new(&mut message);
    buffer.set_length((HEADER + body.len()) as u32);
    buffer.set_message_type(kind);
    buffer.set_flags(flags);
    buffer.set_sequence_number(sequence);
    buffer.set_port_number(0);
    message
}

/// It is not made as netlink(7) says.
#[derive(Debug)]
pub(super) struct Malformed;

/// The messages in what was received at once: header and payload.
pub(super) struct Messages<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Result<(NetlinkHeader, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = core::mem::take(&mut self.0);
        let Ok(buffer) = NetlinkBuffer::new_checked(bytes) else {
            return Some(Err(Malformed));
        };
        let length = buffer.length() as usize;
        let Some(payload) = bytes.get(HEADER..length) else {
            return Some(Err(Malformed));
        };
        self.0 = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        let mut header = NetlinkHeader::default();
        header.length = buffer.length();
        header.message_type = buffer.message_type();
        header.flags = buffer.flags();
        header.sequence_number = buffer.sequence_number();
        Some(Ok((header, payload)))
    }
}
