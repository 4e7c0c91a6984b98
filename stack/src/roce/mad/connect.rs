//! REQ and REP (IBTA spec, volume 1, s12.6.5 and s12.6.8).

use crate::roce::bytes::{Reader, Writer};
use crate::roce::psn::Psn;
use crate::wire::ParseError;

/// REQ: asks for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The sender's number for this connection.
    pub local_id: u32,
    /// Which service; RDMA-CM has port space and port in it ([`super::private::service_id`]).
    pub service_id: u64,
    /// The sender's adapter.
    pub ca_guid: u64,
    /// The queue key; of datagrams alone.
    pub qkey: u32,
    /// The sender's queue pair; 24 bits.
    pub qpn: u32,
    /// How many reads and atomics the sender takes at once.
    pub responder_resources: u8,
    /// How many reads and atomics the sender issues at once.
    pub initiator_depth: u8,
    /// How long the receiver may take for its answer: 4.096 us * 2^v; 5 bits.
    pub remote_response_timeout: u8,
    /// 0: RC; 1: UC; 2: RD; 3: see the extended type.
    pub transport: u8,
    /// The sender counts credits.
    pub flow_control: bool,
    /// Which number the first packet is to have that its receiver sends.
    pub starting_psn: Psn,
    /// How long the sender takes for its answers: 4.096 us * 2^v; 5 bits.
    pub local_response_timeout: u8,
    /// How often the receiver's queue pair is to try again; 3 bits.
    pub retry_count: u8,
    /// The partition.
    pub pkey: u16,
    /// The path MTU: 1 is 256, each step doubles; 4 bits.
    pub path_mtu: u8,
    /// How often to try again after RNR NAKs; 7: for ever; 3 bits.
    pub rnr_retry_count: u8,
    /// How often this message is sent; 4 bits.
    pub cm_retries: u8,
    /// The sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// 3 bits.
    pub extended_transport: u8,
    /// The path.
    pub primary: PathRecord,
    /// The path to migrate to; zeros: none.
    pub alternate: PathRecord,
    /// The program's.
    pub private_data: [u8; Self::PRIVATE_LEN],
}

/// One of a request's two paths, as the sender sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathRecord {
    /// InfiniBand's own; RoCE sends all ones.
    pub local_lid: u16,
    /// InfiniBand's own; RoCE sends all ones.
    pub remote_lid: u16,
    /// The sender's address; IPv4 is mapped into IPv6.
    pub local_gid: [u8; 16],
    /// The receiver's address.
    pub remote_gid: [u8; 16],
    /// 20 bits.
    pub flow_label: u32,
    /// The packet rate, in 6 bits, and the 6 bits before it, which are reserved, and which Linux writes over.
    pub packet_rate: u16,
    /// Differentiated services.
    pub traffic_class: u8,
    /// Hops.
    pub hop_limit: u8,
    /// The service level; 4 bits.
    pub service_level: u8,
    /// Both are on one subnet.
    pub subnet_local: bool,
    /// How long to wait for acknowledgments: 4.096 us * 2^v; 5 bits.
    pub ack_timeout: u8,
}

impl Request {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 92;

    pub(super) fn parse(bytes: &mut Reader<'_>) -> Result<Self, ParseError> {
        let local_id = bytes.be32()?;
        let _reserved = bytes.be32()?;
        let service_id = bytes.be64()?;
        let ca_guid = bytes.be64()?;
        let _reserved = bytes.be32()?;
        let qkey = bytes.be32()?;
        let (qpn, responder_resources) = bytes.be24_8()?;
        let (_local_eec, initiator_depth) = bytes.be24_8()?;
        let (_remote_eec, timeout_transport) = bytes.be24_8()?;
        let (starting_psn, timeout_retry) = bytes.be24_8()?;
        let pkey = bytes.be16()?;
        let mtu_rnr = bytes.u8()?;
        let retries_srq = bytes.u8()?;
        Ok(Self {
            local_id,
            service_id,
            ca_guid,
            qkey,
            qpn,
            responder_resources,
            initiator_depth,
            remote_response_timeout: timeout_transport >> 3,
            transport: timeout_transport >> 1 & 3,
            flow_control: timeout_transport & 1 != 0,
            starting_psn: Psn::new(starting_psn),
            local_response_timeout: timeout_retry >> 3,
            retry_count: timeout_retry & 7,
            pkey,
            path_mtu: mtu_rnr >> 4,
            rnr_retry_count: mtu_rnr & 7,
            cm_retries: retries_srq >> 4,
            srq: retries_srq & 8 != 0,
            extended_transport: retries_srq & 7,
            primary: PathRecord::parse(bytes)?,
            alternate: PathRecord::parse(bytes)?,
            private_data: bytes.take()?,
        })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.be32(self.local_id);
        out.be32(0);
        out.be64(self.service_id);
        out.be64(self.ca_guid);
        out.be32(0);
        out.be32(self.qkey);
        out.be24_8(self.qpn, self.responder_resources);
        out.be24_8(0, self.initiator_depth);
        out.be24_8(0, self.remote_response_timeout << 3 | (self.transport & 3) << 1 | u8::from(self.flow_control));
        out.be24_8(self.starting_psn.value(), self.local_response_timeout << 3 | self.retry_count & 7);
        out.be16(self.pkey);
        out.put(&[self.path_mtu << 4 | self.rnr_retry_count & 7]);
        out.put(&[self.cm_retries << 4 | u8::from(self.srq) << 3 | self.extended_transport & 7]);
        self.primary.emit(out);
        self.alternate.emit(out);
        out.put(&self.private_data);
    }
}

impl PathRecord {
    fn parse(bytes: &mut Reader<'_>) -> Result<Self, ParseError> {
        let (local_lid, remote_lid) = (bytes.be16()?, bytes.be16()?);
        let (local_gid, remote_gid) = (bytes.take()?, bytes.take()?);
        let label_rate = bytes.be32()?;
        let [traffic_class, hop_limit, level, timeout] = bytes.take()?;
        Ok(Self {
            local_lid,
            remote_lid,
            local_gid,
            remote_gid,
            flow_label: label_rate >> 12,
            packet_rate: label_rate as u16 & 0x0fff,
            traffic_class,
            hop_limit,
            service_level: level >> 4,
            subnet_local: level & 8 != 0,
            ack_timeout: timeout >> 3,
        })
    }

    fn emit(&self, out: &mut Writer<'_>) {
        out.be16(self.local_lid);
        out.be16(self.remote_lid);
        out.put(&self.local_gid);
        out.put(&self.remote_gid);
        out.be32(self.flow_label << 12 | u32::from(self.packet_rate & 0x0fff));
        out.put(&[self.traffic_class, self.hop_limit]);
        out.put(&[self.service_level << 4 | u8::from(self.subnet_local) << 3, self.ack_timeout << 3]);
    }
}

/// REP: agrees to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The sender's number for this connection.
    pub local_id: u32,
    /// The receiver's.
    pub remote_id: u32,
    /// The queue key; of datagrams alone.
    pub qkey: u32,
    /// The sender's queue pair; 24 bits.
    pub qpn: u32,
    /// Which number the first packet is to have that its receiver sends.
    pub starting_psn: Psn,
    /// How many reads and atomics the sender takes at once.
    pub responder_resources: u8,
    /// How many reads and atomics the sender issues at once.
    pub initiator_depth: u8,
    /// How long an acknowledgment takes here: 4.096 us * 2^v; 5 bits.
    pub ack_delay: u8,
    /// Whether the alternate path is taken; 2 bits.
    pub failover: u8,
    /// The sender counts credits.
    pub flow_control: bool,
    /// How often to try again after RNR NAKs; 7: for ever; 3 bits.
    pub rnr_retry_count: u8,
    /// The sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// The sender's adapter.
    pub ca_guid: u64,
    /// The program's.
    pub private_data: [u8; Self::PRIVATE_LEN],
}

impl Reply {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 196;

    pub(super) fn parse(bytes: &mut Reader<'_>) -> Result<Self, ParseError> {
        let (local_id, remote_id, qkey) = (bytes.be32()?, bytes.be32()?, bytes.be32()?);
        let (qpn, _) = bytes.be24_8()?;
        let _eec = bytes.be32()?;
        let (starting_psn, _) = bytes.be24_8()?;
        let [responder_resources, initiator_depth, delay, retry] = bytes.take()?;
        Ok(Self {
            local_id,
            remote_id,
            qkey,
            qpn,
            starting_psn: Psn::new(starting_psn),
            responder_resources,
            initiator_depth,
            ack_delay: delay >> 3,
            failover: delay >> 1 & 3,
            flow_control: delay & 1 != 0,
            rnr_retry_count: retry >> 5,
            srq: retry & 0x10 != 0,
            ca_guid: bytes.be64()?,
            private_data: bytes.take()?,
        })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.be32(self.local_id);
        out.be32(self.remote_id);
        out.be32(self.qkey);
        out.be24_8(self.qpn, 0);
        out.be32(0);
        out.be24_8(self.starting_psn.value(), 0);
        out.put(&[self.responder_resources, self.initiator_depth]);
        out.put(&[self.ack_delay << 3 | (self.failover & 3) << 1 | u8::from(self.flow_control)]);
        out.put(&[self.rnr_retry_count << 5 | u8::from(self.srq) << 4]);
        out.be64(self.ca_guid);
        out.put(&self.private_data);
    }
}
