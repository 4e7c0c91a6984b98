//! A queue pair's states.

use ringway_preload::Errno;
use ringway_sim::connectx::queues::SendQueue;
use ringway_stack::roce::memory::Access;
use ringway_stack::roce::psn::Psn;
use ringway_stack::roce::qp::{Modify, ModifyError, Mtu, Peer, Sending, State, Transport};

use super::{Reply, Request, pairs, raw};
use crate::abi::{Input, Output};
use crate::engine::{Attributes, path};

/// Bits of `attr_mask` (`enum ib_uverbs_qp_attr_mask` of libibverbs' ibv_modify_qp(3)).
pub(crate) mod mask {
    pub(crate) const STATE: u32 = 1 << 0;
    pub(crate) const CUR_STATE: u32 = 1 << 1;
    pub(crate) const SQD_EVENT: u32 = 1 << 2;
    pub(crate) const ACCESS: u32 = 1 << 3;
    pub(crate) const PKEY_INDEX: u32 = 1 << 4;
    pub(crate) const PORT: u32 = 1 << 5;
    pub(crate) const QKEY: u32 = 1 << 6;
    pub(crate) const AV: u32 = 1 << 7;
    pub(crate) const PATH_MTU: u32 = 1 << 8;
    pub(crate) const TIMEOUT: u32 = 1 << 9;
    pub(crate) const RETRY: u32 = 1 << 10;
    pub(crate) const RNR_RETRY: u32 = 1 << 11;
    pub(crate) const RQ_PSN: u32 = 1 << 12;
    pub(crate) const MAX_RD_ATOMIC: u32 = 1 << 13;
    pub(crate) const ALT_PATH: u32 = 1 << 14;
    pub(crate) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(crate) const SQ_PSN: u32 = 1 << 16;
    pub(crate) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(crate) const MIGRATION: u32 = 1 << 18;
    pub(crate) const DEST_QP: u32 = 1 << 20;
}

/// A state's number in verbs (`enum ibv_qp_state`).
pub(super) fn number(state: State) -> u8 {
    match state {
        State::Reset => 0,
        State::Init => 1,
        State::Rtr => 2,
        State::Rts => 3,
        State::Sqd => 4,
        State::Sqe => 5,
        State::Err => 6,
    }
}

/// `ib_uverbs_ex_modify_qp`: as the other, behind which is {rate_limit 112}; `ib_uverbs_ex_modify_qp_resp` {response_length 4}.
pub(super) fn modify_extended(request: &mut Request<'_>) -> Result<Reply, Errno> {
    modify(request)?;
    Ok(Reply::of(Output::new(8).u32(4, 8)))
}

/// `ib_uverbs_modify_qp` {qp_handle 64, attr_mask 68, qp_state 96, …}.
pub(super) fn modify(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let core = request.core();
    let (handle, set) = (core.u32(64), core.u32(68));
    let qpn = pairs::find(request, handle)?;
    if request.engine.raws.contains_key(&qpn) {
        raw::modify(request, qpn, core)?;
        return Ok(Reply::nothing());
    }
    let (now, engine) = (request.engine.now(), &mut *request.engine);
    let from = engine.node.hca().qp_state(qpn).ok_or(Errno(libc::EINVAL))?;
    let qp = engine.qps.get_mut(&qpn).ok_or(Errno(libc::EINVAL))?;
    let to = if set & mask::STATE == 0 { number(from) } else { core.u8(96) };
    let attributes = merged(qp.attributes, core, set);
    let change = change(qp.transport, from, to, set, &attributes)?;
    engine.node.hca_mut().modify_qp(now, qpn, &change).map_err(|error| match error {
        ModifyError::NoQp | ModifyError::Transition | ModifyError::Attribute => Errno(libc::EINVAL),
    })?;
    qp.attributes = attributes;
    // In error by its own wish, nobody has to tell it.
    qp.knows = matches!(change, Modify::Err);
    if matches!(change, Modify::Resume) {
        engine.card.resume(qpn);
    }
    if matches!(change, Modify::Reset) {
        // The program's counters begin anew, and so do the card's.
        qp.attributes = Attributes::default();
        engine.card.add_pair(qpn, SendQueue::new(qp.send), qp.receiver.clone());
    }
    engine.turn();
    Ok(Reply::nothing())
}

/// What the program sets, over what was set before.
fn merged(mut a: Attributes, core: Input<'_>, set: u32) -> Attributes {
    let mut put = |bit: u32, assign: &mut dyn FnMut(&mut Attributes)| {
        if set & bit != 0 {
            assign(&mut a);
        }
    };
    put(mask::AV, &mut |a| {
        (a.gid, a.flow_label) = (core.gid(0), core.u32(16));
        (a.hop_limit, a.traffic_class, a.sl, a.is_global) = (core.u8(25), core.u8(26), core.u8(27), core.u8(30));
    });
    put(mask::QKEY, &mut |a| a.qkey = core.u32(72));
    put(mask::RQ_PSN, &mut |a| a.rq_psn = core.u32(76));
    put(mask::SQ_PSN, &mut |a| a.sq_psn = core.u32(80));
    put(mask::DEST_QP, &mut |a| a.dest_qp = core.u32(84));
    put(mask::ACCESS, &mut |a| a.access = core.u32(88));
    put(mask::PATH_MTU, &mut |a| a.path_mtu = core.u8(98));
    put(mask::MAX_RD_ATOMIC, &mut |a| a.max_rd_atomic = core.u8(101));
    put(mask::MAX_DEST_RD_ATOMIC, &mut |a| a.max_dest_rd_atomic = core.u8(102));
    put(mask::MIN_RNR_TIMER, &mut |a| a.min_rnr_timer = core.u8(103));
    put(mask::PORT, &mut |a| a.port = core.u8(104));
    put(mask::TIMEOUT, &mut |a| a.timeout = core.u8(105));
    put(mask::RETRY, &mut |a| a.retry_count = core.u8(106));
    put(mask::RNR_RETRY, &mut |a| a.rnr_retry = core.u8(107));
    a
}

/// What a transition takes at least, and what it takes beside that (IBTA spec, volume 1, table 91, as the kernel's `ib_modify_qp_is_ok` has it).
fn taken(transport: Transport, from: State, to: u8) -> [u32; 2] {
    use mask::{
        ACCESS, ALT_PATH, AV, CUR_STATE, DEST_QP, MAX_DEST_RD_ATOMIC, MAX_RD_ATOMIC, MIN_RNR_TIMER, PATH_MTU, PKEY_INDEX, PORT, QKEY,
        RETRY, RNR_RETRY, RQ_PSN, SQ_PSN, SQD_EVENT, TIMEOUT,
    };
    let is_connected = transport != Transport::Ud;
    let key = if is_connected { ACCESS } else { QKEY };
    let of_rc = |bits: u32| if transport == Transport::Rc { bits } else { 0 };
    let of_connections = |bits: u32| if is_connected { bits } else { 0 };
    match (from, to) {
        (State::Reset, 1) => [PKEY_INDEX | PORT | key, 0],
        (State::Init, 1) => [0, PKEY_INDEX | PORT | key],
        (State::Init, 2) => {
            let peer = of_connections(AV | PATH_MTU | DEST_QP | RQ_PSN) | of_rc(MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER);
            [peer, PKEY_INDEX | key | of_connections(ALT_PATH)]
        }
        (State::Sqe, 3) => [0, CUR_STATE | key],
        (_, 3) => {
            let at_first = if from == State::Rtr { SQ_PSN | of_rc(TIMEOUT | RETRY | RNR_RETRY | MAX_RD_ATOMIC) } else { 0 };
            [at_first, CUR_STATE | key | of_connections(ALT_PATH | mask::MIGRATION) | of_rc(MIN_RNR_TIMER)]
        }
        (State::Rts, 4) => [0, SQD_EVENT],
        _ => [0, 0],
    }
}

fn change(transport: Transport, from: State, to: u8, set: u32, a: &Attributes) -> Result<Modify, Errno> {
    let bad = Errno(libc::EINVAL);
    let [required, optional] = taken(transport, from, to);
    if required & !set != 0 || set & !(required | optional | mask::STATE) != 0 || set & mask::PORT != 0 && a.port != 1 {
        return Err(bad);
    }
    let access = Access::from_bits_truncate(a.access);
    Ok(match (transport, from, to) {
        (_, _, 0) => Modify::Reset,
        (_, _, 1) => Modify::Init { access, qkey: a.qkey },
        (Transport::Rc | Transport::Uc, State::Init, 2) => Modify::Rtr(peer(a)?),
        (Transport::Ud, State::Init, 2) => Modify::RtrDatagram,
        (Transport::Rc, State::Rtr, 3) => Modify::Rts(Sending {
            sq_psn: Psn::new(a.sq_psn),
            timeout: a.timeout,
            retry_count: a.retry_count,
            rnr_retry: a.rnr_retry,
            max_rd_atomic: a.max_rd_atomic,
        }),
        (Transport::Uc, State::Rtr, 3) => Modify::Rts(Sending { sq_psn: Psn::new(a.sq_psn), ..Sending::default() }),
        (Transport::Ud, State::Rtr, 3) => Modify::RtsDatagram { sq_psn: Psn::new(a.sq_psn) },
        (_, State::Sqd | State::Sqe, 3) => Modify::Resume,
        (_, State::Rts, 3) => Modify::Update {
            access: (set & mask::ACCESS != 0).then_some(access),
            min_rnr_timer: (set & mask::MIN_RNR_TIMER != 0).then_some(a.min_rnr_timer),
        },
        (_, _, 4) => Modify::Sqd,
        (_, _, 6) => Modify::Err,
        _ => return Err(bad),
    })
}

/// A connection's peer. A GID that is not of RoCE v2 over IPv4 is of no network that the port is on.
fn peer(a: &Attributes) -> Result<Peer, Errno> {
    let bad = Errno(libc::EINVAL);
    let path = path(a.gid, a.traffic_class, a.hop_limit, a.dest_qp as u16).filter(|_| a.is_global != 0).ok_or(bad)?;
    Ok(Peer {
        path,
        mtu: Mtu::from_code(a.path_mtu).ok_or(bad)?,
        dest_qp: a.dest_qp,
        rq_psn: Psn::new(a.rq_psn),
        max_dest_rd_atomic: a.max_dest_rd_atomic,
        min_rnr_timer: a.min_rnr_timer,
    })
}
