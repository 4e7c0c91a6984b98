//! A connection's terms, where a program says more of them than [`super::Connections::connect`] and [`super::Connections::accept`] take.

use super::{Peer, PrivateData, Sending};

/// How often packets are sent again (IBTA spec, volume 1, s12.7.38): 7 is the most.
const RETRIES: u8 = 7;
/// How often a packet is sent again for which there was no receive: 7 is for ever, and rsockets count on it.
const RNR_RETRIES: u8 = 7;

/// Whose queue pair a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// One of the device's, in INIT: it becomes ready as its connection does.
    Managed(u32),
    /// The program's own, by its number, which the peer is told (`id->qp == NULL` of RDMA-CM): the program makes it ready, with what
    /// [`super::Connections::qp_attributes`] says, and the active side then calls [`super::Connections::establish`].
    Own(u32),
}

/// What one side says of a connection (`struct rdma_conn_param`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionParams<'a> {
    /// What the peer's program is told.
    pub private_data: &'a [u8],
    /// How many of the peer's reads and atomics are taken at once.
    pub responder_resources: u8,
    /// How many reads and atomics are issued at once.
    pub initiator_depth: u8,
    /// Whether credits are counted.
    pub flow_control: bool,
    /// How often packets are sent again, of both sides; the active one's counts. 3 bits.
    pub retry_count: u8,
    /// How often the peer is to send again where there is no receive. 3 bits; 7: for ever.
    pub rnr_retry_count: u8,
    /// How long to wait for an acknowledgment: 4.096 us * 2^v; 5 bits (RDMA_OPTION_ID_ACK_TIMEOUT). `None`: as the device has it, or as the peer asks.
    pub ack_timeout: Option<u8>,
    /// Differentiated services of the packets, of the active side (RDMA_OPTION_ID_TOS).
    pub traffic_class: u8,
}

impl Default for ConnectionParams<'_> {
    /// Those of rsockets, without private data.
    fn default() -> Self {
        Self {
            private_data: &[],
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: true,
            retry_count: RETRIES,
            rnr_retry_count: RNR_RETRIES,
            ack_timeout: None,
            traffic_class: 0,
        }
    }
}

/// What both sides agreed on: what a queue pair needs from INIT to RTR, and from RTR to RTS.
#[derive(Clone, Copy, Debug)]
pub struct QpAttributes {
    /// For [`super::Modify::Rtr`].
    pub peer: Peer,
    /// For [`super::Modify::Rts`].
    pub sending: Sending,
}

/// How a peer said no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Why (IBTA spec, volume 1, table 105); 28: its program did not want to.
    pub reason: u16,
    /// What its program said.
    pub private_data: PrivateData,
}
