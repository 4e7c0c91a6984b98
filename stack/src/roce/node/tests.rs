use core::time::Duration;

use super::*;
use crate::device::messages::{
    Access, CmError, ConnectionEvent, Connections, Data, Messages, Modify, PrivateData, QpConfig, SendOp, SendWr, State, Status, Transport,
};
use crate::roce::cm::Connect;
use crate::roce::mad::Request;
use crate::roce::mad::private::{HEADER_LEN, IpHeader};
use crate::roce::qp::RD_ATOMIC_MAX;

type Machine = Node<Vec<u8>>;

fn machine(host: u8) -> Machine {
    Node::new(NodeConfig::new(IpAddr::from([10, 0, 0, host])), u64::from(host))
}

fn qp(node: &mut Machine) -> (u32, u32) {
    let pd = Messages::alloc_pd(node);
    let cq = node.create_cq(16).unwrap();
    let config =
        QpConfig { transport: Transport::Rc, pd, send_cq: cq, recv_cq: cq, send_depth: 4, recv_depth: 4, sges_max: 1, inline_max: 64 };
    let qp = node.create_qp(config).unwrap();
    node.modify_qp(Instant::ZERO, qp, &Modify::Init { access: Access::empty(), qkey: 0 }).unwrap();
    (qp, cq)
}

/// Carries packets to and fro until there are none, and lets a second pass.
fn run(now: &mut Instant, nodes: &mut [Machine; 2]) {
    let mut out = [0; Machine::PACKET_MAX];
    let end = *now + Duration::from_secs(1);
    loop {
        let mut quiet = true;
        for from in [0, 1] {
            while let Some(len) = nodes[from].poll_transmit(*now, &mut out) {
                quiet = false;
                nodes[1 - from].on_packet(*now, &out[..len]);
            }
        }
        if quiet {
            let Some(at) = nodes.iter().filter_map(Machine::deadline).min().filter(|at| *at < end) else { break };
            *now = at;
            nodes.iter_mut().for_each(|node| node.on_timer(at));
        }
    }
    *now = end;
}

fn event(node: &mut Machine) -> Option<ConnectionEvent> {
    node.poll_connection().map(|(_, event)| event)
}

#[test]
fn two_queue_pairs_are_ready_once_their_connection_stands() {
    let (mut now, mut nodes) = (Instant::ZERO, [machine(1), machine(2)]);
    let to: SocketAddr = "10.0.0.2:7471".parse().unwrap();
    nodes[1].listen(to, 4).unwrap();
    let (a, _) = qp(&mut nodes[0]);
    let asked = nodes[0].connect(now, a, "0.0.0.0:0".parse().unwrap(), to, b"ask").unwrap();
    run(&mut now, &mut nodes);
    let Some((id, ConnectionEvent::Request(request))) = nodes[1].poll_connection() else { panic!("a request comes") };
    assert_eq!((request.local, request.remote), (to, "10.0.0.1:32768".parse().unwrap()));
    assert_eq!(request.private_data[..3], *b"ask");
    let (b, b_cq) = qp(&mut nodes[1]);
    nodes[1].post_recv(now, b, 7, &[]).unwrap();
    nodes[1].accept(now, id, b, b"answer").unwrap();
    assert_eq!(nodes[1].qp_state(b), Some(State::Rts));
    run(&mut now, &mut nodes);
    let Some(ConnectionEvent::Established(answer)) = event(&mut nodes[0]) else { panic!("it stands") };
    assert_eq!(answer[..6], *b"answer");
    assert_eq!(event(&mut nodes[1]), Some(ConnectionEvent::Established(PrivateData::new())));
    let wr = SendWr::new(1, SendOp::Send { immediate: Some(5) }, Data::Inline(b""));
    nodes[0].post_send(now, a, &wr).unwrap();
    run(&mut now, &mut nodes);
    let got = nodes[1].poll_cq(b_cq).expect("it arrives");
    assert_eq!((got.id, got.status, got.immediate), (7, Status::Success, Some(5)));
    nodes[0].destroy(now, asked);
    run(&mut now, &mut nodes);
    assert_eq!((event(&mut nodes[0]), event(&mut nodes[1])), (None, Some(ConnectionEvent::Disconnected)));
}

#[test]
fn a_process_that_has_ended_is_parted_from_by_its_machine() {
    let (mut now, mut nodes) = (Instant::ZERO, [machine(1), machine(2)]);
    let to: SocketAddr = "10.0.0.2:7471".parse().unwrap();
    nodes[1].listen(to, 4).unwrap();
    let (a, half) = (qp(&mut nodes[0]).0, qp(&mut nodes[0]).0);
    nodes[0].connect(now, a, "0.0.0.0:0".parse().unwrap(), to, &[]).unwrap();
    run(&mut now, &mut nodes);
    let Some((id, ConnectionEvent::Request(_))) = nodes[1].poll_connection() else { panic!("a request comes") };
    let (b, _) = qp(&mut nodes[1]);
    nodes[1].accept(now, id, b, &[]).unwrap();
    run(&mut now, &mut nodes);
    nodes[0].connect(now, half, "0.0.0.0:0".parse().unwrap(), to, &[]).unwrap();
    run(&mut now, &mut nodes);
    let Some(ConnectionEvent::Established(_)) = event(&mut nodes[1]) else { panic!("the first stands") };
    let Some((asked, ConnectionEvent::Request(_))) = nodes[1].poll_connection() else { panic!("another request comes") };
    let peer = IpAddr::from([10, 0, 0, 1]);
    assert_eq!(nodes[1].remote_queue_pairs().collect::<Vec<_>>(), [(peer, a), (peer, half)]);
    nodes[1].on_queue_pairs_gone(now, &|_, _| false);
    assert_eq!(event(&mut nodes[1]), None, "others have ended");
    nodes[1].on_queue_pairs_gone(now, &|ip, _| ip == peer);
    assert_eq!(nodes[1].poll_connection(), Some((id, ConnectionEvent::Disconnected)));
    assert_eq!(nodes[1].poll_connection(), Some((asked, ConnectionEvent::Rejected)));
    assert_eq!(nodes[1].qp_state(b), Some(State::Rts), "nobody tells a queue pair");
    assert_eq!(nodes[1].remote_queue_pairs().count(), 0);
}

#[test]
fn who_asks_an_address_that_is_not_listened_at_is_refused() {
    let (mut now, mut nodes) = (Instant::ZERO, [machine(1), machine(2)]);
    nodes[1].listen("10.0.0.9:7471".parse().unwrap(), 4).unwrap();
    let (a, _) = qp(&mut nodes[0]);
    for port in [7471, 7472] {
        nodes[0].connect(now, a, "10.0.0.1:5".parse().unwrap(), SocketAddr::new([10, 0, 0, 2].into(), port), &[]).unwrap();
        run(&mut now, &mut nodes);
        assert_eq!(event(&mut nodes[0]), Some(ConnectionEvent::Rejected));
        assert_eq!(event(&mut nodes[1]), None);
    }
}

#[test]
fn what_cannot_go_is_refused_at_once() {
    let mut node = machine(1);
    let (a, _) = qp(&mut node);
    let mut connect =
        |from: &str, to: &str, len: usize| node.connect(Instant::ZERO, a, from.parse().unwrap(), to.parse().unwrap(), &vec![0; len]).err();
    assert_eq!(connect("0.0.0.0:0", "[::1]:5", 0), Some(CmError::Unroutable), "no address of this family");
    assert_eq!(connect("10.0.0.7:0", "10.0.0.2:5", 0), Some(CmError::Unroutable), "not our address");
    assert_eq!(connect("0.0.0.0:0", "10.0.0.2:5", 57), Some(CmError::TooLong));
    assert_eq!(connect("0.0.0.0:0", "10.0.0.2:5", 56), None);
}

#[test]
fn who_is_asked_agrees_to_the_reads_that_the_peer_would_have_up_to_a_limit() {
    let (mut now, mut nodes) = (Instant::ZERO, [machine(1), machine(2)]);
    let to: SocketAddr = "10.0.0.2:7471".parse().unwrap();
    nodes[1].listen(to, 4).unwrap();
    let (a, _) = qp(&mut nodes[0]);
    let (path, mtu) = nodes[0].path(None, to.ip()).unwrap();
    let mut private_data = [0; Request::PRIVATE_LEN];
    let header = IpHeader { src: "10.0.0.1:5".parse().unwrap(), dst: to.ip() };
    private_data[..HEADER_LEN].copy_from_slice(&header.emit());
    let connect = Connect {
        path,
        service_id: Machine::service(to.port()),
        qpn: a,
        starting_psn: Psn::new(1),
        mtu,
        ack_timeout: 14,
        responder_resources: 4,
        initiator_depth: 200,
        flow_control: true,
        retry_count: 7,
        rnr_retry_count: 7,
        private_data,
    };
    nodes[0].cm.connect(now, &connect).unwrap();
    run(&mut now, &mut nodes);
    let Some((id, ConnectionEvent::Request(_))) = nodes[1].poll_connection() else { panic!("a request comes") };
    let Some(Pending::Waits(attributes)) = nodes[1].pending.get(&id) else { panic!("it waits") };
    assert_eq!((attributes.peer.max_dest_rd_atomic, attributes.sending.max_rd_atomic), (RD_ATOMIC_MAX, 4));
    let (b, b_cq) = qp(&mut nodes[1]);
    nodes[1].accept(now, id, b, b"").unwrap();
    let read = SendWr::new(1, SendOp::Read { address: 0, rkey: 0 }, Data::Gather(&[]));
    nodes[1].post_send(now, b, &read).unwrap();
    run(&mut now, &mut nodes);
    // (Who may not read at all has that told at once. Here it goes out, and nobody answers.)
    assert_eq!(nodes[1].poll_cq(b_cq).map(|completion| completion.status), Some(Status::RetryExceeded));
}
