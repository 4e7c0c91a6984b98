//! The capture, played again: asked to do what upstream's librdmacm asked of Linux's soft RoCE, our requester sends the same packets,
//! byte for byte, and our responder acknowledges them with the same bytes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::pair::Adapter;
use crate::roce::capture;
use crate::roce::memory::{Access, Pd};
use crate::roce::packet::datagram::{Datagram, OVERHEAD_MAX};
use crate::roce::packet::frame::Frame;
use crate::roce::packet::{Body, Header, Reth};
use crate::roce::qp::{Modify, Mtu, Peer, QpConfig, Sending, Transport};
use crate::roce::work::{Completion, Data, SendOp, SendWr, Sge, Status};
use crate::roce::{Limits, Tuning};
use crate::time::Instant;

const PD: Pd = Pd(1);
const NOW: Instant = Instant::from_nanos(1000);

/// One direction of a connection: requests, and their acknowledgments.
struct Direction {
    requests: Vec<Datagram<'static>>,
    answers: Vec<Datagram<'static>>,
}

/// All four, by sender and queue pair.
fn directions() -> BTreeMap<(IpAddr, u32), Direction> {
    let mut directions = BTreeMap::new();
    for datagram in capture::frames().filter_map(|bytes| Frame::parse(bytes).ok()).map(|frame| frame.datagram) {
        let Header { body, dest_qp, .. } = datagram.packet.header;
        if dest_qp == 1 {
            continue;
        }
        // Both ends of each connection have the same number, so its acknowledgments have it, too.
        let addresses = datagram.path.addresses;
        let requester = if body.is_response() { addresses.dst() } else { addresses.src() };
        let direction = directions.entry((requester, dest_qp)).or_insert(Direction { requests: vec![], answers: vec![] });
        if body.is_response() { direction.answers.push(datagram) } else { direction.requests.push(datagram) }
    }
    directions
}

/// An adapter whose one queue pair sends as the sender of `like` did, and expects what its peer sent.
fn adapter(like: &Datagram<'_>, first_received: &Datagram<'_>) -> (Adapter, u32, u32) {
    let mut hca = Adapter::new(Limits::default(), Tuning::default());
    assert_eq!(hca.alloc_pd(), PD);
    let cq = hca.create_cq(1000).unwrap();
    let config = QpConfig {
        transport: Transport::Rc,
        pd: PD,
        send_cq: cq,
        recv_cq: cq,
        send_depth: 384,
        recv_depth: 384,
        sges_max: 2,
        inline_max: 64,
    };
    let qp = hca.create_qp(config).unwrap();
    let peer = Peer {
        path: like.path,
        mtu: Mtu::B1024,
        dest_qp: like.packet.header.dest_qp,
        rq_psn: first_received.packet.header.psn,
        max_dest_rd_atomic: 0,
        min_rnr_timer: 0,
    };
    let sending = Sending { sq_psn: like.packet.header.psn, timeout: 19, max_rd_atomic: 0, ..Sending::default() };
    for modify in [Modify::Init { access: Access::all(), qkey: 0 }, Modify::Rtr(peer), Modify::Rts(sending)] {
        hca.modify_qp(NOW, qp, &modify).unwrap();
    }
    (hca, qp, cq)
}

/// `datagram` for another queue pair.
fn redirected(datagram: &Datagram<'_>, dest_qp: u32, body: Body) -> Vec<u8> {
    let mut datagram = *datagram;
    datagram.packet.header = Header { dest_qp, body, ..datagram.packet.header };
    emitted(&datagram)
}

fn emitted(datagram: &Datagram<'_>) -> Vec<u8> {
    let mut out = vec![0; datagram.packet.payload.len() + OVERHEAD_MAX];
    let len = datagram.emit(&mut out);
    out.truncate(len);
    out
}

/// What the adapter sends next, with the identification that upstream's packet had, which is each host's own.
fn sent(hca: &mut Adapter, id: u16) -> Option<Vec<u8>> {
    let mut out = [0; Adapter::PACKET_MAX];
    let len = hca.poll_transmit(NOW, &mut out)?;
    Some(emitted(&Datagram { id, ..Datagram::parse(&out[..len]).unwrap() }))
}

/// The messages that the requests are parts of: where to, with which immediate, which bytes.
fn messages(requests: &[Datagram<'_>]) -> Vec<(Reth, Option<u32>, Vec<u8>)> {
    let mut messages: Vec<(Reth, Option<u32>, Vec<u8>)> = Vec::new();
    for request in requests {
        match request.packet.header.body {
            Body::WriteFirst(reth) => messages.push((reth, None, vec![])),
            Body::WriteOnly(reth, immediate) => messages.push((reth, immediate, vec![])),
            Body::WriteLast(immediate) => messages.last_mut().unwrap().1 = immediate,
            Body::WriteMiddle => {}
            body => panic!("rsockets write, and do nothing else: {body:?}"),
        }
        messages.last_mut().unwrap().2.extend(request.packet.payload);
    }
    messages
}

#[test]
fn our_requests_are_upstream_s() {
    let directions = directions();
    assert_eq!(directions.len(), 4, "two connections");
    for (name, Direction { requests, answers }) in &directions {
        let (mut hca, qp, cq) = adapter(&requests[0], &answers[0]);
        let messages = messages(requests);
        let bytes: Vec<u8> = messages.iter().flat_map(|(.., bytes)| bytes.clone()).collect();
        let lkey = hca.register(PD, 0, bytes, Access::empty()).unwrap();
        let mut address = 0;
        for (id, (reth, immediate, bytes)) in messages.iter().enumerate() {
            let op = SendOp::Write { address: reth.address, rkey: reth.rkey, immediate: *immediate };
            let sge = Sge { address, len: bytes.len() as u32, lkey };
            hca.post_send(NOW, qp, &SendWr::new(id as u64, op, Data::Gather(&[sge]))).unwrap();
            address += bytes.len() as u64;
        }
        for request in requests {
            assert_eq!(sent(&mut hca, request.id), Some(emitted(request)), "{name:?}: {:?}", request.packet.header);
        }
        assert_eq!(sent(&mut hca, 0), None);
        for answer in answers {
            hca.on_packet(NOW, &redirected(answer, qp, answer.packet.header.body));
        }
        let completions: Vec<Completion> = core::iter::from_fn(|| hca.poll_cq(cq)).collect();
        assert!(completions.iter().all(|completion| completion.status == Status::Success));
        // The last message of who disconnects need not be acknowledged before the connection is gone.
        assert!(completions.len() + 1 >= messages.len(), "{name:?}: {} of {}", completions.len(), messages.len());
    }
}

#[test]
fn our_acknowledgments_are_upstream_s() {
    for (name, Direction { requests, answers }) in &directions() {
        let (mut hca, qp, cq) = adapter(&answers[0], &requests[0]);
        let messages = messages(requests);
        // The regions that the requests write to, by their keys there, and as long as they need.
        let mut regions: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (reth, ..) in messages.iter().filter(|(reth, ..)| reth.len > 0) {
            let end = reth.address + u64::from(reth.len);
            let region = regions.entry(reth.rkey).or_insert((reth.address, end));
            *region = (region.0.min(reth.address), region.1.max(end));
        }
        let keys: BTreeMap<u32, u32> = regions
            .iter()
            .map(|(rkey, (start, end))| {
                let memory = vec![0; (end - start) as usize];
                (*rkey, hca.register(PD, *start, memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap())
            })
            .collect();
        let immediates: Vec<u32> = messages.iter().filter_map(|(_, immediate, _)| *immediate).collect();
        for id in 0..immediates.len() {
            hca.post_recv(NOW, qp, id as u64, &[]).unwrap();
        }
        let mut answers = answers.iter();
        let local = |reth: Reth| Reth { rkey: keys.get(&reth.rkey).copied().unwrap_or(reth.rkey), ..reth };
        for request in requests {
            let body = match request.packet.header.body {
                Body::WriteFirst(reth) => Body::WriteFirst(local(reth)),
                Body::WriteOnly(reth, immediate) => Body::WriteOnly(local(reth), immediate),
                body => body,
            };
            hca.on_packet(NOW, &redirected(request, qp, body));
            if request.packet.header.ack_request {
                match answers.next() {
                    Some(answer) => assert_eq!(sent(&mut hca, answer.id), Some(emitted(answer)), "{name:?}"),
                    None => assert!(sent(&mut hca, 0).is_some(), "the last one may have come too late to be captured"),
                }
            }
            assert_eq!(sent(&mut hca, 0), None);
        }
        assert_eq!(answers.count(), 0);
        let received: Vec<_> = core::iter::from_fn(|| hca.poll_cq(cq)).map(|c| (c.status, c.immediate)).collect();
        assert_eq!(received, immediates.iter().map(|word| (Status::Success, Some(*word))).collect::<Vec<_>>());
        // The last bytes written to each place are there.
        let (reth, _, bytes) = messages.iter().rfind(|(reth, ..)| reth.len > 0).unwrap();
        let at = (reth.address - regions[&reth.rkey].0) as usize;
        assert_eq!(&hca.memory(keys[&reth.rkey]).unwrap()[at..at + bytes.len()], &bytes[..]);
    }
}
