//! The short way of a frame in.
//!
//! Most frames are like the one before: a small segment for the same connection, in headers of one shape, whose checksums the device has verified. What
//! is the matter with such a frame is told by a few comparisons; whatever else may be the matter leads to the long way (`input.rs`), which does the
//! same to the connection.

use std::net::{IpAddr, Ipv4Addr};

use super::Ring;
use super::demux::KeyV4;
use super::input::CLASS_D;
use crate::device::{ChecksumVerdict, Queues, RxFrame};
use crate::tcp::State;
use crate::time::Instant;
use crate::wire::fixed::Segment;

impl<Q: Queues> Ring<Q> {
    /// A frame that is all in its head. `None`: it is not like that; nothing was done. (A mutant goes the long way, where what is wrong with it is.)
    #[inline(always)]
    pub(super) fn on_predicted_frame(&mut self, now: Instant, frame: &RxFrame<Q::Rx>) -> Option<()> {
        let meta = &frame.meta;
        let is_untagged = meta.flow_tag == 0 && meta.vlan.is_none() && self.config.vlan.is_none();
        if meta.checksum != ChecksumVerdict::Good || !is_untagged || !self.config.mutation().is_healthy() {
            return None;
        }
        let segment = Segment::parse(frame.head())?;
        let hosts = segment.hosts();
        let (src, dst) = ((hosts >> 32) as u32, hosts as u32);
        let index = self.demux.same_as_last(KeyV4::of_segment(hosts, segment.ports()))?;
        let is_of_hosts = src < CLASS_D && dst < CLASS_D;
        if !segment.link_dst().is(self.mac) || !is_of_hosts || !self.is_ours(IpAddr::V4(Ipv4Addr::from_bits(dst))) {
            return None;
        }
        let stream = self.slots.live_at(index)?;
        let is_stranger = self.output.caps.point_to_point && !stream.hop.is_mac(segment.link_src());
        if is_stranger || stream.connection.state() == State::TimeWait {
            return None;
        }
        self.output.counters.rx_bytes += segment.payload().len() as u64;
        if !stream.connection.on_fixed_segment(now, &segment, frame) {
            self.on_unexpected(now, index, &{ segment }, frame);
        } else if stream.connection.wants_transmit() || stream.parent.is_some() || !self.stalled.is_empty() {
            self.after_fixed_segment(now, index);
        } else {
            self.settle_open(index);
        }
        Some(())
    }

    /// A segment of fixed shape that is not what its connection expects.
    #[inline(never)]
    fn on_unexpected(&mut self, now: Instant, index: u32, segment: &Segment<'_>, frame: &RxFrame<Q::Rx>) {
        let Some(stream) = self.slots.live_at(index) else { return };
        if stream.connection.acknowledges_before(segment.is_marked(), segment.payload().len()) {
            self.transmit(now, index);
        }
        let Some(stream) = self.slots.live_at(index) else { return };
        let is_handshake = matches!(stream.connection.state(), State::SynSent | State::SynReceived);
        stream.connection.on_fixed_segment_at_length(now, segment, frame);
        if is_handshake {
            self.after_handshake_segment(now, index);
        }
        self.after_fixed_segment(now, index);
    }

    /// What a segment of fixed shape leaves to be done, if not only to be published.
    #[inline(never)]
    fn after_fixed_segment(&mut self, now: Instant, index: u32) {
        let Some(stream) = self.slots.live_at(index) else { return };
        if stream.connection.wants_transmit()
            || stream.connection.holds_out_of_order()
            || stream.parent.is_some()
            || !self.stalled.is_empty()
        {
            self.after_segment(now, index);
        } else {
            self.settle(index);
        }
    }
}
