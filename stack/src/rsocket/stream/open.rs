//! Queues and buffers, and what the peers tell each other of them.

use std::collections::VecDeque;

use super::direct::Direct;
use super::info::Totals;
use super::post::Silent;
use super::{Peer, Receiver, RemoteTable, Sender, State, Stream};
use crate::device::messages::{
    Access, CreateError, Messages, Modify, ModifyError, Pd, PostError, QpConfig, Region, RegisterError, Sge, Transport,
};
use crate::error::Error;
use crate::rsocket::config::{CONTROL_SLOTS, Host, TARGET_ENTRIES};
use crate::rsocket::options::Options;
use crate::rsocket::wire::{ConnectionData, ConnectionDataError, IomapEntry, TargetSge};
use crate::time::Instant;

/// Bytes of a message that is a send of its own.
pub(super) const MESSAGE_LEN: u32 = 4;

/// Why a stream was not opened: the device's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No queue.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// No memory.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The device does not do as it said.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The same.
    #[error(transparent)]
    Post(#[from] PostError),
    /// Messages that are sends need room for four inline bytes.
    #[error("the device has too little inline data")]
    Inline,
}

impl Stream {
    /// Makes queues and buffers. Receives are posted; the queue pair is in INIT.
    ///
    /// # Errors
    /// [`OpenError`]; nothing is left of it.
    pub fn open<D: Messages>(now: Instant, device: &mut D, pd: Pd, host: Host, options: &Options) -> Result<Self, OpenError> {
        let mut sizes = options.sizes.within(&device.message_limits());
        if host.by_sends {
            sizes.inline = sizes.inline.max(MESSAGE_LEN as u16);
            if device.message_limits().inline < MESSAGE_LEN as usize {
                return Err(OpenError::Inline);
            }
        }
        let cq = device.create_cq(usize::from(sizes.send_queue) + usize::from(sizes.recv_queue))?;
        let config = QpConfig {
            transport: Transport::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: sizes.send_queue.into(),
            recv_depth: sizes.recv_queue.into(),
            sges_max: 2,
            inline_max: sizes.inline.into(),
        };
        let qp = device.create_qp(config).inspect_err(|_| {
            let _ = device.destroy_cq(cq);
        })?;
        let none = Region { address: 0, key: 0, len: 0 };
        let half = sizes.recv_buffer / 2;
        let mut stream = Self {
            host,
            sizes,
            pd,
            cq,
            qp,
            tables: none,
            send_buffer: none,
            recv_buffer: none,
            is_shared: false,
            state: State::Opening,
            is_heard: false,
            readable: true,
            writable: true,
            peer_ended: false,
            peer_gone: false,
            to_tell: None,
            wants_drained: false,
            error: None,
            peer: None,
            tx: Sender {
                seq: 0,
                limit: 0,
                free_requests: sizes.send_queue - CONTROL_SLOTS,
                silent: Silent::default(),
                direct_writes: 0,
                controls: 0,
                control_place: 0,
                room: sizes.send_buffer,
                offset: 0,
                target: TargetSge::default(),
                next_target: 0,
                totals: Totals::default(),
                was_placed: false,
                answered: 0,
                offered: 0,
            },
            rx: Receiver {
                messages: VecDeque::with_capacity(usize::from(sizes.recv_queue)),
                offset: 0,
                free: half,
                free_offset: half,
                granted: half.into(),
                seq: 0,
                tell_at: sizes.recv_queue / 2,
                spent: 0,
                next_slot: 0,
                totals: Totals::default(),
            },
            direct: Direct::default(),
            keepalive: options.keepalive,
            next_keepalive: None,
        };
        let made = stream.make_buffers(device).and_then(|()| stream.post_receives(now, device));
        match made {
            Ok(()) => Ok(stream),
            Err(error) => {
                stream.destroy(device);
                Err(error)
            }
        }
    }

    fn make_buffers<D: Messages>(&mut self, device: &mut D) -> Result<(), OpenError> {
        let remote = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mut region = |len: usize, access| {
            let memory = device.allocate(len)?;
            device.register(self.pd, memory, access)
        };
        let tables = TARGET_ENTRIES as usize * TargetSge::LEN + usize::from(self.sizes.iomap) * IomapEntry::LEN;
        self.tables = region(tables, remote)?;
        // Behind the buffers: what control messages write, and the places of messages that are sends.
        let staged = usize::from(CONTROL_SLOTS) * TargetSge::LEN;
        self.send_buffer = region(self.sizes.send_buffer as usize + staged, Access::LOCAL_WRITE)?;
        let places = if self.host.by_sends { usize::from(self.sizes.recv_queue) * MESSAGE_LEN as usize } else { 0 };
        self.recv_buffer = region(self.sizes.recv_buffer as usize + places, remote)?;
        Ok(())
    }

    fn post_receives<D: Messages>(&self, now: Instant, device: &mut D) -> Result<(), OpenError> {
        device.modify_qp(now, self.qp, &Modify::Init { access: Access::LOCAL_WRITE | Access::REMOTE_WRITE, qkey: 0 })?;
        for place in 0..self.sizes.recv_queue {
            self.post_receive(now, device, place)?;
        }
        Ok(())
    }

    /// A receive: of nothing, or of a message that is a send of its own.
    pub(super) fn post_receive<D: Messages>(&self, now: Instant, device: &mut D, place: u16) -> Result<(), PostError> {
        let id = super::post::RECEIVE | u64::from(place);
        if !self.host.by_sends {
            return device.post_recv(now, self.qp, id, &[]);
        }
        let address = self.recv_buffer.address + self.message_offset(place);
        device.post_recv(now, self.qp, id, &[Sge { address, len: MESSAGE_LEN, lkey: self.recv_buffer.key }])
    }

    /// Where in the receive buffer's region a message that is a send goes.
    pub(super) fn message_offset(&self, place: u16) -> u64 {
        u64::from(self.sizes.recv_buffer) + u64::from(place) * u64::from(MESSAGE_LEN)
    }

    /// What the peer is to know, for private data.
    pub fn connection_data(&self) -> [u8; ConnectionData::LEN] {
        let data = ConnectionData {
            order: self.host.order,
            has_iomap: true,
            credits: self.sizes.recv_queue,
            iomap_size: self.sizes.iomap,
            target_table: TargetSge { address: self.tables.address, key: self.tables.key, len: TARGET_ENTRIES },
            data_buffer: TargetSge { address: self.recv_buffer.address, key: self.recv_buffer.key, len: self.sizes.recv_buffer / 2 },
        };
        data.emit()
    }

    /// Learns what the peer said of itself. The passive side does so before it accepts.
    ///
    /// # Errors
    /// [`ConnectionDataError`]: the connection is of no use.
    pub fn set_peer(&mut self, private_data: &[u8]) -> Result<(), ConnectionDataError> {
        let data = ConnectionData::parse(private_data)?;
        let table = data.target_table;
        let behind = table.address.wrapping_add(u64::from(table.len) * TargetSge::LEN as u64);
        let iomap_size = if data.has_iomap { data.iomap_size } else { 0 };
        self.peer = Some(Peer {
            order: data.order,
            targets: RemoteTable { address: table.address, key: table.key, len: table.len },
            iomap: RemoteTable { address: behind, key: table.key, len: iomap_size.into() },
        });
        self.tx.limit = data.credits;
        self.tx.target = data.data_buffer;
        // The first entries stand for what private data said already.
        self.tx.next_target = 1 % TARGET_ENTRIES;
        self.rx.next_slot = 1 % table.len;
        Ok(())
    }

    /// The queue pair can send and receive, and the peer is known. The passive side waits to be heard of: [`Stream::is_heard`].
    pub fn on_ready<D: Messages>(&mut self, now: Instant, device: &mut D, is_heard: bool) {
        if self.state == State::Opening && self.peer.is_some() {
            // (What comes by sends has to say itself how long it is.)
            self.is_shared = !self.host.by_sends && device.share(self.qp, &self.recv_buffer);
            self.state = State::Connected;
            self.is_heard = is_heard;
            self.set_keepalive(now, self.keepalive);
        }
    }

    /// Whether the peer is known to be ready, by its connection management or by a message of its own.
    pub const fn is_heard(&self) -> bool {
        self.is_heard
    }

    /// The peer is ready, as connection management says.
    pub const fn on_heard(&mut self) {
        self.is_heard = true;
    }

    /// The connection did not come about.
    pub fn on_refused(&mut self, error: Error) {
        self.fail(error);
        // The reason is told once; later there just is no connection.
        self.state = State::Failed(Error::NotConnected);
    }

    /// Unmakes queues, buffers and mappings, whatever is under way. What mappings were of is gone, too.
    pub fn destroy<D: Messages>(&mut self, device: &mut D) {
        let _ = device.destroy_qp(self.qp);
        let _ = device.destroy_cq(self.cq);
        for region in [self.tables, self.send_buffer, self.recv_buffer] {
            if region.key != 0 {
                device.deregister(region.key);
            }
        }
        self.direct.destroy(device);
        self.fail(Error::Aborted);
    }
}
