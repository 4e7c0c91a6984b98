//! Records put together into packets, each no longer than every link carries (RFC 3810 s5.2.15).

use core::net::Ipv6Addr;
use std::collections::VecDeque;

use super::Packet;
use crate::wire::icmpv6::mld::{self, RecordKind};
use crate::wire::ipv6;

/// Bytes of a packet's records.
const RECORDS_MAX: usize = ipv6::MTU_MIN as usize - mld::HEADERS_LEN - mld::REPORT_LEN;
/// Sources of a record that is alone in its packet.
const SOURCES_MAX: usize = (RECORDS_MAX - mld::RECORD_LEN) / 16;
/// Packets that wait to be fetched; more are lost as on the wire, which robustness is for.
pub(super) const PACKETS_MAX: usize = 64;

/// Reports in the making.
#[derive(Debug)]
pub(super) struct Reports<'a> {
    src: Ipv6Addr,
    records: Vec<u8>,
    count: u16,
    out: &'a mut VecDeque<Packet>,
}

impl<'a> Reports<'a> {
    pub(super) fn new(src: Ipv6Addr, out: &'a mut VecDeque<Packet>) -> Self {
        Self { src, records: Vec::new(), count: 0, out }
    }

    /// Adds a record. One whose sources don't fit into a packet is split into several, but for those that exclude: two of them would each
    /// deny what the other says, so that the rest of their sources goes unsaid, and comes unwanted (RFC 3810 s5.2.15).
    pub(super) fn add(&mut self, kind: RecordKind, group: Ipv6Addr, sources: &[Ipv6Addr]) {
        let (first, rest) = sources.split_at(sources.len().min(SOURCES_MAX));
        self.add_one(kind, group, first);
        if !matches!(kind, RecordKind::IsExclude | RecordKind::ToExclude) {
            rest.chunks(SOURCES_MAX).for_each(|sources| self.add_one(kind, group, sources));
        }
    }

    fn add_one(&mut self, kind: RecordKind, group: Ipv6Addr, sources: &[Ipv6Addr]) {
        let len = mld::RECORD_LEN + sources.len() * 16;
        if self.records.len() + len > RECORDS_MAX {
            self.finish();
        }
        let at = self.records.len();
        self.records.resize(at + len, 0);
        mld::emit_record(kind, group, sources, &mut self.records[at..]);
        self.count += 1;
    }

    /// Sends what there is.
    pub(super) fn finish(&mut self) {
        if self.count > 0 {
            let mut bytes = vec![0; mld::HEADERS_LEN + mld::REPORT_LEN + self.records.len()];
            mld::emit_report(self.src, self.count, &self.records, &mut bytes);
            push(self.out, Packet { dst: ipv6::ALL_MLDV2_ROUTERS, bytes });
            self.records.clear();
            self.count = 0;
        }
    }
}

pub(super) fn push(out: &mut VecDeque<Packet>, packet: Packet) {
    if out.len() < PACKETS_MAX {
        out.push_back(packet);
    }
}
