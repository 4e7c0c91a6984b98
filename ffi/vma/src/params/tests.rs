use super::*;

/// As if these were set in the environment.
pub(crate) fn with(set: &[(&str, &str)]) -> Params {
    let settings = Settings::read(|name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()));
    assert_eq!(settings.warnings(), [""; 0]);
    Params::of(&settings)
}

/// Over a device as the shared-memory one.
fn tcp_of(params: &Params) -> tcp::Config {
    params.tcp_defaults(65_535, 8)
}

#[test]
fn nothing_set_means_what_the_parts_mean_by_themselves() {
    let params = with(&[]);
    assert_eq!((params.rx_poll_us, params.select_poll_us), (None, None));
    let defaults = tcp::Config::default();
    assert_eq!(tcp_of(&params), tcp::Config { mss_max: 65_495, gather_max: 8, urgent_waits: true, ..defaults });
    let (udp, plain) = (params.udp_defaults(), UdpOptions::default());
    assert_eq!((udp.rcvbuf, udp.multicast_loop), (plain.rcvbuf, plain.multicast_loop));
    let (set, plain) = (params.shared_memory(), SharedMemory::default());
    assert_eq!((set.send_buffers, set.received_frames), (plain.send_buffers, plain.received_frames));
}

#[test]
fn frames_of_an_interface_are_by_default_the_devices_own() {
    let frames = |said: &[(&str, &str)]| {
        let said = |name: &str| said.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        frames_of_interface(&Settings::read(said))
    };
    assert_eq!(frames(&[]), None);
    assert_eq!(["16384", "9999999999"].map(|value| frames(&[("VMA_RX_WRE", value)])), [Some(16_384), Some(u32::MAX)]);
}

#[test]
fn segments_are_no_longer_than_mtu_and_mss_say() {
    let mss = |set: &[(&str, &str)]| tcp_of(&with(set)).mss_max;
    assert_eq!(mss(&[("VMA_MTU", "1500")]), 1460);
    assert_eq!(mss(&[("VMA_MSS", "1000")]), 1000);
    assert_eq!(mss(&[("VMA_MTU", "1500"), ("VMA_MSS", "9000")]), 1460);
    assert_eq!(mss(&[("VMA_MTU", "128")]), MSS_MIN);
    assert_eq!(mss(&[("VMA_MSS", "88")]), MSS_MIN);
}

#[test]
fn tcp_starts_as_the_parameters_say() {
    let config = tcp_of(&with(&[("VMA_TCP_NODELAY", "1"), ("VMA_TCP_QUICKACK", "1"), ("VMA_TCP_TIMESTAMP_OPTION", "0")]));
    assert!(config.nodelay && config.quickack && !config.timestamps);
    let told = ["0\n", "1\n", "2\n", "3", "4", "x"].map(|value| super::ecn(Some(value)));
    use ringway_stack::tcp::Ecn::{Accepted, Asked, Off};
    assert_eq!(told, [Off, Asked, Accepted, Asked, Accepted, Accepted]);
    assert_eq!(super::ecn(None), Accepted);
    let system = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_timestamps").is_ok_and(|value| value.trim() == "0");
    assert_eq!(with(&[("VMA_TCP_TIMESTAMP_OPTION", "2")]).tcp_timestamps, !system);
}

#[test]
fn receive_buffers_have_a_floor() {
    let params = with(&[("VMA_RX_BYTES_MIN", "8000000")]);
    let config = tcp_of(&params);
    assert_eq!((config.rcvbuf_initial, config.rcvbuf_max), (16_000_000, 16_000_000));
    assert_eq!(params.udp_defaults().rcvbuf, 16_000_000);
}
