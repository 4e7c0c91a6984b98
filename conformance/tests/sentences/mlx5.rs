//! A software ConnectX: two openings of it, each with as many rings as a case wants.

use core::time::Duration;
use std::net::Ipv4Addr;

use ringway_conformance::sentences::{Rig, Side};
use ringway_host::Clock;
use ringway_mlx5::{Mlx5Device, Mlx5Queues};
use ringway_stack::Instant;
use ringway_stack::device::{Capabilities, Device as _, EthernetMatch, FlowRule, HeaderMatch, MacAddr, QueuesConfig, Unsupported};
use ringway_stack::raw::RawQueue;

use crate::connectx::{MACS, card};

/// What all that was queued takes at most.
const PATIENCE: Duration = Duration::from_secs(20);
/// An ethertype for local experiments (IEEE 802), which no case asks for.
const NOBODYS: u16 = 0x88b6;

/// Both hosts.
pub(crate) struct CardRig {
    cards: [Mlx5Device; 2],
    /// By side.
    rings: [Vec<RawQueue<Mlx5Queues>>; 2],
    clock: Clock,
}

impl CardRig {
    pub(crate) fn new() -> Self {
        Self { cards: MACS.map(card), rings: [Vec::new(), Vec::new()], clock: Clock::system() }
    }
}

impl Rig for CardRig {
    type Queues = Mlx5Queues;

    fn capabilities(&self) -> Capabilities {
        self.cards[0].capabilities().clone()
    }

    fn ring(&mut self, side: Side, index: usize) -> Result<&mut RawQueue<Mlx5Queues>, Unsupported> {
        let (card, rings) = (&self.cards[side as usize], &mut self.rings[side as usize]);
        while rings.len() <= index {
            let queues = card.open(&QueuesConfig { steered_only: true }).map_err(|_| card.capabilities().lacks("so many rings"))?;
            rings.push(RawQueue::new(queues));
        }
        Ok(&mut rings[index])
    }

    fn mac(&self, side: Side) -> MacAddr {
        MACS[side as usize]
    }

    fn ip(&self, side: Side) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, 0, 1 + side as u8)
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// (The card's time is the machine's, and its thread may wait for a processor: what was queued is waited for.)
    fn run_for(&mut self, time: Duration) {
        self.rings.iter_mut().flatten().for_each(RawQueue::flush);
        let was_under_way = self.unsent() > 0;
        let begin = self.clock.now();
        while self.clock.now().since(begin) < time || self.unsent() > 0 {
            self.rings.iter_mut().flatten().for_each(RawQueue::reap);
            assert!(self.clock.now().since(begin) < PATIENCE, "{} blocks are never sent", self.unsent());
            core::hint::spin_loop();
        }
        if was_under_way {
            self.wait_for_card();
        }
    }
}

impl CardRig {
    /// A command waits for the card's thread: what that has sent has arrived then.
    fn wait_for_card(&mut self) {
        let ethernet = EthernetMatch { ethertype: Some(NOBODYS), ..EthernetMatch::default() };
        let rule = FlowRule { outer: HeaderMatch { ethernet, ..HeaderMatch::default() }, ..FlowRule::any() };
        let queue = self.ring(Side::Sender, 0).expect("the first ring");
        let attached = queue.steer(&rule).expect("room for a rule");
        queue.unsteer(attached.rule);
    }

    /// Blocks that the card has not done yet.
    fn unsent(&mut self) -> usize {
        self.rings.iter_mut().flatten().map(|ring| ring.queues_mut().unsent()).sum()
    }
}
