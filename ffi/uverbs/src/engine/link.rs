//! Between the card's queues and the adapter: requests, receives, completions.

use core::net::Ipv6Addr;

use ringway_sim::connectx::constants as c;
use ringway_sim::connectx::cqe::{Cqe, Failed, Receipt, Received};
use ringway_sim::connectx::queues::{Outcome, Posted};
use ringway_sim::connectx::wqe::{AddressVector, Body, Control, DataSegment, Piece};
use ringway_sim::connectx::{Memory as _, Violation};
use ringway_stack::device::messages::MULTICAST_QP;
use ringway_stack::roce::mad::GSI_QP;
use ringway_stack::roce::packet::Body as Packet;
use ringway_stack::roce::packet::datagram::{Addresses, Datagram, Path};
use ringway_stack::roce::qp::State;
use ringway_stack::roce::work::{Completion, Data, Opcode, PostError, SGES_MAX, SendOp, SendWr, Sge, Status};

use super::{BATCH, Engine, broken};
use crate::sysfs;

/// Most bytes that a request has in line.
pub(crate) const INLINE_MAX: usize = 1024;
/// Set in a completion where the first bytes received are a global routing header (mlx5dv.h, `flags_rqpn`).
const GRH: u32 = 1 << 28;
/// Ethernet's type of what goes over the wire.
pub(super) const ETHERTYPE: [u8; 2] = [0x08, 0x00];

/// The queue pair that a packet is for, and whether that is on this machine.
pub(super) fn destination(packet: &[u8]) -> Option<(u32, bool)> {
    let datagram = Datagram::parse(packet).ok()?;
    let is_here = matches!(datagram.path.addresses, Addresses::V4 { dst, .. } if dst == sysfs::address());
    Some((datagram.packet.header.dest_qp, is_here))
}

/// Whether a packet is for connection management.
pub(super) fn is_management(packet: &[u8]) -> bool {
    destination(packet).is_some_and(|(qpn, _)| qpn == GSI_QP)
}

/// The way to a GID: this device speaks RoCE v2 over IPv4 alone.
pub(crate) fn path(gid: [u8; 16], traffic_class: u8, hop_limit: u8, src_port: u16) -> Option<Path> {
    let dst = Ipv6Addr::from(gid).to_ipv4_mapped()?;
    let addresses = Addresses::V4 { src: sysfs::address(), dst };
    // A header of zero hops goes nowhere; programs leave the field out.
    let hop_limit = if hop_limit == 0 { 64 } else { hop_limit };
    Some(Path { addresses, traffic_class, hop_limit, flow_label: 0, src_port: src_port | 0xc000 })
}

impl Engine {
    /// Takes receives that were posted to queue pairs' own queues, and one for each member of a group that has none.
    pub(super) fn receives(&mut self) -> bool {
        let own = self.qps.iter().filter(|(_, qp)| qp.srq == 0).map(|(qpn, _)| *qpn).collect::<Vec<_>>();
        // What is sent to a group comes to each member that has a receive: of a shared queue, one that is kept for that.
        let is_without = |qpn: &u32| self.node.hca().posted_receives(*qpn) == Some(0);
        let members = self.qps.iter().filter(|(_, qp)| qp.srq != 0 && !qp.groups.is_empty()).map(|(qpn, _)| *qpn);
        let members = members.filter(is_without).collect::<Vec<_>>();
        let mut any = false;
        for qpn in own {
            while self.receive_one(qpn) {
                any = true;
            }
        }
        for qpn in members {
            any |= self.receive_one(qpn);
        }
        any
    }

    /// Takes one receive for a queue pair, if there is one.
    fn receive_one(&mut self, qpn: u32) -> bool {
        if matches!(self.node.hca().qp_state(qpn), None | Some(State::Reset)) {
            return false;
        }
        match self.card.fetch(&self.memory, qpn) {
            Ok(Some(Posted { index, list })) => {
                let list: Vec<Sge> = list.iter().filter_map(sge).collect();
                let now = self.now();
                if let Err(error) = self.node.hca_mut().post_recv(now, qpn, index.into(), &list) {
                    self.not_received(qpn, index, error);
                }
                self.completions();
                true
            }
            Ok(None) => false,
            Err(violation) => {
                broken(qpn, violation);
                false
            }
        }
    }

    /// The adapter does not take a receive: it fails, as one whose list is malformed.
    fn not_received(&mut self, qpn: u32, index: u16, error: PostError) {
        crate::log::say(format_args!("queue pair {qpn:#x}: a receive is refused: {error}"));
        let Some(qp) = self.qps.get(&qpn) else { return };
        let failed = Failed {
            receive: true,
            srqn_uidx: qp.uidx,
            vendor: 0x68,
            syndrome: c::SYNDROME_LOCAL_QP_OP,
            opcode: 0,
            qpn,
            wqe_counter: index,
        };
        let actions = self.card.complete_one(&mut self.memory, qp.recv_cqn, Cqe::Failed(failed));
        self.act(actions);
    }

    /// A packet that may begin a message needs a receive: one of the shared queue's becomes the queue pair's, if it has none.
    pub(super) fn before_packet(&mut self, packet: &[u8]) {
        let Ok(Datagram { packet, .. }) = Datagram::parse(packet) else { return };
        let qpn = packet.header.dest_qp;
        if qpn == MULTICAST_QP {
            self.receives();
            return;
        }
        if self.qps.get(&qpn).is_none_or(|qp| qp.srq == 0) {
            // What was posted since the queues were looked at is there for this packet.
            while self.receive_one(qpn) {}
            return;
        }
        let takes = match packet.header.body {
            Packet::Datagram(..) => true,
            body => !body.is_response(),
        };
        if takes && self.node.hca().posted_receives(qpn) == Some(0) {
            self.receive_one(qpn);
        }
    }

    /// Takes what was posted to send queues.
    pub(super) fn sends(&mut self) -> bool {
        let qpns: Vec<u32> = self.qps.keys().copied().collect();
        let mut any = false;
        for qpn in qpns {
            // In RESET to RTR nothing is sent; what is posted then waits (IBTA spec, s10.3.1).
            if matches!(self.node.hca().qp_state(qpn), None | Some(State::Reset | State::Init | State::Rtr)) {
                continue;
            }
            let actions = self.card.take_rung(&mut self.memory, qpn, BATCH);
            any |= !actions.is_empty();
            self.act(actions);
            self.completions();
        }
        any
    }

    /// Begins the request of a send queue entry.
    pub(super) fn request(&mut self, qpn: u32, control: Control, body: Body) {
        let posted = self.try_request(qpn, &control, &body);
        let syndrome = match posted {
            Ok(()) => return,
            Err(PostError::TooLong) => c::SYNDROME_LOCAL_LENGTH,
            Err(_) => c::SYNDROME_LOCAL_QP_OP,
        };
        if let Err(error) = posted {
            crate::log::say(format_args!("queue pair {qpn:#x}: entry {:#x} is refused: {error}", control.index));
        }
        let actions = self.card.finish(&mut self.memory, qpn, control.index, Outcome::Failed { syndrome, vendor: 0x68 });
        self.act(actions);
    }

    fn try_request(&mut self, qpn: u32, control: &Control, body: &Body) -> Result<(), PostError> {
        let has_immediate = matches!(control.opcode, c::OPCODE_SEND_IMM | c::OPCODE_RDMA_WRITE_IMM);
        let immediate = has_immediate.then_some(control.imm);
        let (op, pieces): (SendOp, &[Piece]) = match body {
            Body::Send(None, pieces) if control.opcode != c::OPCODE_SEND_INVAL => (SendOp::Send { immediate }, pieces),
            Body::Send(Some(vector), pieces) => (datagram(vector, immediate).ok_or(PostError::Operation)?, pieces),
            Body::Write(to, pieces) => (SendOp::Write { address: to.addr, rkey: to.rkey, immediate }, pieces),
            Body::Read(from, segments) => {
                let list = sges(segments)?;
                return self.post(qpn, control, SendOp::Read { address: from.addr, rkey: from.rkey }, Data::Gather(&list));
            }
            Body::Atomic(at, operands, segment) => {
                let (address, rkey) = (at.addr, at.rkey);
                let op = match control.opcode {
                    c::OPCODE_ATOMIC_CS => SendOp::CompareSwap { address, rkey, compare: operands.compare, swap: operands.swap_add },
                    _ => SendOp::FetchAdd { address, rkey, add: operands.swap_add },
                };
                let list = sges(core::slice::from_ref(segment))?;
                return self.post(qpn, control, op, Data::Gather(&list));
            }
            _ => return Err(PostError::Operation),
        };
        if pieces.iter().any(|piece| matches!(piece, Piece::Inline(_))) {
            let bytes = self.gather(pieces)?;
            return self.post(qpn, control, op, Data::Inline(&bytes));
        }
        let segments: Vec<DataSegment> = pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Memory(segment) => Some(*segment),
                Piece::Inline(_) => None,
            })
            .collect();
        let list = sges(&segments)?;
        self.post(qpn, control, op, Data::Gather(&list))
    }

    /// Every request of the adapter's has a completion: whether the program gets one is its entry's to say.
    fn post(&mut self, qpn: u32, control: &Control, op: SendOp, data: Data<'_>) -> Result<(), PostError> {
        let fence = control.fm_ce_se & (c::CTRL_FENCE | c::CTRL_SMALL_FENCE) != 0;
        let wr = SendWr { id: control.index.into(), op, data, signaled: true, solicited: control.is_solicited(), fence };
        let now = self.now();
        self.node.hca_mut().post_send(now, qpn, &wr)
    }

    /// The bytes of a list that is in line, in part or whole.
    fn gather(&self, pieces: &[Piece]) -> Result<Vec<u8>, PostError> {
        let mut bytes = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Inline(inline) => bytes.extend(inline),
                Piece::Memory(segment) => {
                    let len =
                        usize::try_from(segment.len()).ok().filter(|len| bytes.len() + len <= INLINE_MAX).ok_or(PostError::TooLong)?;
                    let at = bytes.len();
                    bytes.resize(at + len, 0);
                    self.memory.read(segment.addr, &mut bytes[at..]).map_err(|_| PostError::Operation)?;
                }
            }
        }
        Ok(bytes)
    }

    /// Writes what the adapter has completed.
    pub(super) fn completions(&mut self) {
        while let Some(completion) = self.node.hca_mut().poll_cq(self.hca_cq) {
            let failed = !matches!(completion.status, Status::Success | Status::Flushed);
            if let Some(qp) = self.qps.get_mut(&completion.qpn).filter(|_| failed) {
                qp.knows = true;
            }
            let actions = match completion.opcode {
                Opcode::Receive | Opcode::ReceiveWithImmediate => self.received(&completion),
                _ => {
                    let outcome = match syndrome(completion.status) {
                        None => Outcome::Done { bytes: if is_read(completion.opcode) { completion.len } else { 0 } },
                        Some((syndrome, vendor)) => Outcome::Failed { syndrome, vendor },
                    };
                    self.card.finish(&mut self.memory, completion.qpn, completion.id as u16, outcome)
                }
            };
            self.act(actions);
        }
    }

    fn received(&mut self, completion: &Completion) -> Vec<ringway_sim::connectx::queues::Action> {
        let Some(qp) = self.qps.get(&completion.qpn) else { return Vec::new() };
        let (uidx, qpn, wqe_counter) = (qp.uidx, completion.qpn, completion.id as u16);
        let cqe = match syndrome(completion.status) {
            Some((syndrome, vendor)) => {
                Cqe::Failed(Failed { receive: true, srqn_uidx: uidx, vendor, syndrome, opcode: 0, qpn, wqe_counter })
            }
            None => Cqe::Received(Received {
                receipt: match (completion.opcode, completion.immediate) {
                    (Opcode::ReceiveWithImmediate, _) => Receipt::WriteImmediate,
                    (_, Some(_)) => Receipt::SendImmediate,
                    (_, None) => Receipt::Send,
                },
                solicited: completion.solicited,
                flags_rqpn: completion.src_qp | if completion.grh { GRH } else { 0 },
                srqn_uidx: uidx,
                imm: completion.immediate.unwrap_or(0),
                byte_count: completion.len,
                qpn_or_tag: qpn,
                wqe_counter,
                ..Received::default()
            }),
        };
        self.card.complete_one(&mut self.memory, qp.recv_cqn, cqe)
    }
}

fn is_read(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Read | Opcode::CompareSwap | Opcode::FetchAdd)
}

/// What a datagram's address vector says.
fn datagram(vector: &AddressVector, immediate: Option<u32>) -> Option<SendOp> {
    let grh = vector.extended?;
    let path = path(grh.gid, grh.traffic_class, grh.hop_limit, vector.rlid)?;
    Some(SendOp::Datagram { path, dest_qp: vector.qpn, qkey: vector.qkey, immediate })
}

fn sge(segment: &DataSegment) -> Option<Sge> {
    // 2 GiB is longer than any message here; what is received is shorter.
    let len = u32::try_from(segment.len()).ok()?.min(1 << 30);
    Some(Sge { address: segment.addr, len, lkey: segment.lkey })
}

fn sges(segments: &[DataSegment]) -> Result<Vec<Sge>, PostError> {
    if segments.len() > SGES_MAX || segments.iter().any(|segment| segment.len() > 1 << 30) {
        return Err(PostError::TooLong);
    }
    Ok(segments.iter().filter_map(sge).collect())
}

/// The syndrome of a failure, and the vendor's, which are the model's where it has the same failure.
fn syndrome(status: Status) -> Option<(u8, u8)> {
    let syndrome = match status {
        Status::Success => return None,
        Status::LocalLength => c::SYNDROME_LOCAL_LENGTH,
        Status::LocalQpOperation => c::SYNDROME_LOCAL_QP_OP,
        Status::LocalProtection => c::SYNDROME_LOCAL_PROT,
        Status::Flushed => c::SYNDROME_WR_FLUSH,
        Status::BadResponse => c::SYNDROME_BAD_RESP,
        Status::RemoteInvalidRequest => c::SYNDROME_REMOTE_INVAL_REQ,
        Status::RemoteAccess => c::SYNDROME_REMOTE_ACCESS,
        Status::RemoteOperation => c::SYNDROME_REMOTE_OP,
        Status::RetryExceeded => c::SYNDROME_RETRY_EXC,
        Status::RnrRetryExceeded => c::SYNDROME_RNR_RETRY_EXC,
    };
    Some((syndrome, Violation::vendor_of(syndrome)))
}
