//! The queue pair of a ring, and the memory that its datagrams lie in: places of one length, for what is sent and for what is received.

use core::cell::RefCell;
use core::ptr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;
use std::sync::Arc;

use rdma_core_sys as sys;
use ringway_stack::device::messages::{Access, Memory as _, Modify, Pd, Psn, QpConfig, State, Transport};

use crate::adapter::PORT;
use crate::memory::Pages;
use crate::paths::Handle;
use crate::transitions::change_of;
use crate::verbs::{Channel, CompletionQueue, Context, Domain, QueuePair, Registered, done};

/// Bytes before each datagram where it is received: the header of the network, as verbs has it (ibv_post_recv(3); of IPv4, the last 20 of them: IBTA spec, annex A17.4.5.2).
const GRH_LEN: usize = 40;
/// The queue key that everybody has: librdmacm's for RDMA_PS_UDP (rdma_cma.h, RDMA_UDP_QKEY). The kernel's SIDR tells no other.
pub(crate) const QKEY: u32 = 0x0123_4567;
/// Requests that are posted at a time.
const POSTED: usize = 32;

/// To whom a datagram goes.
#[derive(Clone, Debug)]
pub(crate) struct To {
    /// The way there.
    pub(crate) way: Arc<Handle>,
    /// The queue pair's number.
    pub(crate) qpn: u32,
}

/// A datagram that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct From<'a> {
    /// From which address.
    pub(crate) address: IpAddr,
    /// And which queue pair.
    pub(crate) qpn: u32,
    /// Its bytes.
    pub(crate) bytes: &'a [u8],
}

/// See the module's documentation.
pub(crate) struct Datagrams {
    /// Ends first, then what it completes to and what lies in memory: the order of these fields.
    pair: QueuePair,
    sent: CompletionQueue,
    received: RefCell<CompletionQueue>,
    /// Invariant: places of [`Datagrams::len_max`] bytes, of which those in `free`, and no others, are neither queued nor on their way.
    sends: Registered<Pages>,
    /// Invariant: places of [`GRH_LEN`] bytes more.
    receives: Registered<Pages>,
    channel: Arc<Channel>,
    len_max: usize,
    places: usize,
    free: Vec<u32>,
    queued: Vec<(u32, usize, To)>,
    /// Places that are to be posted to receive into.
    repost: Vec<u32>,
    /// The last datagram.
    scratch: Box<[u8]>,
    /// Sends that failed: the queue pair takes none any more.
    pub(crate) has_failed: bool,
}

impl core::fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Datagrams").field("qpn", &self.pair.number()).field("free", &self.free.len()).finish_non_exhaustive()
    }
}

impl Datagrams {
    /// Makes one with so many places for either, of so many bytes; it receives.
    pub(crate) fn open(context: &Arc<Context>, domain: &Arc<Domain>, sends: u32, receives: u32, len_max: usize) -> io::Result<Self> {
        let channel = Arc::new(Channel::new(context)?);
        let places = |count: u32, len: usize| -> io::Result<Registered<Pages>> {
            Registered::new(domain, Pages::new(count as usize * len)?, Access::LOCAL_WRITE.bits())
        };
        let (send_memory, receive_memory) = (places(sends, len_max)?, places(receives, GRH_LEN + len_max)?);
        let sent = CompletionQueue::new(&channel, sends as usize, 0)?;
        let received = CompletionQueue::new(&channel, receives as usize, 1)?;
        let config = QpConfig {
            transport: Transport::Ud,
            pd: Pd(0),
            send_cq: 0,
            recv_cq: 1,
            send_depth: sends as usize,
            recv_depth: receives as usize,
            sges_max: 1,
            inline_max: 0,
        };
        let pair = QueuePair::new(domain, &config, sys::IBV_QPT_UD, [&sent, &received])?;
        let mut state = State::Reset;
        let steps =
            [Modify::Init { access: Access::empty(), qkey: QKEY }, Modify::RtrDatagram, Modify::RtsDatagram { sq_psn: Psn::new(0) }];
        for step in &steps {
            let mut change = change_of(Transport::Ud, state, PORT, step, None).ok_or(io::ErrorKind::Unsupported)?;
            pair.modify(&mut change.attr, change.mask)?;
            state = crate::transitions::state_after(state, step);
        }
        let mut own = Self {
            pair,
            sent,
            received: RefCell::new(received),
            sends: send_memory,
            receives: receive_memory,
            channel,
            len_max,
            places: sends as usize,
            free: (0..sends).collect(),
            queued: Vec::new(),
            repost: (0..receives).collect(),
            scratch: vec![0; GRH_LEN + len_max].into(),
            has_failed: false,
        };
        own.post_receives();
        Ok(own)
    }

    /// The queue pair's number.
    pub(crate) fn number(&self) -> u32 {
        self.pair.number()
    }

    /// The longest datagram.
    pub(crate) const fn len_max(&self) -> usize {
        self.len_max
    }

    /// Places to send from: all, and the free ones.
    pub(crate) const fn places(&self) -> (usize, usize) {
        (self.places, self.free.len())
    }

    /// Readable when something came that was armed for.
    pub(crate) fn channel_fd(&self) -> RawFd {
        self.channel.fd()
    }

    /// Queues a datagram of these pieces, if there is a free place, which the caller has seen to.
    pub(crate) fn queue(&mut self, to: &To, pieces: [&[u8]; 2]) {
        let Some(place) = self.free.pop() else { return };
        let mut at = 0;
        for bytes in pieces {
            self.sends.memory.write((place as usize * self.len_max + at) as u64, bytes);
            at += bytes.len();
        }
        self.queued.push((place, at, to.clone()));
    }

    /// Posts what is queued: one call of the device's for many.
    pub(crate) fn doorbell(&mut self) {
        let Some((lkey, _)) = self.sends.keys() else { return };
        let start = self.sends.memory.start().as_ptr().expose_provenance() as u64;
        let mut queued = core::mem::take(&mut self.queued);
        for some in queued.chunks(POSTED) {
            let mut sges = [sys::ibv_sge { addr: 0, length: 0, lkey }; POSTED];
            let mut wrs = [sys::ibv_send_wr::default(); POSTED];
            for (at, (place, len, to)) in some.iter().enumerate() {
                (sges[at].addr, sges[at].length) = (start + u64::from(*place) * self.len_max as u64, *len as u32);
                let ud = sys::ibv_send_wr_ud { ah: to.way.raw(), remote_qpn: to.qpn, remote_qkey: QKEY };
                wrs[at] = sys::ibv_send_wr {
                    wr_id: u64::from(*place),
                    num_sge: 1,
                    opcode: sys::IBV_WR_SEND,
                    send_flags: sys::IBV_SEND_SIGNALED,
                    wr: sys::ibv_send_wr_op { ud },
                    ..sys::ibv_send_wr::default()
                };
            }
            let (first, list) = (wrs.as_mut_ptr(), sges.as_mut_ptr());
            let mut bad = ptr::null_mut();
            // SAFETY: the requests and their pieces are in these arrays until the call is over, each followed by the next; the places are the queue pair's until their completions
            // come, and the address handles are there while they are queued: to post them is to have them read.
            let (errno, posted) = unsafe {
                for at in 0..some.len() {
                    (*first.add(at)).sg_list = list.add(at);
                    (*first.add(at)).next = if at + 1 < some.len() { first.add(at + 1) } else { ptr::null_mut() };
                }
                let errno = sys::ibv_post_send(self.pair.raw(), first, &raw mut bad);
                let posted = if errno == 0 { some.len() } else { usize::try_from(bad.offset_from(first)).unwrap_or(0).min(some.len()) };
                (errno, posted)
            };
            if let Err(error) = done(errno) {
                // (They are lost, as frames may be.)
                tracing::debug!("{} datagrams are not posted: {error}", some.len() - posted);
                self.free.extend(some[posted..].iter().map(|(place, ..)| place));
            }
        }
        queued.clear();
        self.queued = queued;
    }

    /// Takes back the places of what has been sent.
    pub(crate) fn reap(&mut self) {
        while let Some(&wc) = self.sent.poll() {
            self.free.push(wc.wr_id as u32);
            if wc.status != sys::IBV_WC_SUCCESS {
                // (A UD queue pair whose send failed sends no more: IBTA spec, s10.3.1.)
                tracing::debug!("a datagram is not sent: status {}", wc.status);
                self.has_failed = true;
            }
        }
    }

    /// Whether something has come.
    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.received.borrow_mut().look()
    }

    /// The next datagram.
    pub(crate) fn next(&mut self) -> Option<From<'_>> {
        loop {
            let &wc = self.received.get_mut().poll()?;
            let place = wc.wr_id as u32;
            let len = (wc.byte_len as usize).min(self.scratch.len());
            if wc.status != sys::IBV_WC_SUCCESS {
                // (Flushed: the queue pair has failed, and what is posted again would be, too.)
                self.has_failed = true;
                continue;
            }
            let at = place as usize * (GRH_LEN + self.len_max);
            self.receives.memory.read(at as u64, &mut self.scratch[..len]);
            self.repost.push(place);
            if self.repost.len() >= POSTED {
                self.post_receives();
            }
            if wc.wc_flags & sys::IBV_WC_GRH == 0 || len < GRH_LEN {
                continue;
            }
            let Some(address) = source_of(&self.scratch[..GRH_LEN]) else { continue };
            return Some(From { address, qpn: wc.src_qp, bytes: &self.scratch[GRH_LEN..len] });
        }
    }

    /// Posts what was read, to be received into again.
    pub(crate) fn post_receives(&mut self) {
        let Some((lkey, _)) = self.receives.keys() else { return };
        let start = self.receives.memory.start().as_ptr().expose_provenance() as u64;
        let len = GRH_LEN + self.len_max;
        while !self.repost.is_empty() && !self.has_failed {
            let from = self.repost.len().saturating_sub(POSTED);
            let some = &self.repost[from..];
            let mut sges = [sys::ibv_sge { addr: 0, length: len as u32, lkey }; POSTED];
            let mut wrs = [sys::ibv_recv_wr::default(); POSTED];
            for (at, &place) in some.iter().enumerate() {
                sges[at].addr = start + u64::from(place) * len as u64;
                (wrs[at].wr_id, wrs[at].num_sge) = (place.into(), 1);
            }
            let (first, list) = (wrs.as_mut_ptr(), sges.as_mut_ptr());
            let mut bad = ptr::null_mut();
            // SAFETY: as for sends: the arrays last as long as the call, and the places are the queue pair's until their completions come.
            let errno = unsafe {
                for at in 0..some.len() {
                    (*first.add(at)).sg_list = list.add(at);
                    (*first.add(at)).next = if at + 1 < some.len() { first.add(at + 1) } else { ptr::null_mut() };
                }
                sys::ibv_post_recv(self.pair.raw(), first, &raw mut bad)
            };
            self.repost.truncate(from);
            if let Err(error) = done(errno) {
                tracing::error!("nothing more is received into {POSTED} places: {error}");
                self.has_failed = true;
            }
        }
    }

    /// Makes the channel readable at what comes next. `false`: something is there.
    pub(crate) fn arm(&mut self) -> bool {
        while self.channel.next_event().is_some() {}
        let received = self.received.get_mut();
        received.arm(false);
        !received.look()
    }

    /// Takes what the channel has to tell: completions are looked for anyway.
    pub(crate) fn disarm(&mut self) {
        while self.channel.next_event().is_some() {}
    }
}

/// The address in a header of the network.
fn source_of(header: &[u8]) -> Option<IpAddr> {
    let at = |from: usize| header.get(from..from + 16).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    if header.first()? >> 4 == 6 {
        return at(8).map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical());
    }
    match header.get(20..36)? {
        [first, .., s0, s1, s2, s3] if first >> 4 == 4 => Some(IpAddr::V4(Ipv4Addr::new(*s0, *s1, *s2, *s3))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_found_whichever_network_it_is_of() {
        let mut header = [0; GRH_LEN];
        assert_eq!(source_of(&header), None);
        (header[20], header[32], header[35]) = (0x45, 10, 1);
        assert_eq!(source_of(&header), Some(Ipv4Addr::new(10, 0, 0, 1).into()));
        header = [0; GRH_LEN];
        (header[0], header[8], header[23]) = (0x60, 0xfd, 7);
        assert_eq!(source_of(&header), Some("fd00::7".parse().unwrap()));
        assert_eq!(source_of(&header[..19]), None);
    }
}
