//! All of it together: connection management over queue pair 1 brings two queue pairs together, data flows, and it ends.

use core::time::Duration;

use super::pair::Side::{A, B};
use super::pair::{LATENCY, Options, Pair, Side, path};
use crate::roce::cm::{Accept, Cm, Config, Connect, ConnectionId, Event};
use crate::roce::mad::private::{IpHeader, PortSpace, service_id};
use crate::roce::mad::{Reply, Request};
use crate::roce::memory::Access;
use crate::roce::packet::datagram::Path;
use crate::roce::psn::Psn;
use crate::roce::qp::{Events, Modify, Mtu, Peer, Sending, State, Transport};
use crate::roce::work::{Data, SendOp, SendWr};

struct World {
    pair: Pair,
    cms: [Cm; 2],
}

impl World {
    fn new() -> Self {
        let cm = |seed| Cm::new(Config::default(), seed);
        Self { pair: Pair::unconnected(&Options::default(), Transport::Rc), cms: [cm(1), cm(2)] }
    }

    fn qp_ready(&mut self, side: Side, path: Path, mtu: u8, dest_qp: u32, sq_psn: Psn) {
        let mtu = Mtu::from_code(mtu).unwrap();
        let peer = Peer { path, mtu, dest_qp, rq_psn: psn(side), max_dest_rd_atomic: 1, min_rnr_timer: 12 };
        self.pair.modify(side, &Modify::Init { access: Access::all(), qkey: 0 }).unwrap();
        self.pair.modify(side, &Modify::Rtr(peer)).unwrap();
        let sending = Sending { sq_psn, timeout: 10, ..Sending::default() };
        self.pair.modify(side, &Modify::Rts(sending)).unwrap();
    }

    /// Lets time pass in small steps, with datagrams of management carried between the adapters and their managements.
    fn run(&mut self, time: Duration) -> Vec<(Side, ConnectionId, Event)> {
        let end = self.pair.now + time;
        let mut events = Vec::new();
        while self.pair.now < end {
            for side in [A, B] {
                let now = self.pair.now;
                let cm = &mut self.cms[side as usize];
                let hca = &mut self.pair.ends[side as usize].hca;
                while let Some(management) = hca.receive_management() {
                    cm.on_management(now, &management);
                }
                cm.on_timer(now);
                while let Some(management) = cm.poll_transmit() {
                    assert!(hca.send_management(management));
                }
                events.extend(core::iter::from_fn(|| cm.poll_event()).map(|(id, event)| (side, id, event)));
            }
            self.pair.run(LATENCY);
        }
        events
    }
}

/// Which number the first packet is to have that comes to this side.
fn psn(side: Side) -> Psn {
    Psn::new(if side == A { 100 } else { 0xff_ffff })
}

#[test]
fn two_programs_meet_talk_and_part() {
    let mut world = World::new();
    let service = service_id(PortSpace::Tcp, 7471);
    world.cms[1].listen(service, 8).unwrap();
    let mut private_data = [0; Request::PRIVATE_LEN];
    let header = IpHeader { src: "10.9.0.1:4000".parse().unwrap(), dst: "10.9.0.2".parse().unwrap() };
    private_data[..36].copy_from_slice(&header.emit());
    let connect = Connect {
        path: path(A, false),
        service_id: service,
        qpn: world.pair.end(A).qp,
        starting_psn: psn(A),
        mtu: Mtu::B512,
        ack_timeout: 10,
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: true,
        retry_count: 7,
        rnr_retry_count: 7,
        private_data,
    };
    let a = world.cms[0].connect(world.pair.now, &connect).unwrap();

    let mut events = world.run(LATENCY * 4);
    let Some((B, b, Event::Request { path, request })) = events.pop() else { panic!("{events:?}") };
    assert_eq!(IpHeader::parse(&request.private_data), Ok(header));
    world.qp_ready(B, path, request.path_mtu, request.qpn, request.starting_psn);
    let accept = Accept {
        qpn: world.pair.end(B).qp,
        starting_psn: psn(B),
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: true,
        rnr_retry_count: 7,
        private_data: [0; Reply::PRIVATE_LEN],
    };
    world.cms[1].accept(world.pair.now, b, &accept).unwrap();

    let mut events = world.run(LATENCY * 4);
    let Some((A, of, Event::Reply(reply))) = events.pop() else { panic!("{events:?}") };
    assert_eq!(of, a);
    world.qp_ready(A, connect.path, Mtu::B512 as u8, reply.qpn, reply.starting_psn);
    world.cms[0].establish(world.pair.now, a).unwrap();
    assert_eq!(world.run(LATENCY * 4), [(B, b, Event::Established)]);

    for (side, text) in [(A, &b"ping"[..]), (B, &b"pong"[..])] {
        world.pair.post_recv(side.peer(), 1, 0, 64);
        world.pair.post(side, &SendWr::new(1, SendOp::Send { immediate: None }, Data::Inline(text))).unwrap();
        world.run(LATENCY * 4);
        assert_eq!(world.pair.end(side.peer()).bytes(0, 4), text);
        assert_eq!((world.pair.successes(side), world.pair.successes(side.peer())), (vec![1], vec![1]));
    }
    let qp = world.pair.end(B).qp;
    assert_eq!(world.pair.end(B).hca.take_qp_events(qp), Events::empty(), "it was ready to send before the first packet");

    world.cms[1].disconnect(world.pair.now, b).unwrap();
    assert_eq!(world.run(LATENCY * 4), [(A, a, Event::Disconnected), (B, b, Event::Disconnected)]);
    for side in [A, B] {
        world.pair.modify(side, &Modify::Err).unwrap();
        assert_eq!(world.pair.end(side).state(), State::Err);
    }
}
