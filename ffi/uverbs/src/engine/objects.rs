//! What programs made: contexts with their objects, and what the card's queues belong to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ringway_preload::Errno;
use ringway_sim::connectx::queues::{Receiver, SendConfig};
use ringway_stack::roce::qp::Transport;

use super::{Channel, Engine, Told};
use crate::descriptors::Kind;

/// What an open device is to a program.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// Descriptors of it.
    descriptors: u32,
    /// It is the parent's of this process, which has none of its objects.
    pub(crate) is_inherited: bool,
    pub(crate) objects: BTreeMap<u32, Object>,
    next_handle: u32,
    /// Receive queues that hashes choose from, by handle: numbers of them.
    pub(crate) tables: BTreeMap<u32, Vec<u32>>,
    /// The device's end of the descriptor of asynchronous events.
    pub(crate) events: Option<Channel>,
}

/// An object, by its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// A protection domain: its number.
    Pd(u32),
    /// A memory region: its protection domain's handle, its key, and the handle of the memory on the card that it is of, or zero.
    Mr { pd: u32, key: u32, dm: u32 },
    /// Memory on the card: where it begins.
    Dm(usize),
    /// A completion queue: its number.
    Cq(u32),
    /// A queue pair, raw or not: its protection domain's handle, its number.
    Qp { pd: u32, qpn: u32 },
    /// A shared receive queue: its protection domain's handle, its number.
    Srq { pd: u32, srqn: u32 },
    /// An address.
    Ah { pd: u32 },
    /// A register page: its number.
    Uar(u32),
    /// A receive queue of its own: its protection domain's handle, its number.
    Wq { pd: u32, number: u32 },
    /// A table of such queues, which is in `Context::tables`.
    Table,
    /// A flow rule: its number.
    Flow(u32),
}

/// A completion queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cq {
    /// Its channel, or zero.
    pub(crate) channel: u32,
    /// What events name it by.
    pub(crate) user_handle: u64,
    /// Events that were told.
    pub(crate) events: u32,
    pub(crate) told: Told,
}

/// A shared receive queue's geometry, as the program gets it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Srq {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) told: Told,
}

/// A queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Qp {
    pub(crate) transport: Transport,
    /// The shared receive queue, or zero.
    pub(crate) srq: u32,
    pub(crate) recv_cqn: u32,
    pub(crate) uidx: u32,
    /// As made, to be made anew by RESET.
    pub(crate) send: SendConfig,
    pub(crate) receiver: Receiver,
    /// max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data.
    pub(crate) caps: [u32; 5],
    pub(crate) signals_all: bool,
    pub(crate) attributes: Attributes,
    pub(crate) told: Told,
    /// A completion said that it failed, or the program made it: no event tells of its error.
    pub(crate) knows: bool,
    /// Groups that it hears, of datagrams.
    pub(crate) groups: BTreeSet<IpAddr>,
}

/// The attributes that a program set last (rdma/ib_user_verbs.h, `ib_uverbs_qp_dest` and `ib_uverbs_modify_qp`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) gid: [u8; 16],
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) sl: u8,
    pub(crate) is_global: u8,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp: u32,
    pub(crate) access: u32,
    pub(crate) path_mtu: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
}

impl Context {
    /// Adds an object; its handle.
    pub(crate) fn add(&mut self, object: Object) -> u32 {
        self.next_handle += 1;
        self.objects.insert(self.next_handle, object);
        self.next_handle
    }

    /// The protection domain of a handle.
    ///
    /// # Errors
    /// EINVAL, as the kernel has for a handle of nothing in a command of the older interface.
    pub(crate) fn pd(&self, handle: u32) -> Result<u32, Errno> {
        match self.objects.get(&handle) {
            Some(Object::Pd(pd)) => Ok(*pd),
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    /// The completion queue of a handle.
    ///
    /// # Errors
    /// As [`pd`](Self::pd).
    pub(crate) fn cq(&self, handle: u32) -> Result<u32, Errno> {
        match self.objects.get(&handle) {
            Some(Object::Cq(cqn)) => Ok(*cqn),
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    /// The number of the register page of a handle; zero: it is of none.
    pub(crate) fn page(&self, handle: u32) -> u32 {
        match self.objects.get(&handle) {
            Some(Object::Uar(number)) => *number,
            _ => 0,
        }
    }

    /// Whether another object lives in the protection domain.
    pub(crate) fn uses_pd(&self, handle: u32) -> bool {
        self.objects.values().any(|object| match object {
            Object::Mr { pd, .. } | Object::Qp { pd, .. } | Object::Srq { pd, .. } | Object::Ah { pd } | Object::Wq { pd, .. } => {
                *pd == handle
            }
            Object::Pd(_) | Object::Cq(_) | Object::Uar(_) | Object::Dm(_) | Object::Table | Object::Flow(_) => false,
        })
    }
}

impl Engine {
    /// Opens a context, with one descriptor.
    pub(crate) fn open(&mut self) -> u32 {
        let number = self.number();
        self.contexts.insert(number, Context { descriptors: 1, ..Context::default() });
        number
    }

    /// A context of the parent's is used, of that number, which no other has.
    pub(crate) fn inherit(&mut self, number: u32) {
        self.contexts.insert(number, Context { descriptors: 1, is_inherited: true, ..Context::default() });
    }

    /// Another descriptor of a context.
    pub(crate) fn hold(&mut self, context: u32) {
        if let Some(context) = self.contexts.get_mut(&context) {
            context.descriptors += 1;
        }
    }

    /// Another descriptor of a channel.
    pub(crate) fn hold_channel(&mut self, number: u32) {
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.descriptors += 1;
        }
    }

    /// One descriptor less of a channel, which ends with the last.
    pub(crate) fn close_channel(&mut self, number: u32) {
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.descriptors -= 1;
            if channel.descriptors == 0 {
                self.channels.remove(&number);
            }
        }
    }

    /// One descriptor less of a context, which ends with the last. Whether no context is left.
    pub(crate) fn close(&mut self, number: u32) -> bool {
        self.catch_up();
        if self.contexts.get(&number).is_some_and(|context| context.descriptors == 1) {
            self.bus.drain();
        }
        let Some(context) = self.contexts.get_mut(&number) else { return self.is_unused() };
        context.descriptors -= 1;
        if context.descriptors == 0
            && let Some(context) = self.contexts.remove(&number)
        {
            let mut objects: Vec<Object> = context.objects.values().copied().collect();
            // What uses others goes first.
            objects.sort_by_key(|object| match object {
                Object::Flow(_) => 0,
                Object::Qp { .. } => 1,
                Object::Srq { .. } | Object::Wq { .. } => 2,
                _ => 3,
            });
            objects.into_iter().for_each(|object| self.end(object));
            let now = self.now();
            self.rdma_cm.close(now, &mut self.node, number);
            self.hear_groups();
            // (Peers of its connections are told, as far as there is room.)
            for _ in 0..super::BATCH {
                if !self.transmit() {
                    break;
                }
            }
            self.bus.drain();
        }
        self.is_unused()
    }

    /// Whether no context of the process's own is left.
    fn is_unused(&self) -> bool {
        self.contexts.values().all(|context| context.is_inherited)
    }

    /// Ends an object that nothing uses any more.
    pub(crate) fn end(&mut self, object: Object) {
        match object {
            Object::Mr { key, .. } => {
                self.node.hca_mut().deregister(key);
                self.card.keys.deregister(key);
            }
            Object::Cq(cqn) => {
                self.cqs.remove(&cqn);
                self.rings.remove_completion(cqn);
                self.card.remove_completion(cqn);
            }
            Object::Qp { qpn, .. } => {
                // Its number is this table's own, so there is one.
                let _ = self.node.hca_mut().destroy_qp(qpn);
                self.card.remove_pair(qpn);
                let heard = self.qps.remove(&qpn).is_some_and(|qp| !qp.groups.is_empty());
                self.raws.remove(&qpn);
                self.rings.remove(qpn);
                if heard {
                    self.hear_groups();
                }
            }
            Object::Wq { number, .. } => {
                self.wqs.remove(&number);
                self.card.remove_pair(number);
            }
            Object::Flow(number) => {
                self.remove_rule(number);
            }
            Object::Srq { srqn, .. } => {
                self.srqs.remove(&srqn);
                self.card.remove_shared(srqn);
            }
            Object::Uar(number) => self.registers.remove(number),
            Object::Dm(start) => self.device_memory.free(start),
            Object::Pd(_) | Object::Ah { .. } | Object::Table => {}
        }
    }

    /// The channel that a program's descriptor is of; zero for none.
    ///
    /// # Errors
    /// EBADF.
    pub(crate) fn channel_of(&self, fd: i32) -> Result<u32, Errno> {
        match crate::descriptors::kind(fd) {
            _ if fd < 0 => Ok(0),
            Some(Kind::Channel(number)) if self.channels.contains_key(&number) => Ok(number),
            _ => Err(Errno(libc::EBADF)),
        }
    }
}
