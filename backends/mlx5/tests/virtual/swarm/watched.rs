//! A ring between the stack and the driver: it tells the laws what either says to the other, and lets the card work between any two calls, as a card does that asks nobody.

use ringway_mlx5::{Mlx5Device, Mlx5Queues, Received, SendBuffer};
use ringway_stack::Instant;
use ringway_stack::device::{
    Attached, Capabilities, Completion, Device, DeviceEvent, FlowRule, MacAddr, OpenError, QueueId, Queues, QueuesConfig, RuleError,
    RuleId, RxBatch, SendError, Target, TxBuffer as _, TxFrame, Unsupported, Wake,
};

use super::library::Shared;

/// A driver's device, and its card.
#[derive(Clone)]
pub(super) struct Watched {
    pub(super) driver: Mlx5Device,
    pub(super) card: Shared,
}

/// A ring of it.
pub(super) struct WatchedQueues {
    device: Watched,
    pub(super) queues: Mlx5Queues,
    ring: u32,
}

impl Watched {
    /// The card works, as much as it likes, and the driver's thread may hear of events.
    fn work(&self) {
        let mut card = self.card.borrow_mut();
        // (It sees each doorbell at once, and what it does about it, when it comes to it.)
        let most = if card.trouble.dice.chance_ppm(500_000) { 0 } else { card.trouble.dice.below(4) as usize };
        card.work(most);
        let hears = card.has_news() && card.trouble.dice.chance_ppm(100_000);
        drop(card);
        if hears {
            self.driver.hear();
        }
    }
}

impl Device for Watched {
    type Queues = WatchedQueues;

    fn capabilities(&self) -> &Capabilities {
        self.driver.capabilities()
    }

    fn open(&self, config: &QueuesConfig) -> Result<WatchedQueues, OpenError> {
        let queues = self.driver.open(config)?;
        Ok(WatchedQueues { device: self.clone(), ring: queues.id().0, queues })
    }

    fn attach(&self, rule: &FlowRule, target: Target) -> Result<Attached, RuleError> {
        self.work();
        self.driver.attach(rule, target)
    }

    fn retarget(&self, rule: RuleId, target: Target, tag: u32) -> Result<(), RuleError> {
        self.work();
        self.driver.retarget(rule, target, tag)
    }

    fn detach(&self, rule: RuleId) {
        self.work();
        self.driver.detach(rule);
    }
}

impl WatchedQueues {
    /// What the driver says to a call, which the card works before and after.
    fn call<T>(&mut self, call: impl FnOnce(&mut Mlx5Queues) -> T) -> T {
        self.device.work();
        let result = call(&mut self.queues);
        self.device.work();
        result
    }
}

impl Queues for WatchedQueues {
    type Device = Watched;
    type Rx = Received;
    type Tx = SendBuffer;

    fn device(&self) -> &Watched {
        &self.device
    }

    fn id(&self) -> QueueId {
        self.queues.id()
    }

    fn mac(&self) -> MacAddr {
        self.queues.mac()
    }

    fn poll_rx(&mut self, now: Instant, batch: &mut RxBatch<Received>) -> usize {
        let before = batch.len();
        let count = self.call(|queues| queues.poll_rx(now, batch));
        let laws = &mut self.device.card.borrow_mut().laws;
        for frame in batch.frames_mut().iter().skip(before) {
            laws.polled(self.ring, &frame.to_vec(), &frame.meta);
        }
        laws.forget_missed(self.ring);
        if batch.len() - before != count {
            laws.breach("received", format_args!("{count} frames are {}", batch.len() - before));
        }
        count
    }

    fn rx_ready(&self) -> bool {
        self.queues.rx_ready()
    }

    fn deadline(&self) -> Option<Instant> {
        self.queues.deadline()
    }

    fn rx_scarce(&self) -> bool {
        self.queues.rx_scarce()
    }

    fn tx_alloc(&mut self, len: usize) -> Option<SendBuffer> {
        self.queues.tx_alloc(len)
    }

    fn tx_free(&mut self, len: usize) -> usize {
        self.queues.tx_free(len)
    }

    fn send(&mut self, frame: &TxFrame<'_, SendBuffer>) -> Result<(), SendError> {
        let sent = self.call(|queues| queues.send(frame));
        self.note(frame, 0, sent.is_ok());
        sent
    }

    fn send_with_cookie(&mut self, frame: &TxFrame<'_, SendBuffer>, cookie: u64) -> Result<(), SendError> {
        let sent = self.call(|queues| queues.send_with_cookie(frame, cookie));
        self.note(frame, cookie, sent.is_ok());
        sent
    }

    fn doorbell(&mut self) {
        self.call(Mlx5Queues::doorbell);
    }

    fn reap(&mut self) {
        self.call(Mlx5Queues::reap);
    }

    fn completion(&mut self) -> Option<Completion> {
        let completion = self.queues.completion()?;
        self.device.card.borrow_mut().laws.completed(self.ring, completion.cookie, completion.status);
        Some(completion)
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        let event = self.call(Mlx5Queues::poll_event);
        self.device.card.borrow_mut().laws.forget_missed(self.ring);
        event
    }

    fn arm(&mut self, wake: Wake) -> bool {
        self.call(|queues| queues.arm(wake))
    }

    fn disarm(&mut self) {
        self.call(Mlx5Queues::disarm);
    }

    fn wait_fd(&self) -> Option<i32> {
        self.queues.wait_fd()
    }

    fn lend_heads(&mut self, on: bool) -> Result<(), Unsupported> {
        self.queues.lend_heads(on)
    }
}

impl WatchedQueues {
    /// A frame was handed over, if the driver took it.
    fn note(&self, frame: &TxFrame<'_, SendBuffer>, cookie: u64, is_taken: bool) {
        if !is_taken {
            return;
        }
        let mut bytes = frame.head.to_vec();
        for slice in frame.body {
            let start = bytes.len();
            bytes.resize(start + slice.len, 0);
            slice.buffer.copy_to(slice.offset, &mut bytes[start..]);
        }
        self.device.card.borrow_mut().laws.handed(self.ring, bytes, frame.offload, cookie);
    }
}
