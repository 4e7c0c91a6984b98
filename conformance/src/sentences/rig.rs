//! What a case needs of a device: two hosts that reach each other, and time that passes.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::Instant;
use ringway_stack::device::{Capabilities, FlowRule, MacAddr, Protocol, Queues, RxBatch, RxBuffer, RxFrame, RxMeta, Unsupported};
use ringway_stack::raw::RawQueue;

use super::frames::{Headers, Host, be16};

/// Between two looks at the receiver, for devices without hardware timestamps.
const STEP: Duration = Duration::from_micros(20);

/// Shorter frames are padded (IEEE 802.3 s4A.2.3.2.3, without the frame check sequence).
const FRAME_LEN_MIN: usize = 60;

/// Which host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that a case sends from.
    Sender,
    /// The one that a case receives on.
    Receiver,
}

/// Two hosts of one kind of device. (They may be one and the same where a device reaches itself.)
pub trait Rig {
    /// The device.
    type Queues: Queues;

    /// What the device says that it can do.
    fn capabilities(&self) -> Capabilities;

    /// A ring of a host, opened when it is first asked for. It receives what is steered to it.
    ///
    /// # Errors
    /// The device has not so many rings.
    fn ring(&mut self, side: Side, index: usize) -> Result<&mut RawQueue<Self::Queues>, Unsupported>;

    /// A host's Ethernet address.
    fn mac(&self, side: Side) -> MacAddr;

    /// A host's IPv4 address; nobody else on the machine steers by it.
    fn ip(&self, side: Side) -> Ipv4Addr;

    /// Whether the checksums of what the sender's device cuts are left to a device that is not there, between two ends on one machine, so that the receiver's verdict is all
    /// that there is of them.
    fn leaves_checksums(&self) -> bool {
        false
    }

    /// The time, as stamps have it.
    fn now(&self) -> Instant;

    /// Hands over what all rings have queued, lets `time` pass, and reaps.
    fn run_for(&mut self, time: Duration);

    /// The sender's first ring.
    ///
    /// # Errors
    /// As [`Rig::ring`].
    fn sender(&mut self) -> Result<&mut RawQueue<Self::Queues>, Unsupported> {
        self.ring(Side::Sender, 0)
    }

    /// The receiver's first ring.
    ///
    /// # Errors
    /// As [`Rig::ring`].
    fn receiver(&mut self) -> Result<&mut RawQueue<Self::Queues>, Unsupported> {
        self.ring(Side::Receiver, 0)
    }

    /// Writes headers from the sender to the receiver.
    fn headers(&self) -> Headers {
        let host = |side| Host { mac: self.mac(side), ip: self.ip(side) };
        Headers { from: host(Side::Sender), to: host(Side::Receiver) }
    }

    /// The rule for what a socket on the receiver's `port` would get.
    fn rule(&self, protocol: Protocol, port: u16) -> FlowRule {
        FlowRule::flow(protocol, SocketAddrV4::new(self.ip(Side::Receiver), port).into(), None)
    }

    /// Hands over what is queued, lets `time` pass, and gives what arrived meanwhile on the receiver's first ring.
    ///
    /// # Errors
    /// As [`Rig::ring`].
    fn exchange(&mut self, time: Duration) -> Result<Vec<Received>, Unsupported> {
        let mut received = Vec::new();
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(STEP);
            self.run_for(step);
            left -= step;
            received.extend(self.arrived(Side::Receiver, 0)?);
        }
        Ok(received)
    }

    /// What has arrived on a ring.
    ///
    /// # Errors
    /// As [`Rig::ring`].
    fn arrived(&mut self, side: Side, index: usize) -> Result<Vec<Received>, Unsupported> {
        let now = self.now();
        let ring = self.ring(side, index)?;
        let mut received = Vec::new();
        let mut batch = RxBatch::new(64);
        while ring.poll(now, &mut batch) > 0 {
            received.extend(batch.frames_mut().iter().map(|frame| Received::of(frame, now)));
            batch.clear();
        }
        Ok(received)
    }
}

/// A frame as it was received.
#[derive(Clone, Debug)]
pub struct Received {
    /// When: by the device's clock if it stamps frames, else when it was polled.
    pub at: Instant,
    /// What came with it.
    pub meta: RxMeta,
    /// All of it, but for what pads a short IPv4 packet to the shortest frame.
    pub bytes: Vec<u8>,
}

impl Received {
    fn of<B: RxBuffer>(frame: &RxFrame<B>, now: Instant) -> Self {
        let mut bytes = frame.to_vec();
        if be16(&bytes, 12) == 0x0800 && bytes.len() <= FRAME_LEN_MIN {
            bytes.truncate(14 + usize::from(be16(&bytes, 16)));
        }
        Self { at: frame.meta.hardware_time.unwrap_or(now), meta: frame.meta, bytes }
    }
}
