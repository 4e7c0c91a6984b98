//! From state to state, in verbs' form: which attributes count (ibv_modify_qp(3) has the table).

use rdma_core_sys as sys;
use ringway_stack::device::messages::{Modify, Peer, Sending, State, Transport};

/// Attributes, and which of them count.
pub(crate) struct Change {
    pub(crate) attr: sys::ibv_qp_attr,
    pub(crate) mask: u32,
}

/// What a change takes. `vector`: of a connection's way to RTR, the way to the peer; `now`: the state that it is in. `None`: there is no such transition of this transport.
pub(crate) fn change_of(transport: Transport, now: State, port: u8, modify: &Modify, vector: Option<sys::ibv_ah_attr>) -> Option<Change> {
    let (is_rc, is_ud) = (transport == Transport::Rc, transport == Transport::Ud);
    let mut attr = sys::ibv_qp_attr::default();
    let mut mask = sys::IBV_QP_STATE;
    match *modify {
        Modify::Reset => attr.qp_state = sys::IBV_QPS_RESET,
        Modify::Init { access, qkey } => {
            attr.qp_state = sys::IBV_QPS_INIT;
            (attr.port_num, attr.qp_access_flags, attr.qkey) = (port, access.bits(), qkey);
            mask |= sys::IBV_QP_PORT | sys::IBV_QP_PKEY_INDEX | if is_ud { sys::IBV_QP_QKEY } else { sys::IBV_QP_ACCESS_FLAGS };
        }
        Modify::Rtr(peer) => {
            let Peer { mtu, dest_qp, rq_psn, max_dest_rd_atomic, min_rnr_timer, .. } = peer;
            attr.qp_state = sys::IBV_QPS_RTR;
            attr.ah_attr = vector.filter(|_| !is_ud)?;
            (attr.path_mtu, attr.dest_qp_num, attr.rq_psn) = (mtu as u32, dest_qp, rq_psn.value());
            (attr.max_dest_rd_atomic, attr.min_rnr_timer) = (max_dest_rd_atomic, min_rnr_timer);
            mask |= sys::IBV_QP_AV | sys::IBV_QP_PATH_MTU | sys::IBV_QP_DEST_QPN | sys::IBV_QP_RQ_PSN;
            mask |= if is_rc { sys::IBV_QP_MAX_DEST_RD_ATOMIC | sys::IBV_QP_MIN_RNR_TIMER } else { 0 };
        }
        Modify::RtrDatagram if is_ud => attr.qp_state = sys::IBV_QPS_RTR,
        Modify::Rts(sending) if !is_ud => {
            let Sending { sq_psn, timeout, retry_count, rnr_retry, max_rd_atomic } = sending;
            attr.qp_state = sys::IBV_QPS_RTS;
            (attr.sq_psn, attr.timeout, attr.retry_cnt) = (sq_psn.value(), timeout, retry_count);
            (attr.rnr_retry, attr.max_rd_atomic) = (rnr_retry, max_rd_atomic);
            mask |= sys::IBV_QP_SQ_PSN;
            if is_rc {
                mask |= sys::IBV_QP_TIMEOUT | sys::IBV_QP_RETRY_CNT | sys::IBV_QP_RNR_RETRY | sys::IBV_QP_MAX_QP_RD_ATOMIC;
            }
        }
        Modify::RtsDatagram { sq_psn } if is_ud => {
            (attr.qp_state, attr.sq_psn) = (sys::IBV_QPS_RTS, sq_psn.value());
            mask |= sys::IBV_QP_SQ_PSN;
        }
        Modify::Resume => attr.qp_state = sys::IBV_QPS_RTS,
        Modify::Update { access, min_rnr_timer } => {
            attr.qp_state = of_state(now);
            if let Some(access) = access {
                attr.qp_access_flags = access.bits();
                mask |= sys::IBV_QP_ACCESS_FLAGS;
            }
            if let Some(timer) = min_rnr_timer {
                attr.min_rnr_timer = timer;
                mask |= sys::IBV_QP_MIN_RNR_TIMER;
            }
        }
        Modify::Sqd => attr.qp_state = sys::IBV_QPS_SQD,
        Modify::Err => attr.qp_state = sys::IBV_QPS_ERR,
        Modify::RtrDatagram | Modify::Rts(_) | Modify::RtsDatagram { .. } => return None,
    }
    Some(Change { attr, mask })
}

/// A state as verbs numbers it.
const fn of_state(state: State) -> sys::ibv_qp_state {
    match state {
        State::Reset => sys::IBV_QPS_RESET,
        State::Init => sys::IBV_QPS_INIT,
        State::Rtr => sys::IBV_QPS_RTR,
        State::Rts => sys::IBV_QPS_RTS,
        State::Sqd => sys::IBV_QPS_SQD,
        State::Sqe => sys::IBV_QPS_SQE,
        State::Err => sys::IBV_QPS_ERR,
    }
}

/// The state after a change.
pub(crate) const fn state_after(now: State, modify: &Modify) -> State {
    match modify {
        Modify::Reset => State::Reset,
        Modify::Init { .. } => State::Init,
        Modify::Rtr(_) | Modify::RtrDatagram => State::Rtr,
        Modify::Rts(_) | Modify::RtsDatagram { .. } | Modify::Resume => State::Rts,
        Modify::Update { .. } => now,
        Modify::Sqd => State::Sqd,
        Modify::Err => State::Err,
    }
}

#[cfg(test)]
mod tests {
    use ringway_stack::device::messages::{Access, Addresses, Mtu, Path, Psn};

    use super::*;

    #[test]
    fn a_connected_pair_has_rights_and_one_of_datagrams_a_key() {
        let init = Modify::Init { access: Access::LOCAL_WRITE | Access::REMOTE_WRITE, qkey: 7 };
        let common = sys::IBV_QP_STATE | sys::IBV_QP_PORT | sys::IBV_QP_PKEY_INDEX;
        let rc = change_of(Transport::Rc, State::Reset, 1, &init, None).unwrap();
        assert_eq!((rc.mask, rc.attr.qp_access_flags, rc.attr.port_num), (common | sys::IBV_QP_ACCESS_FLAGS, 3, 1));
        let ud = change_of(Transport::Ud, State::Reset, 1, &init, None).unwrap();
        assert_eq!((ud.mask, ud.attr.qkey), (common | sys::IBV_QP_QKEY, 7));
    }

    #[test]
    fn the_way_to_a_peer_takes_a_path_and_is_connections_alone() {
        let addresses = Addresses::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).unwrap();
        let peer = Peer {
            path: Path::new(addresses, 0),
            mtu: Mtu::B4096,
            dest_qp: 17,
            rq_psn: Psn::new(5),
            max_dest_rd_atomic: 2,
            min_rnr_timer: 12,
        };
        let rtr = Modify::Rtr(peer);
        assert!(change_of(Transport::Rc, State::Init, 1, &rtr, None).is_none());
        assert!(change_of(Transport::Ud, State::Init, 1, &rtr, Some(sys::ibv_ah_attr::default())).is_none());
        let change = change_of(Transport::Rc, State::Init, 1, &rtr, Some(sys::ibv_ah_attr::default())).unwrap();
        let attr = change.attr;
        assert_eq!((attr.path_mtu, attr.dest_qp_num, attr.rq_psn), (sys::IBV_MTU_4096, 17, 5));
        assert_eq!((attr.max_dest_rd_atomic, attr.min_rnr_timer), (2, 12));
        // An unreliable one knows neither reads nor answers.
        let mask = |modify: &Modify, vector| change_of(Transport::Uc, State::Init, 1, modify, vector).map(|change| change.mask);
        let way = sys::IBV_QP_AV | sys::IBV_QP_PATH_MTU | sys::IBV_QP_DEST_QPN | sys::IBV_QP_RQ_PSN;
        assert_eq!(mask(&rtr, Some(sys::ibv_ah_attr::default())), Some(sys::IBV_QP_STATE | way));
        assert_eq!(mask(&Modify::Rts(Sending::default()), None), Some(sys::IBV_QP_STATE | sys::IBV_QP_SQ_PSN));
        assert_eq!(mask(&Modify::RtrDatagram, None), None);
    }

    #[test]
    fn datagrams_have_ways_of_their_own() {
        let rts = Modify::RtsDatagram { sq_psn: Psn::new(0) };
        assert!(change_of(Transport::Rc, State::Rtr, 1, &rts, None).is_none());
        assert_eq!(change_of(Transport::Ud, State::Rtr, 1, &rts, None).unwrap().mask, sys::IBV_QP_STATE | sys::IBV_QP_SQ_PSN);
        let update = Modify::Update { access: Some(Access::REMOTE_READ), min_rnr_timer: None };
        let change = change_of(Transport::Rc, State::Rts, 1, &update, None).unwrap();
        assert_eq!((change.attr.qp_state, change.mask), (sys::IBV_QPS_RTS, sys::IBV_QP_STATE | sys::IBV_QP_ACCESS_FLAGS));
        assert_eq!(state_after(State::Rts, &update), State::Rts);
    }
}
