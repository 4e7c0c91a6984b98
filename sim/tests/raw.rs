//! The raw-Ethernet examples come to the ends that they assert.
#![allow(clippy::duplicate_mod, reason = "each example has the frames that all of them share")]

#[path = "../examples/raw_device_memory.rs"]
mod raw_device_memory;
#[path = "../examples/raw_flow_id.rs"]
mod raw_flow_id;
#[path = "../examples/raw_pacing.rs"]
mod raw_pacing;
#[path = "../examples/raw_tos.rs"]
mod raw_tos;
#[path = "../examples/raw_tso.rs"]
mod raw_tso;
#[path = "../examples/raw_vxlan.rs"]
mod raw_vxlan;

#[test]
fn a_send_queue_keeps_to_its_rate() {
    raw_pacing::main().unwrap();
}

#[test]
fn the_nic_cuts_what_is_longer_than_the_mtu() {
    raw_tso::main().unwrap();
}

#[test]
fn marked_frames_go_to_their_queue() {
    raw_tos::main().unwrap();
}

#[test]
fn a_tag_names_the_flow() {
    raw_flow_id::main().unwrap();
}

#[test]
fn a_tunnel_has_its_queue() {
    raw_vxlan::main().unwrap();
}

#[test]
fn a_payload_is_sent_from_the_nics_own_memory() {
    raw_device_memory::main().unwrap();
}
