//! What the library has the card make and end: queues in the card's memory, registered memory, rules.

use std::rc::Rc;

use rdma_core_sys as sys;
use ringway_host::EventFd;
use ringway_sim::connectx::cqe::CqeSize;
use ringway_sim::connectx::cqe::compressed::{self, Compression};
use ringway_sim::connectx::queues::{
    CompletionQueue, CqConfig, NEVER_ARMED, QueueBuffer, ReceiveConfig, ReceiveLayout, ReceiveQueue, Receiver as Receives, SendConfig,
    SendQueue,
};
use ringway_sim::connectx::rss::{HashFields, KEY_LEN};
use ringway_sim::connectx::steering::Rule;
use ringway_sim::connectx::wqe::{SendRules, Transport};
use ringway_sim::connectx::{Access, Memory as _, Region};

use super::super::laws::STRIDING;
use super::super::laws::pacing::Rate;
use super::registers::Page;
use super::{Card, Completions, Hash, Receiver, Sender, Told, state};

/// Longest frame: an MTU of 9000, the Ethernet header and a tag.
const FRAME_MAX: u32 = 9018;
/// Most payload of a large send.
pub(crate) const TSO_MAX: u32 = 1 << 18;
/// Receives of a compressed run at most.
pub(crate) const RUN_MAX: u32 = 64;
/// The page that whoever has none of his own rings at.
const SHARED_PAGE: usize = 0;

/// A queue that was made: its number, and where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) number: u32,
    pub(crate) buf: *mut u8,
    pub(crate) record: *mut u32,
    pub(crate) entries: u32,
    /// Bytes of an entry.
    pub(crate) stride: u32,
    /// Its register page.
    pub(crate) page: *mut u8,
}

fn log(count: u32) -> u8 {
    count.ilog2() as u8
}

impl Card {
    /// Whether it does what it is asked, or an errno.
    pub(crate) fn may(&mut self) -> Result<(), i32> {
        self.trouble.refuses(self.now)
    }

    /// A number that no object has.
    pub(crate) fn number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    /// One object more of those that are only counted, or one less.
    pub(crate) fn count_one(&mut self, more: bool) {
        self.others = self.others + usize::from(more) - usize::from(!more);
    }

    /// Objects that there are.
    pub(crate) fn objects(&self) -> usize {
        self.senders.len()
            + self.receivers.len()
            + self.completions.len()
            + self.hashes.len()
            + self.own_memory.len()
            + self.steering.rules().count()
            + self.others
    }

    pub(crate) fn fds(&self) -> [i32; 2] {
        [self.command_fd.fd(), self.async_fd.fd()]
    }

    /// # Safety
    /// As of `Reach::add`.
    pub(crate) unsafe fn register(&mut self, pd: u32, base: *mut u8, len: usize) -> Result<u32, i32> {
        self.may()?;
        // (The number that ends scatter lists is no key.)
        let key = 0x1000 + self.number();
        let region = Region { pd, addr: base.addr() as u64, at: base.addr() as u64, len: len as u64, access: Access::LOCAL_WRITE };
        self.queues.keys.register(key, region);
        // SAFETY: the caller's promise.
        unsafe { self.memory.add(base, len) };
        self.count_one(true);
        Ok(key)
    }

    pub(crate) fn deregister(&mut self, key: u32) {
        if let Some(region) = self.queues.keys.deregister(key) {
            // (What is named from zero on is the card's own.)
            if region.addr == region.at {
                self.memory.remove(core::ptr::with_exposed_provenance_mut(region.addr as usize));
            }
            self.count_one(false);
        }
    }

    fn page(&mut self, page: usize) -> *mut u8 {
        let memory = &mut self.memory;
        self.pages.entry(page).or_insert_with(|| Page { base: memory.add_own(4096).cast() }).base.cast()
    }

    /// Of so many completions at least.
    pub(crate) fn make_cq(
        &mut self,
        raw: *mut sys::ibv_cq,
        least: u32,
        channel: Option<Rc<EventFd>>,
        compression: Option<Compression>,
    ) -> Result<Made, i32> {
        self.may()?;
        let (number, entries) = (self.number(), (least + 1).next_power_of_two());
        // (Each is armed on a page of its own, since one call of the driver's may arm several.)
        let page = self.page(number as usize);
        let size = self.trouble.cqe_size();
        let stride = size.bytes() as u32;
        let (buf, record) = (self.memory.add_own((entries * stride) as usize), self.memory.add_own(8).cast::<u32>());
        for entry in 0..entries {
            let mut bytes = [0; 64];
            compressed::invalidate(&mut bytes);
            let at = buf.addr() as u64 + u64::from(entry * stride) + size.offset();
            self.memory.write(at, &bytes).map_err(|_| libc::EFAULT)?;
        }
        let (addr, record_at) = (buf.addr() as u64, record.addr() as u64);
        self.memory.write(record_at + 4, &NEVER_ARMED.to_be_bytes()).map_err(|_| libc::EFAULT)?;
        let config = CqConfig { cqn: number, addr, log_entries: log(entries), size, record: record_at, compression };
        self.laws.times_are_shared |= compression.is_some();
        self.queues.add_completion(number, CompletionQueue::new(config));
        self.completions.insert(number, Completions { channel, events: 0, raw, is_broken: false });
        Ok(Made { number, buf, record, entries, stride, page })
    }

    pub(crate) fn end_cq(&mut self, made: &Made) {
        self.queues.remove_completion(made.number);
        if let Some(cq) = self.completions.remove(&made.number) {
            self.told.retain(|told| *told != Told::Cq(cq.raw));
        }
        self.pages.remove(&(made.number as usize));
        self.memory.remove(made.page);
        self.free(made);
    }

    fn free(&mut self, made: &Made) {
        self.memory.remove(made.buf);
        self.memory.remove(made.record.cast());
    }

    /// Takes an event of a completion queue's, if there is one.
    pub(crate) fn take_event(&mut self, number: u32) -> bool {
        let Some(cq) = self.completions.get_mut(&number).filter(|cq| cq.events > 0) else { return false };
        cq.events -= 1;
        if cq.events == 0 {
            cq.channel.iter().for_each(|channel| channel.clear());
        }
        true
    }

    /// A queue pair that sends: of so many blocks, a power of two.
    pub(crate) fn make_sender(
        &mut self,
        raw: *mut sys::ibv_qp,
        (pd, cqn, owner): (u32, u32, u32),
        blocks: u32,
        has_page: bool,
    ) -> Result<Made, i32> {
        self.may()?;
        let number = self.number();
        let page = if has_page { number as usize } else { SHARED_PAGE };
        let entries = blocks.next_power_of_two();
        let (buf, record) = (self.memory.add_own((entries * 64) as usize), self.memory.add_own(8).cast::<u32>());
        let rules = SendRules {
            transport: Transport::Raw,
            qpn: number,
            inline_min: 0,
            ds_max: 63,
            frame_max: FRAME_MAX,
            tso_max: TSO_MAX,
            mpw_max: 0,
            enhanced_mpw: false,
        };
        let ring = QueueBuffer { addr: buf.addr() as u64, log_stride: 6, log_entries: log(entries) };
        let send = SendConfig { rules, ring, record: record.addr() as u64, pd, uidx: 0, cqn };
        self.queues.add_pair(number, SendQueue::new(send), Receives::None);
        self.laws.sends_begin(self.now, owner);
        self.senders.insert(number, Sender { state: 0, cqn, owner, page, raw, rate: Rate::default() });
        Ok(Made { number, buf, record, entries, stride: 64, page: self.page(page) })
    }

    pub(crate) fn modify_sender(&mut self, number: u32, to: u32) -> Result<(), i32> {
        self.may()?;
        self.senders.get_mut(&number).ok_or(libc::EINVAL)?.state = to;
        Ok(())
    }

    pub(crate) fn end_sender(&mut self, made: &Made) {
        self.queues.remove_pair(made.number);
        self.forget_bells(made.number);
        if let Some(sender) = self.senders.remove(&made.number) {
            self.told.retain(|told| *told != Told::Qp(sender.raw));
            if sender.page != SHARED_PAGE {
                self.pages.remove(&sender.page);
                self.memory.remove(made.page);
            }
        }
        self.free(made);
    }

    /// Holds a queue pair to a rate.
    pub(crate) fn pace_sender(&mut self, number: u32, kilobits: u32) -> Result<(), i32> {
        self.may()?;
        let now = self.now;
        self.senders.get_mut(&number).ok_or(libc::EINVAL)?.rate.set(now, u64::from(kilobits) * 1000);
        Ok(())
    }

    /// A receive queue: of one frame an entry, or of many, in strides.
    pub(crate) fn make_receiver(
        &mut self,
        raw: *mut sys::ibv_wq,
        (pd, cqn, ring_number): (u32, u32, u32),
        entries: u32,
        strips: bool,
        layout: ReceiveLayout,
    ) -> Result<Made, i32> {
        self.may()?;
        let (number, entries) = (self.number(), entries.next_power_of_two());
        let (stride, owner) = match layout {
            ReceiveLayout::Cyclic => (self.trouble.receive_stride(), ring_number),
            ReceiveLayout::Striding { .. } => {
                self.queues.completes_strides(cqn);
                (2 * self.trouble.receive_stride().max(16), STRIDING | number)
            }
        };
        let (buf, record) = (self.memory.add_own((entries * stride) as usize), self.memory.add_own(8).cast::<u32>());
        let ring = QueueBuffer { addr: buf.addr() as u64, log_stride: log(stride), log_entries: log(entries) };
        let record_at = record.addr() as u64;
        let config = ReceiveConfig { number, ring, record: record_at, pd, uidx: 0, cqn, layout };
        self.queues.add_receive(number, ReceiveQueue::new(config));
        self.receivers.insert(number, Receiver { config, state: 0, strips, owner, raw });
        Ok(Made { number, buf, record, entries, stride, page: core::ptr::null_mut() })
    }

    /// A receive queue goes to another state. (Where it begins anew, the library sets its record to zero, as libmlx5 does.)
    pub(crate) fn modify_receiver(&mut self, made: &Made, to: u32) -> Result<(), i32> {
        self.may()?;
        let receiver = self.receivers.get_mut(&made.number).ok_or(libc::EINVAL)?;
        let (from, owner, config) = (core::mem::replace(&mut receiver.state, to), receiver.owner, receiver.config);
        match to {
            sys::IBV_WQS_ERR => {
                let actions = self.queues.stop(&mut self.memory, made.number);
                self.act(actions);
            }
            sys::IBV_WQS_RESET => {
                self.queues.add_receive(made.number, ReceiveQueue::new(config));
                self.failed.remove(&made.number);
                self.laws.receives_fail(owner);
            }
            state::READY if from == sys::IBV_WQS_RESET => {
                self.memory.write(config.record, &[0; 4]).map_err(|_| libc::EFAULT)?;
            }
            _ => return Err(libc::EINVAL),
        }
        Ok(())
    }

    pub(crate) fn end_receiver(&mut self, made: &Made) {
        self.queues.remove_pair(made.number);
        self.failed.remove(&made.number);
        if let Some(receiver) = self.receivers.remove(&made.number) {
            self.told.retain(|told| *told != Told::Wq(receiver.raw));
            self.laws.receives_fail(receiver.owner);
        }
        self.free(made);
    }

    /// A hash over receive queues. (Queues that are named twice count twice.)
    pub(crate) fn make_hash(&mut self, key: [u8; KEY_LEN], fields: u64, table: Vec<u32>) -> Result<u32, i32> {
        self.may()?;
        let fields = HashFields::from_bits(fields).filter(|fields| fields.is_possible()).ok_or(libc::EINVAL)?;
        let number = self.number();
        self.hashes.insert(number, Hash { key, fields, table });
        Ok(number)
    }

    pub(crate) fn end_hash(&mut self, number: u32) {
        if self.steering.has(number) {
            self.laws.breach("rule", format_args!("the hash {number:#x} ends, and rules lead to it"));
        }
        self.hashes.remove(&number);
    }

    pub(crate) fn make_rule(&mut self, rule: Rule) -> Result<u32, i32> {
        self.may()?;
        self.steering.add(rule).map_err(|_| libc::EEXIST)
    }

    pub(crate) fn end_rule(&mut self, number: u32) {
        self.steering.remove(number);
    }
}

impl super::Trouble {
    /// Bytes of a completion: as the system is set up, 64 or 128 (the latter where a cache line has as many).
    fn cqe_size(&self) -> CqeSize {
        if self.has_long_cqes { CqeSize::Bytes128 } else { CqeSize::Bytes64 }
    }

    /// Bytes of a receive entry: one segment, or room for two.
    fn receive_stride(&self) -> u32 {
        if self.has_long_receives { 32 } else { 16 }
    }
}

impl Card {
    /// What the end of an object says.
    pub(crate) fn end_answer(&self) -> i32 {
        if self.trouble.life == super::Life::Gone { libc::EIO } else { 0 }
    }

    /// Cycles of its clock in a millisecond.
    pub(crate) fn khz(&self) -> u64 {
        self.khz
    }

    /// The queue of strides that was made last, as the laws know it.
    pub(crate) fn last_striding(&self) -> Option<u32> {
        self.receivers.values().map(|receiver| receiver.owner).filter(|owner| owner & STRIDING != 0).max()
    }

    /// Takes an event of the completion queue whose channel it is.
    pub(crate) fn take_event_of(&mut self, channel: &Rc<EventFd>) -> Option<*mut sys::ibv_cq> {
        let is_its = |cq: &Completions| cq.channel.as_ref().is_some_and(|own| Rc::ptr_eq(own, channel));
        let (number, raw) = self.completions.iter().find(|(_, cq)| is_its(cq)).map(|(number, cq)| (*number, cq.raw))?;
        self.take_event(number).then_some(raw)
    }
}
