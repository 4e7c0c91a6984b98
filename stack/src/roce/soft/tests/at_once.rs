//! Messages whose packets are sent as they are posted, beside the same that are sent afterwards.

use std::sync::{Arc, Mutex};

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::*;
use crate::device::messages::{Addresses, Path, Peer, Sending};
use crate::roce::psn::Psn;

/// Two machines, and what left the first one.
struct World {
    switch: Switch,
    a: Machine,
    b: Machine,
    of_a: End,
    of_b: End,
    left: Arc<Mutex<Vec<Vec<u8>>>>,
    is_at_once: bool,
}

#[derive(PartialEq)]
struct Seen {
    /// Frames that left the first machine.
    left: Vec<Vec<u8>>,
    completed: [Vec<Status>; 2],
    traffic: Traffic,
    /// Where the second one was written to.
    memory: Vec<u8>,
}

impl World {
    fn new(now: &mut Instant, is_at_once: bool) -> Self {
        // (A few frames fill a port.)
        let switch = Switch::new(5);
        let (mut a, mut b) = (machine_that(&switch, 1, true), machine_that(&switch, 2, true));
        let (of_a, of_b, _) = connect(now, &mut a, &mut b, 2);
        let left = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let seen = left.clone();
        a.set_tap(Some(Box::new(move |leaves, frame| {
            if leaves {
                seen.lock().unwrap().push(frame.to_vec());
            }
        })));
        let mut world = Self { switch, a, b, of_a, of_b, left, is_at_once };
        world.give_receives();
        world
    }

    fn give_receives(&mut self) {
        while self.b.node().hca().posted_receives(self.of_b.qp).unwrap() < 16 {
            self.b.node_mut().post_recv(Instant::ZERO, self.of_b.qp, 0, &[]).unwrap();
        }
    }

    fn post(&mut self, now: Instant, wr: &SendWr<'_>) {
        if self.is_at_once {
            self.a.post_send(now, self.of_a.qp, wr).unwrap();
        } else {
            self.a.node_mut().post_send(now, self.of_a.qp, wr).unwrap();
        }
    }

    /// What anybody can see of it, and is the same in both worlds.
    fn look(&mut self) -> Seen {
        let left = core::mem::take(&mut *self.left.lock().unwrap());
        let completed = [(&mut self.a, &self.of_a), (&mut self.b, &self.of_b)].map(|(machine, end)| completed(machine, end));
        let memory = Messages::memory(self.b.node(), self.of_b.region.key).unwrap().clone();
        Seen { left, completed, traffic: self.a.traffic(), memory }
    }
}

#[test]
fn nobody_can_tell_whether_a_message_was_sent_as_it_was_posted() {
    for seed in 0..60 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |limit: u32| random.next_u32() % limit;
        let mut now = Instant::ZERO;
        let mut later = now;
        let mut worlds = [World::new(&mut now, true), World::new(&mut later, false)];
        let mut sent_at_once = 0;
        for step in 0..300 {
            let (action, len) = (below(10), 1 + below(64) as usize);
            let bytes = [step as u8; 64];
            for world in &mut worlds {
                let target = world.of_b.region;
                let write = |immediate| SendOp::Write { address: target.address + 100 * (step % 100), rkey: target.key, immediate };
                match action {
                    0..5 => {
                        let wr = SendWr::new(step, write(Some(step as u32)), Data::Inline(&bytes[..len]));
                        world.post(now, &SendWr { signaled: step % 3 == 0, ..wr });
                        sent_at_once += world.left.lock().unwrap().len();
                    }
                    5 => {
                        let sge = Sge { address: world.of_a.region.address, len: 5000, lkey: world.of_a.region.key };
                        world.post(now, &SendWr::new(step, write(None), Data::Gather(&[sge])));
                    }
                    6..8 => {
                        world.b.poll(now);
                        world.give_receives();
                    }
                    8 => drop(world.a.poll(now)),
                    _ => {}
                }
                if action != 9 {
                    world.a.transmit_due(now);
                }
            }
            now += ACKNOWLEDGES_WITHIN / (1 + len as u32);
            let [at_once, afterwards] = worlds.each_mut().map(World::look);
            assert!(at_once == afterwards, "seed {seed}, step {step}: {:?} {:?}", at_once.traffic, afterwards.traffic);
        }
        assert!(sent_at_once > 20, "{sent_at_once}");
        assert!(worlds.iter().all(|world| world.switch.take(1).len() <= 5));
    }
}

#[test]
fn a_message_of_an_unreliable_connection_goes_its_own_way() {
    let switch = Switch::new(100);
    let mut machines = [1, 2].map(|number| machine_that(&switch, number, true));
    let now = Instant::ZERO;
    let ends = machines.each_mut().map(|machine| {
        let node = machine.node_mut();
        let (pd, cq) = (Messages::alloc_pd(node), node.create_cq(10).unwrap());
        let (send_cq, recv_cq, transport) = (cq, cq, Transport::Uc);
        let qp = node.create_qp(QpConfig { transport, pd, send_cq, recv_cq, send_depth: 4, recv_depth: 4, sges_max: 1, inline_max: 64 });
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = Messages::register(node, pd, vec![0; 100], access).unwrap();
        node.modify_qp(now, qp.unwrap(), &Modify::Init { access, qkey: 0 }).unwrap();
        End { qp: qp.unwrap(), cq, region }
    });
    for (at, machine) in machines.iter_mut().enumerate() {
        let path = Path::new(Addresses::new(gid(1 + at as u8), gid(2 - at as u8)).unwrap(), 0x11);
        let psn = Psn::new(7);
        let peer = Peer { path, mtu: Mtu::B4096, dest_qp: ends[1 - at].qp, rq_psn: psn, max_dest_rd_atomic: 0, min_rnr_timer: 0 };
        for modify in [Modify::Rtr(peer), Modify::Rts(Sending { sq_psn: psn, ..Sending::default() })] {
            machine.node_mut().modify_qp(now, ends[at].qp, &modify).unwrap();
        }
    }
    let ([a, b], [of_a, of_b]) = (&mut machines, &ends);
    for id in 0..2 {
        b.node_mut().post_recv(now, of_b.qp, id, &[]).unwrap();
        let op = SendOp::Write { address: of_b.region.address, rkey: of_b.region.key, immediate: Some(1) };
        a.post_send(now, of_a.qp, &SendWr::new(id, op, Data::Inline(b"word"))).unwrap();
        a.transmit_due(now);
        b.poll(now);
        assert_eq!((completed(a, of_a), completed(b, of_b)), (vec![Status::Success], vec![Status::Success]));
    }
    assert_eq!(b.node().hca().dropped(), Dropped::default());
}
