//! Datagrams (RFC 768): a program reads only what a program sent, whole, to that address, and no more often than it arrived.

use core::hash::BuildHasherDefault;
use std::io::IoSlice;
use std::net::SocketAddr;

use hashbrown::HashMap;
use ringway_stack::ring::FlowId;

use super::Moment;
use super::flow::TupleHasher;

const NAME: &str = "datagrams";

/// Datagrams are remembered until so many others were seen, and then as many again.
const MEMORY: usize = 1 << 17;

/// A datagram: from, to, its length, and a hash of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    len: usize,
    hash: u64,
}

impl Datagram {
    pub(super) fn new(from: SocketAddr, to: SocketAddr, bytes: &[u8]) -> Self {
        Self { from, to, len: bytes.len(), hash: crate::trace::hash_bytes(bytes) }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// What is counted of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Sent,
    /// By somebody who forged it.
    Forged,
    Delivered(usize),
    Read(usize, FlowId),
}

type Counts = HashMap<(Datagram, What), u32, BuildHasherDefault<TupleHasher>>;

/// What was sent, delivered and read lately.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    young: Counts,
    old: Counts,
    scratch: Vec<u8>,
}

impl Datagrams {
    fn count(&self, datagram: Datagram, what: What) -> u32 {
        let key = (datagram, what);
        self.young.get(&key).or_else(|| self.old.get(&key)).copied().unwrap_or(0)
    }

    fn note(&mut self, datagram: Datagram, what: What) {
        let count = self.count(datagram, what);
        if self.young.len() >= MEMORY {
            self.old = core::mem::take(&mut self.young);
        }
        self.young.insert((datagram, what), count.saturating_add(1));
    }

    /// A program sent it.
    pub(super) fn written(&mut self, from: SocketAddr, to: SocketAddr, data: &[IoSlice<'_>]) -> Datagram {
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.clear();
        data.iter().for_each(|slice| scratch.extend_from_slice(slice));
        let datagram = Datagram::new(from, to, &scratch);
        self.note(datagram, What::Sent);
        self.scratch = scratch;
        datagram
    }

    /// It is on the wire; `watched`: and its sender's calls are seen.
    pub(super) fn sent(&mut self, moment: &Moment, datagram: Datagram, watched: bool) {
        if !watched {
            self.note(datagram, What::Sent);
        } else if self.count(datagram, What::Sent) == 0 {
            let Datagram { from, to, len, .. } = datagram;
            moment.breach(NAME, format_args!("RFC 768: {len} bytes from {from} to {to} on the wire, which no program sent like that"));
        }
    }

    /// It arrived; `tainted`: corrupted, where no checksum tells; `forged`: from somebody who pretends.
    pub(super) fn delivered(&mut self, host: usize, datagram: Datagram, tainted: bool, forged: bool) {
        if forged {
            self.note(datagram, What::Forged);
        }
        if tainted {
            self.note(datagram, What::Sent);
        }
        self.note(datagram, What::Delivered(host));
    }

    /// How often it was read from this socket, and how often it arrived at its host.
    pub(super) fn reads(&self, host: usize, socket: FlowId, datagram: Datagram) -> (u32, u32) {
        (self.count(datagram, What::Read(host, socket)), self.count(datagram, What::Delivered(host)))
    }

    /// A program read it. `open`: from a socket that hears everybody.
    pub(super) fn read(&mut self, moment: &Moment, socket: FlowId, datagram: Datagram, peek: bool, open: bool) {
        let Datagram { from, to, len, .. } = datagram;
        if self.count(datagram, What::Sent) == 0 && !(open && self.count(datagram, What::Forged) > 0) {
            moment.breach(NAME, format_args!("RFC 768: a datagram of {len} bytes from {from} to {to}, which nobody sent like that"));
        }
        let what = What::Read(moment.host, socket);
        let (read, arrived) = (self.count(datagram, what), self.count(datagram, What::Delivered(moment.host)));
        // What a host sends to itself never comes by the wire.
        let looped = moment.ip == Some(from.ip()) && !to.ip().is_multicast();
        if read >= arrived && !looped {
            moment.breach(
                NAME,
                format_args!("a datagram of {len} bytes from {from} to {to} was read {} times, and came {arrived}", read + 1),
            );
        }
        if !peek {
            self.note(datagram, what);
        }
    }
}
