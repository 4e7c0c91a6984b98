//! From state to state.

use super::pair::Side::{A, B};
use super::pair::{LATENCY, Options, Pair, path, psn};
use crate::roce::memory::Access;
use crate::roce::psn::Psn;
use crate::roce::qp::{Events, Modify, ModifyError, Mtu, Peer, Sending, State, Transport};
use crate::roce::work::{Data, PostError, SendOp, SendWr, Status};

const SEND: SendOp = SendOp::Send { immediate: None };

fn peer() -> Peer {
    Peer { path: path(A, false), mtu: Mtu::B1024, dest_qp: 256, rq_psn: psn(B), max_dest_rd_atomic: 1, min_rnr_timer: 1 }
}

/// Every way to change, by name.
fn ways(transport: Transport) -> Vec<(&'static str, Modify)> {
    let (rtr, rts) = match transport {
        Transport::Rc => (Modify::Rtr(peer()), Modify::Rts(Sending::default())),
        Transport::Uc => (Modify::Rtr(peer()), Modify::Rts(Sending { max_rd_atomic: 255, ..Sending::default() })),
        Transport::Ud => (Modify::RtrDatagram, Modify::RtsDatagram { sq_psn: Psn::new(0) }),
    };
    vec![
        ("reset", Modify::Reset),
        ("init", Modify::Init { access: Access::all(), qkey: 1 }),
        ("rtr", rtr),
        ("rts", rts),
        ("resume", Modify::Resume),
        ("update", Modify::Update { access: Some(Access::all()), min_rnr_timer: (transport == Transport::Rc).then_some(3) }),
        ("sqd", Modify::Sqd),
        ("err", Modify::Err),
    ]
}

#[test]
fn only_the_table_s_transitions_are_taken() {
    // IBTA spec, volume 1, figure 124.
    let steps = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
        let updates = if transport != Transport::Ud { vec!["update"] } else { vec![] };
        let table = [
            (steps(&[]), vec!["reset", "init"]),
            (steps(&["init"]), vec!["reset", "init", "rtr", "err"]),
            (steps(&["init", "rtr"]), [vec!["reset", "rts"], updates.clone(), vec!["err"]].concat()),
            (steps(&["init", "rtr", "rts"]), [vec!["reset"], updates, vec!["sqd", "err"]].concat()),
            (steps(&["init", "rtr", "rts", "sqd"]), vec!["reset", "resume", "err"]),
            (steps(&["init", "err"]), vec!["reset", "err"]),
        ];
        for (steps, allowed) in table {
            let ways = ways(transport);
            let taken: Vec<_> = ways
                .iter()
                .filter(|(_, way)| {
                    let mut pair = Pair::unconnected(&Options::default(), transport);
                    for step in &steps {
                        let way = ways.iter().find(|(name, _)| name == step).unwrap();
                        pair.modify(A, &way.1).unwrap();
                    }
                    let before = pair.end(A).state();
                    let result = pair.modify(A, way);
                    assert!(result.is_ok() || pair.end(A).state() == before, "a refusal changes nothing");
                    assert!(matches!(result, Ok(()) | Err(ModifyError::Transition)));
                    result.is_ok()
                })
                .map(|(name, _)| *name)
                .collect();
            assert_eq!(taken, allowed, "{transport:?} after {steps:?}");
        }
    }
}

#[test]
fn attributes_have_ranges() {
    let mut pair = Pair::unconnected(&Options::default(), Transport::Rc);
    pair.modify(A, &Modify::Init { access: Access::all(), qkey: 0 }).unwrap();
    let wrong = Err(ModifyError::Attribute);
    assert_eq!(pair.modify(A, &Modify::Rtr(Peer { dest_qp: 1 << 24, ..peer() })), wrong);
    assert_eq!(pair.modify(A, &Modify::Rtr(Peer { min_rnr_timer: 32, ..peer() })), wrong);
    assert_eq!(pair.modify(A, &Modify::Rtr(Peer { max_dest_rd_atomic: 129, ..peer() })), wrong);
    pair.modify(A, &Modify::Rtr(peer())).unwrap();
    assert_eq!(pair.modify(A, &Modify::Rts(Sending { timeout: 32, ..Sending::default() })), wrong);
    assert_eq!(pair.modify(A, &Modify::Rts(Sending { retry_count: 8, ..Sending::default() })), wrong);
    assert_eq!(pair.modify(A, &Modify::Rts(Sending { rnr_retry: 8, ..Sending::default() })), wrong);
    assert_eq!(pair.modify(A, &Modify::Rts(Sending { max_rd_atomic: 129, ..Sending::default() })), wrong);
    assert_eq!(pair.end(A).state(), State::Rtr);
    let mut pair = Pair::of(&Options::default(), Transport::Uc);
    assert_eq!(pair.modify(A, &Modify::Update { access: None, min_rnr_timer: Some(1) }), wrong, "nobody waits there");
}

#[test]
fn what_can_be_posted_depends_on_the_state() {
    let mut pair = Pair::unconnected(&Options::default(), Transport::Rc);
    let (now, qp) = (pair.now, pair.end(A).qp);
    let wr = SendWr::new(1, SEND, Data::Inline(b"x"));
    assert_eq!(pair.end(A).hca.post_recv(now, qp, 1, &[]), Err(PostError::State));
    for (way, sends) in [("init", false), ("rtr", false), ("rts", true), ("sqd", true)] {
        let way = ways(Transport::Rc).into_iter().find(|(name, _)| *name == way).unwrap().1;
        pair.modify(A, &way).unwrap();
        assert_eq!(pair.end(A).hca.post_recv(now, qp, 1, &[]), Ok(()));
        assert_eq!(pair.post(A, &wr), if sends { Ok(()) } else { Err(PostError::State) });
    }
    assert_eq!(pair.end(A).hca.post_send(now, 7, &wr), Err(PostError::NoQp));
}

#[test]
fn sqd_finishes_what_was_begun_and_rests() {
    let options = Options { mtu: Mtu::B256, ..Options::default() };
    let mut pair = Pair::new(&options);
    pair.post_recv(B, 1, 0, 1000);
    pair.post_recv(B, 2, 0, 1000);
    pair.post_op(A, 1, SEND, 0, 1000);
    pair.transmit();
    pair.modify(A, &Modify::Sqd).unwrap();
    pair.post_op(A, 2, SEND, 0, 1000);
    pair.settle();
    assert_eq!((pair.successes(A), pair.successes(B)), (vec![1], vec![1]));
    let qp = pair.end(A).qp;
    assert_eq!(pair.end(A).hca.take_qp_events(qp), Events::SEND_QUEUE_DRAINED);
    pair.modify(A, &Modify::Resume).unwrap();
    pair.settle();
    assert_eq!((pair.successes(A), pair.successes(B)), (vec![2], vec![2]));
    pair.modify(A, &Modify::Sqd).unwrap();
    assert_eq!(pair.end(A).hca.take_qp_events(qp), Events::SEND_QUEUE_DRAINED, "with nothing to do it rests at once");
}

#[test]
fn the_first_packet_before_rts_tells_that_there_is_a_peer() {
    let options = Options::default();
    let mut pair = Pair::unconnected(&options, Transport::Rc);
    pair.connect(A, &options);
    let dest_qp = pair.end(A).qp;
    pair.modify(B, &Modify::Init { access: Access::all(), qkey: 0 }).unwrap();
    pair.modify(B, &Modify::Rtr(Peer { path: path(B, false), dest_qp, rq_psn: psn(A), ..peer() })).unwrap();
    pair.post_recv(B, 1, 0, 10);
    pair.post(A, &SendWr::new(1, SEND, Data::Inline(b"x"))).unwrap();
    pair.settle();
    assert_eq!((pair.successes(A), pair.successes(B)), (vec![1], vec![1]));
    let qp = pair.end(B).qp;
    assert_eq!(pair.end(B).hca.take_qp_events(qp), Events::COMMUNICATION_ESTABLISHED);
}

#[test]
fn a_reset_queue_pair_is_as_new() {
    let options = Options::default();
    let mut pair = Pair::new(&options);
    pair.lose(|_| true);
    pair.post_recv(A, 1, 0, 10);
    pair.post(A, &SendWr::new(1, SEND, Data::Inline(b"x"))).unwrap();
    pair.transmit();
    for side in [A, B] {
        pair.modify(side, &Modify::Reset).unwrap();
        pair.connect(side, &options);
    }
    pair.lose(|_| false);
    pair.settle();
    assert!(pair.statuses(A).is_empty(), "what was posted before is forgotten");
    pair.post_recv(B, 2, 0, 10);
    pair.post(A, &SendWr::new(2, SEND, Data::Inline(b"y"))).unwrap();
    pair.settle();
    assert_eq!((pair.successes(A), pair.successes(B)), (vec![2], vec![2]));
}

#[test]
fn a_queue_pair_that_is_gone_gets_nothing_and_its_number_is_another_s_later() {
    let options = Options::default();
    let mut pair = Pair::new(&options);
    let gone = pair.end(B).qp;
    pair.end(B).hca.destroy_qp(gone).unwrap();
    pair.post(A, &SendWr::new(1, SEND, Data::Inline(b"x"))).unwrap();
    pair.run(LATENCY * 2);
    assert_eq!(pair.end(B).hca.dropped().no_qp, 1);
    pair.settle();
    assert_eq!(pair.statuses(A), [(1, Status::RetryExceeded)]);
    assert!(pair.end(B).hca.destroy_qp(gone).is_err());
}

#[test]
fn strangers_are_not_heard() {
    let mut pair = Pair::plain();
    pair.post_recv(B, 1, 0, 10);
    pair.post(A, &SendWr::new(1, SEND, Data::Inline(b"x"))).unwrap();
    pair.lose(|_| true);
    pair.transmit();
    let packet = pair.sent(A).remove(0);
    let datagram = crate::roce::packet::datagram::Datagram::parse(&packet.bytes).unwrap();
    let mut forged = datagram;
    forged.path.addresses = path(A, true).addresses;
    let mut out = [0; 200];
    let len = forged.emit(&mut out);
    pair.deliver(B, &out[..len]);
    assert_eq!(pair.end(B).hca.dropped().stranger, 1);
    assert!(pair.end(B).poll().is_empty());
}

#[test]
fn adapters_at_one_address_have_numbers_of_their_own() {
    use crate::roce::qp::QpConfig;
    use crate::roce::{CreateError, Hca, Limits, Tuning};

    let mut hca = Hca::<Vec<u8>>::with_first_qp(Limits { qps: 2, ..Limits::default() }, Tuning::default(), 3 << 8);
    let (pd, cq) = (hca.alloc_pd(), hca.create_cq(8).unwrap());
    let config =
        QpConfig { transport: Transport::Ud, pd, send_cq: cq, recv_cq: cq, send_depth: 1, recv_depth: 2, sges_max: 1, inline_max: 0 };
    assert_eq!((hca.create_qp(config), hca.create_qp(config)), (Ok(0x3_0100), Ok(0x3_0200)));
    assert_eq!(hca.create_qp(config), Err(CreateError::Full));
    let init = Modify::Init { access: Access::empty(), qkey: 1 };
    hca.modify_qp(crate::time::Instant::ZERO, 0x3_0200, &init).unwrap();
    assert_eq!(hca.posted_receives(0x3_0200), Some(0));
    hca.post_recv(crate::time::Instant::ZERO, 0x3_0200, 7, &[]).unwrap();
    assert_eq!(hca.posted_receives(0x3_0200), Some(1));
    assert_eq!((hca.qp_state(0x100), hca.posted_receives(0x2_0100)), (None, None));
    hca.destroy_qp(0x3_0100).unwrap();
    assert_eq!(hca.create_qp(config), Ok(0x3_0101));
    // Whoever begins anew may begin elsewhere.
    let mut hca = Hca::<Vec<u8>>::with_first_qp(Limits { qps: 3, ..Limits::default() }, Tuning::default(), 3 << 8).turned(2 + 3 * 7);
    hca.create_cq(8).unwrap();
    assert_eq!([(); 4].map(|()| hca.create_qp(config)), [Ok(0x3_0307), Ok(0x3_0107), Ok(0x3_0207), Err(CreateError::Full)]);
    assert_eq!([0x3_0007, 0x3_0107, 0x3_0300, 0x3_0407].map(|qp| hca.qp_state(qp).is_some()), [false, true, false, false]);
    hca.destroy_qp(0x3_0307).unwrap();
    assert_eq!((hca.create_qp(config), hca.qp_state(0x3_0307)), (Ok(0x3_0308), None));
}

/// What came before a queue pair ended is acknowledged, as an adapter has done by then that needs no program for it.
#[test]
fn who_ends_has_acknowledged_what_came() {
    for ends_by in [Some(Modify::Err), Some(Modify::Reset), None] {
        let mut pair = Pair::plain();
        let write = pair.write(A, 0, None);
        pair.post_op(A, 1, write, 0, 64);
        let mut out = [0; 4096];
        let now = pair.now;
        let len = pair.end(A).hca.poll_transmit(now, &mut out).expect("a request");
        let end = pair.end(B);
        end.hca.on_packet(now, &out[..len]);
        match ends_by {
            Some(modify) => pair.modify(B, &modify).unwrap(),
            None => end.hca.destroy_qp(end.qp).unwrap(),
        }
        let len = pair.end(B).hca.poll_transmit(now, &mut out).expect("its acknowledgment");
        pair.end(A).hca.on_packet(now, &out[..len]);
        assert_eq!(pair.statuses(A), [(1, Status::Success)], "{ends_by:?}");
        assert_eq!(pair.end(B).hca.poll_transmit(now, &mut out), None, "and once");
    }
}
