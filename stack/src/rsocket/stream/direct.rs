//! Direct placement: buffers that the peer may write to by offset (riomap, riounmap, riowrite).

use std::collections::VecDeque;

use super::post::Target;
use super::send::Transfers;
use super::{State, Stream};
use crate::device::messages::{Access, Memory, Messages, Region};
use crate::error::Error;
use crate::roce::Flaw;
use crate::rsocket::config::TARGET_ENTRIES;
use crate::rsocket::wire::{IomapEntry, Message, TargetSge};
use crate::time::Instant;

/// A buffer that was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The offset that the peer's direct writes name it by.
    pub offset: u64,
    /// The buffer.
    pub region: Region,
    /// The entry of the peer's table that says so; `None`: it is local alone.
    index: Option<u16>,
}

/// Where bytes go that a device need not carry: [`Stream::direct_target`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectTarget {
    /// The stream's own queue pair.
    pub qp: u32,
    /// The peer's region, by its remote key.
    pub key: u32,
    /// Where the first byte goes.
    pub address: u64,
    /// So many bytes are mapped there.
    pub len: u32,
}

/// The buffers of one stream.
#[derive(Debug, Default)]
pub(super) struct Direct {
    mappings: Vec<Mapping>,
    /// Those of which the peer is still to be told.
    untold: VecDeque<Mapping>,
}

impl Direct {
    pub(super) fn destroy<D: Messages>(&mut self, device: &mut D) {
        for mapping in core::mem::take(self).mappings {
            device.deregister(mapping.region.key);
        }
    }
}

impl Stream {
    /// Whether [`Stream::send_mappings`] has anything to do.
    #[inline(always)]
    pub(super) fn has_mappings_to_tell(&self) -> bool {
        !self.direct.untold.is_empty()
    }

    /// Maps a buffer: for direct writes of the peer's at `offset`, or at its own address, if `remote`; else for nobody but us. The peer knows of it once it
    /// gets what is sent after this.
    ///
    /// # Errors
    /// [`Error::NotConnected`]; [`Error::NoBuffers`]: the peer's table is full (it has no room at first: RDMA_IOMAPSIZE), or the device's; [`Error::Invalid`]:
    /// it is longer than 4 GiB, or its offsets wrap.
    pub fn map<D: Messages>(&mut self, device: &mut D, memory: D::Memory, remote: bool, offset: Option<u64>) -> Result<Mapping, Error> {
        let peer = self.peer.filter(|_| self.state == State::Connected).ok_or(Error::NotConnected)?;
        let len = u32::try_from(memory.len()).map_err(|_| Error::Invalid)?;
        if offset.is_some_and(|offset| offset.checked_add(u64::from(len)).is_none()) {
            return Err(Error::Invalid);
        }
        let index = if remote {
            let taken = |index: u16| self.direct.mappings.iter().any(|mapping| mapping.index == Some(index));
            Some((0..peer.iomap.len as u16).find(|index| !taken(*index)).ok_or(Error::NoBuffers)?)
        } else {
            None
        };
        let access = if remote { Access::LOCAL_WRITE | Access::REMOTE_WRITE } else { Access::LOCAL_WRITE };
        let region = device.register(self.pd, memory, access).map_err(|_| Error::NoBuffers)?;
        let mapping = Mapping { offset: offset.unwrap_or(region.address), region, index };
        self.direct.mappings.push(mapping);
        if remote {
            self.direct.untold.push_back(mapping);
        }
        Ok(mapping)
    }

    /// Ends a mapping and gives its memory back. The peer is not told: should it write there, the connection ends.
    ///
    /// # Errors
    /// [`Error::Invalid`]: no buffer of that address and length is mapped.
    pub fn unmap<D: Messages>(&mut self, device: &mut D, address: u64, len: u64) -> Result<D::Memory, Error> {
        let is_it = |mapping: &Mapping| (mapping.region.address, mapping.region.len) == (address, len);
        let at = self.direct.mappings.iter().position(is_it).ok_or(Error::Invalid)?;
        let mapping = self.direct.mappings.remove(at);
        self.direct.untold.retain(|other| *other != mapping);
        device.deregister(mapping.region.key).ok_or(Error::Invalid)
    }

    /// Tells the peer of mappings, before what is sent next.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: there is no room for that; why the connection failed.
    #[inline(never)]
    pub(super) fn send_mappings<D: Messages>(&mut self, now: Instant, device: &mut D) -> Result<(), Error> {
        while let Some(mapping) = self.direct.untold.front().copied() {
            if !self.may_send(now, device) {
                return Err(self.check_writable().err().unwrap_or(Error::WouldBlock));
            }
            let (Some(peer), Some(index)) = (self.peer, mapping.index) else { return Ok(()) };
            let buffer = TargetSge { address: mapping.region.address, key: mapping.region.key, len: mapping.region.len as u32 };
            let entry = IomapEntry { offset: mapping.offset, buffer };
            let address = peer.iomap.address.wrapping_add(u64::from(index) * IomapEntry::LEN as u64);
            let target = Target { address, key: peer.iomap.key };
            self.tx.seq = self.tx.seq.wrapping_add(1);
            self.tx.free_requests -= self.requests_of_a_message();
            self.direct.untold.pop_front();
            let message = Message::IomapSgl(index);
            self.with_bytes(device, &entry.emit(peer.order), |stream, device, data| {
                stream.post_message(now, device, message, data, target)
            })?;
        }
        Ok(())
    }

    /// The peer's mapping that covers `offset`, as the peer wrote it into our table.
    fn mapping_at<D: Messages>(&self, device: &D, offset: u64) -> Option<(Target, u32)> {
        let memory = device.memory(self.tables.key)?;
        // The table follows that of targets.
        let behind = u64::from(TARGET_ENTRIES) * TargetSge::LEN as u64;
        let entries = (0..u64::from(self.sizes.iomap)).map(|index| {
            let mut bytes = [0; IomapEntry::LEN];
            memory.read(behind + index * IomapEntry::LEN as u64, &mut bytes);
            IomapEntry::parse(&bytes, self.host.order)
        });
        let (entry, left) = entries.filter_map(|entry| Some((entry, entry.covers(offset)?))).next()?;
        let further = u64::from(self.host.has(Flaw::DirectWritesFurtherOn));
        let address = entry.buffer.address.wrapping_add(offset - entry.offset + further);
        Some((Target { address, key: entry.buffer.key }, left))
    }

    /// Where the peer mapped `offset`, for who writes there in another way than by the device, and sees to it that what was posted to the queue pair before
    /// is not overtaken ([`crate::roce::SoftRoce::caught_up_peer`]). `None`: nothing is mapped there, or [`Stream::write_direct`] has to have its turn, for writes before this
    /// one are on their way.
    ///
    /// # Errors
    /// As [`Stream::send`]'s.
    pub fn direct_target<D: Messages>(&mut self, now: Instant, device: &mut D, offset: u64) -> Result<Option<DirectTarget>, Error> {
        self.poll(now, device);
        match self.check_writable().and_then(|()| self.send_mappings(now, device)) {
            Err(Error::WouldBlock) => return Ok(None),
            done => done?,
        }
        if !self.is_live() || self.tx.direct_writes > 0 {
            return Ok(None);
        }
        let target = self.mapping_at(device, offset);
        Ok(target.map(|(Target { address, key }, len)| DirectTarget { qp: self.qp, key, address, len }))
    }

    /// A write to a [`DirectTarget`] found that the peer has no such memory: the connection ends, as it does where the peer refuses one.
    pub fn fail_direct<D: Messages>(&mut self, now: Instant, device: &mut D) {
        self.refuse(now, device);
    }

    /// Writes bytes from the front of `bytes` to where the peer mapped `offset`, as many as there is room for and as are mapped there, and gives how many. They
    /// are there before what is sent later is received.
    ///
    /// # Errors
    /// As [`Stream::send`]'s.
    pub fn write_direct<D: Messages>(&mut self, now: Instant, device: &mut D, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        self.check_writable().or_else(|error| if error == Error::WouldBlock { Ok(()) } else { Err(error) })?;
        self.send_mappings(now, device)?;
        let (mut done, mut transfers, mut is_blocked) = (0, Transfers::new(self.host.transfer_first), false);
        while done < bytes.len() {
            let Some(at) = offset.checked_add(done as u64) else { break };
            if !self.may_send(now, device) {
                is_blocked = true;
                break;
            }
            let Some((target, mapped)) = self.mapping_at(device, at) else { break };
            let len = transfers.next(bytes.len() - done).min(self.tx.room).min(mapped);
            self.tx.free_requests -= 1;
            self.tx.direct_writes += 1;
            let piece = &bytes[done..done + len as usize];
            let message = Message::Write(len);
            if self.with_bytes(device, piece, |stream, device, data| stream.post_write(now, device, message, data, target)).is_err() {
                is_blocked = true;
                break;
            }
            done += len as usize;
        }
        if done == 0 && is_blocked { Err(self.check_writable().err().unwrap_or(Error::WouldBlock)) } else { Ok(done) }
    }
}
