//! Seed 003: raw Ethernet programming, device memory, and RDMA-CM's timeout control.

mod connections;
mod memory;
mod pacing;
mod raw;
mod steering;
mod tso;

use ringway_stack::device::{Capabilities, Steering};

use super::{Case, Other, Rig, Seed, Sentence};

/// Why nothing of RDMA can be asked for of memory on the device.
const MESSAGE_PLANE: &str = "message plane: not yet";

const OTHERS: &[Other] = &[
    Other::lines(1, 1, "heading"),
    Other::lines(2, 2, "says whom it is for"),
    Other::lines(5, 5, "link to an example"),
    Other::lines(6, 6, "heading"),
    Other::lines(8, 8, "link to an example"),
    Other::lines(9, 9, "heading"),
    Other::lines(11, 11, "link to an example"),
    Other::lines(12, 12, "heading"),
    Other::lines(15, 15, "heading"),
    Other::sentence(16, 2, "link to an example"),
    Other::lines(17, 17, "heading"),
    Other::sentence(18, 2, "link to an example"),
    Other::lines(22, 22, "heading"),
    Other::lines(30, 72, "the example's code, which 003.23 follows step by step"),
    Other::lines(73, 73, "heading"),
    Other::sentence(78, 3, "says that an example follows: the call of 003.29"),
    Other::lines(79, 79, "the call of 003.29"),
    Other::sentence(80, 2, "examples of what 003.30 is for"),
];

/// The seed's sentences and their cases.
pub fn seed<R: Rig>() -> Seed<R> {
    let sentences = [packet_sentences(), memory_sentences(), connection_sentences()];
    Seed { number: "003", lines: 81, sentences: sentences.into_iter().flatten().collect(), others: OTHERS }
}

fn says<R>(id: &'static str, at: (u16, u16), says: &'static str, cases: Vec<Case<R>>) -> Sentence<R> {
    Sentence { id, at, says, cases }
}

fn packet_sentences<R: Rig>() -> Vec<Sentence<R>> {
    vec![
        says("003.1", (3, 1), "Supported on ConnectX-4 adapter cards and above only.", raw::supported()),
        says("003.2", (4, 1), "Raw Ethernet enables an application that bypasses the kernel stack.", raw::bypass()),
        says("003.3", (4, 2), "Packet headers and offload options need to be provided by the application.", raw::provided()),
        says("003.4", (7, 1), "Packet pacing controls the rate of each QP, per send queue.", pacing::rate_of_each()),
        says("003.5", (10, 1), "TSO: the card accepts data with a size greater than the MTU.", tso::accepts()),
        says("003.6", (10, 2), "It splits the data into packets and inserts the user's L2/L3/L4 headers in each.", tso::splits()),
        says("003.7", (10, 3), "The CPU is offloaded from dealing with a large throughput of data.", tso::offloads()),
        says("003.8", (13, 1), "ToS/DSCP is an 8-bit field that assigns service levels to traffic.", steering::eight_bits()),
        says("003.9", (13, 2), "Each packet is marked with a DSCP code, and gets the level of service of its mark.", steering::marks()),
        says("003.10", (14, 1), "Packets are steered by the ToS field on the receiver side.", steering::by_tos()),
        says("003.11", (16, 1), "Packets are steered using the flow ID.", steering::by_flow_id()),
        says("003.12", (18, 1), "Packets are steered using the VXLAN tunnel ID.", steering::by_tunnel()),
    ]
}

fn memory_sentences<R: Rig>() -> Vec<Sentence<R>> {
    vec![
        says("003.13", (19, 1), "At beta level; on ConnectX-5 and above only.", memory::supported()),
        says("003.14", (20, 1), "Device memory is on-chip memory, a buffer for send, receive and RDMA.", memory::data_buffer()),
        says(
            "003.15",
            (20, 2),
            "It can be mapped, allocated in various sizes, and registered with local and remote keys.",
            memory::can_be(),
        ),
        says("003.16", (21, 1), "Packets stored in it are sent with significantly less latency.", memory::latency()),
        says("003.17", (23, 1), "The procedure is similar to the one for host memory.", memory::similar()),
        says("003.18", (24, 1), "ibv_exp_alloc_dm, ibv_exp_free_dm: allocate and free it.", memory::alloc_free()),
        says("003.19", (25, 1), "ibv_exp_reg_mr: register it, and get a key for local or remote access.", memory::register()),
        says("003.20", (26, 1), "ibv_exp_memcpy_dm: copy to and from it.", memory::copy()),
        says("003.21", (27, 1), "ibv_post_send, ibv_post_receive: send and receive by the key.", memory::post()),
        says("003.22", (28, 1), "The destination within device memory must be a multiple of 4 bytes.", memory::alignment()),
        says("003.23", (29, 1), "Example: allocate, register, copy a packet in, send it.", memory::example()),
        says("003.24", (74, 1), "The registration's offset does not have to be 0.", memory::registration_offset()),
        says("003.25", (75, 1), "Copies have an offset from the beginning of the buffer.", memory::copy_offset()),
        says("003.26", (76, 1), "So has the packet's place.", memory::packet_offset()),
    ]
}

fn connection_sentences<R: Rig>() -> Vec<Sentence<R>> {
    vec![
        says("003.27", (77, 1), "Users control the QP timeout of QPs made with RDMA-CM.", connections::timeout()),
        says("003.28", (78, 1), "An option of rdma_set_option overrides the calculated QP timeout.", connections::option()),
        says("003.29", (78, 2), "It is RDMA_OPTION_ID_ACK_TIMEOUT.", connections::flag()),
        says("003.30", (80, 1), "Without rdma_create_qp, the passive side's ESTABLISHED can be postponed.", connections::postponed()),
        says("003.31", (80, 3), "The active side gets CONNECT_RESPONSE instead of ESTABLISHED if id->qp is NULL.", connections::response()),
        says("003.32", (80, 4), "That is the chance for extra connection setup.", connections::setup()),
        says("003.33", (80, 5), "rdma_establish completes it: ESTABLISHED on the passive side.", connections::establish()),
        says("003.34", (81, 1), "rdma_init_qp_attr gives what address handles and QP attributes need.", connections::attributes()),
    ]
}

// What cases need.

const fn packets(c: &Capabilities) -> bool {
    c.packet_plane
}

const fn pacing(c: &Capabilities) -> bool {
    c.pacing
}

const fn tso(c: &Capabilities) -> bool {
    c.tso_max.is_some()
}

const fn device_memory(c: &Capabilities) -> bool {
    c.device_memory > 0
}

fn tos(c: &Capabilities) -> bool {
    c.steering.contains(Steering::TOS)
}
