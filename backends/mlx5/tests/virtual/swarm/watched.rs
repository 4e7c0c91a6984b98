//! A ring between the stack and the driver: it tells the laws what either says to the other, and lets the card work between any two calls, as a card does that asks nobody.

use ringway_mlx5::{Mlx5Device, Mlx5Queues, Received, SendBuffer};
use ringway_stack::Instant;
use ringway_stack::device::{
    Attached, Capabilities, Completion, CyclicConfig, CyclicError, CyclicId, CyclicPacket, Device, DeviceEvent, DeviceMemory,
    DeviceMemoryError, FlowRule, MacAddr, OpenError, Pacing, QueueId, Queues, QueuesConfig, RuleError, RuleId, RxBatch, RxBuffer as _,
    SendError, Target, TxBuffer as _, TxFrame, Unsupported, Wake,
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
        if !config.steered_only {
            self.card.borrow_mut().laws.steering.begin(queues.mac().0, queues.id().0);
        }
        Ok(WatchedQueues { device: self.clone(), ring: queues.id().0, queues })
    }

    fn attach(&self, rule: &FlowRule, target: Target) -> Result<Attached, RuleError> {
        self.work();
        let attached = self.driver.attach(rule, target)?;
        let laws = &mut self.card.borrow_mut().laws;
        let queue = laws.key(target);
        laws.steering.attached(rule, attached.rule, queue);
        Ok(attached)
    }

    fn retarget(&self, rule: RuleId, target: Target, tag: u32) -> Result<(), RuleError> {
        self.work();
        self.driver.retarget(rule, target, tag)?;
        let laws = &mut self.card.borrow_mut().laws;
        let queue = laws.key(target);
        laws.steering.retargeted(rule, queue, tag);
        Ok(())
    }

    fn detach(&self, rule: RuleId) {
        self.work();
        self.driver.detach(rule);
        let mut card = self.card.borrow_mut();
        let may_stay = card.may_refuse();
        card.laws.steering.ended(|of, _| of == rule, may_stay);
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

    fn pace(&mut self, pacing: Pacing) -> Result<(), Unsupported> {
        self.device.work();
        self.queues.pace(pacing)?;
        // (What leaves from now on does so at the new rate.)
        self.device.card.borrow_mut().paced(self.ring, pacing);
        self.device.work();
        Ok(())
    }

    fn cyclic_create(&mut self, config: &CyclicConfig) -> Result<CyclicId, CyclicError> {
        let queue = self.call(|queues| queues.cyclic_create(config))?;
        let mut card = self.device.card.borrow_mut();
        let number = card.last_striding().expect("it was made");
        card.laws.strides.insert((self.ring, queue.0), number);
        Ok(queue)
    }

    fn cyclic_read(
        &mut self,
        queue: CyclicId,
        packets_max: usize,
        packets: &mut Vec<CyclicPacket>,
    ) -> Result<Option<Received>, CyclicError> {
        let before = packets.len();
        let run = self.call(|queues| queues.cyclic_read(queue, packets_max, packets))?;
        let laws = &mut self.device.card.borrow_mut().laws;
        let number = laws.key(Target::Cyclic(self.id(), queue));
        for packet in &packets[before..] {
            let mut bytes = vec![0; packet.len];
            run.iter().for_each(|run| run.copy_to(packet.offset, &mut bytes));
            laws.polled(number, &bytes, &packet.meta);
        }
        if packets_max > 0 && run.is_none() {
            laws.forget_missed(number);
        }
        Ok(run)
    }

    fn cyclic_destroy(&mut self, queue: CyclicId) -> Result<(), CyclicError> {
        self.call(|queues| queues.cyclic_destroy(queue))?;
        let laws = &mut self.device.card.borrow_mut().laws;
        let number = laws.key(Target::Cyclic(self.id(), queue));
        laws.ended(number);
        Ok(())
    }

    fn dm_alloc(&mut self, len: usize) -> Result<DeviceMemory, DeviceMemoryError> {
        self.call(|queues| queues.dm_alloc(len))
    }

    fn dm_copy_to(&mut self, memory: DeviceMemory, offset: usize, bytes: &[u8]) -> Result<(), DeviceMemoryError> {
        self.call(|queues| queues.dm_copy_to(memory, offset, bytes))
    }

    fn dm_copy_from(&mut self, memory: DeviceMemory, offset: usize, out: &mut [u8]) -> Result<(), DeviceMemoryError> {
        self.call(|queues| queues.dm_copy_from(memory, offset, out))
    }

    fn dm_register(&mut self, memory: DeviceMemory, offset: usize, len: usize) -> Result<SendBuffer, DeviceMemoryError> {
        self.call(|queues| queues.dm_register(memory, offset, len))
    }

    fn dm_free(&mut self, memory: DeviceMemory) -> Result<(), DeviceMemoryError> {
        self.call(|queues| queues.dm_free(memory))
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
        self.device.card.borrow_mut().laws.handed(self.ring, (frame.head.len(), bytes), frame.offload, cookie);
    }
}

impl Drop for WatchedQueues {
    fn drop(&mut self) {
        // (While a law's breach is on its way out, somebody may hold the card.)
        if let Ok(mut card) = self.device.card.try_borrow_mut() {
            let may_stay = card.may_refuse();
            card.laws.closed(self.ring, may_stay);
        }
    }
}
