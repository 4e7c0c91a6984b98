//! Frames, as dice have them: datagrams with a type of service, with a tag or in a tunnel, and large sends.

use ringway_sim::random::RandomStream;
use ringway_stack::device::TxOffload;

use super::super::super::plan::MACS;
use super::super::bytes;
use super::address;

/// Where datagrams go: the first of so many ports.
pub(super) const PORT: u16 = 9000;
pub(super) const PORTS: u64 = 3;
/// Where large sends go.
pub(super) const STREAM_PORT: u16 = 9100;
/// Where tunnels end (RFC 7348 s5).
const VXLAN_PORT: u16 = 4789;
pub(super) const TUNNELS: [u32; 2] = [7, 0xab_cdef];
pub(super) const SERVICES: [u8; 3] = [0, 0x20, 0xb8];
pub(super) const TAGS: [u16; 2] = [5, 0x0ffe];
/// The most bytes of a datagram's payload here: with a tunnel around it, it fits into a frame.
const LEN_MAX: u64 = 1400;
const UDP: u8 = 17;
const TCP: u8 = 6;

/// A frame.
pub(super) struct Built {
    /// Its headers.
    pub(super) head: Vec<u8>,
    pub(super) payload: Vec<u8>,
    pub(super) offload: TxOffload,
}

impl Built {
    /// To the other host; of those a host sends, that number.
    pub(super) fn drawn(host: usize, number: u32, dice: &mut RandomStream) -> Self {
        let salt = 7_000_000 * (1 + host as u64) + u64::from(number);
        let ports = (40_000 + dice.below(6) as u16, PORT + dice.below(PORTS) as u16);
        let (tos, vlan) = (dice.pick(&SERVICES), dice.chance_ppm(300_000).then(|| dice.pick(&TAGS) | (dice.below(8) as u16) << 13));
        let payload = bytes(dice.magnitude(1, LEN_MAX) as usize, salt);
        let offload = TxOffload { vlan, ..TxOffload::default() };
        match dice.below(4) {
            0 => {
                let payload = bytes(dice.magnitude(1, 12_000) as usize, salt);
                let mss = dice.between(100, 1400) as u16;
                let flags = 0x10 | dice.pick(&[0, 0x01, 0x08, 0x80, 0x89]);
                let tcp = [
                    &ports.0.to_be_bytes()[..],
                    &STREAM_PORT.to_be_bytes(),
                    &(dice.bits() as u32).to_be_bytes(),
                    &[0, 0, 0, 9, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0],
                ]
                .concat();
                let head = packet(host, (TCP, tos), &tcp, payload.len(), dice.bits() as u16);
                Self { head, payload, offload: TxOffload { tso_mss: Some(mss), checksum: true, ..offload } }
            }
            1 => {
                let inside = packet(host, (UDP, 0), &udp(ports, payload.len()), payload.len(), number as u16);
                let vni = dice.pick(&TUNNELS).to_be_bytes();
                let len = inside.len() + 8 + payload.len();
                let around = [&udp((ports.0, VXLAN_PORT), len)[..], &[0x08, 0, 0, 0, vni[1], vni[2], vni[3], 0], &inside].concat();
                let head = packet(host, (UDP, tos), &around, payload.len(), number as u16);
                Self { head, payload, offload }
            }
            _ => {
                let head = packet(host, (UDP, tos), &udp(ports, payload.len()), payload.len(), number as u16);
                Self { head, payload, offload: TxOffload { checksum: dice.chance_ppm(500_000), ..offload } }
            }
        }
    }
}

/// A header before so many bytes; without a checksum (RFC 768).
fn udp((src, dst): (u16, u16), len: usize) -> Vec<u8> {
    [src.to_be_bytes(), dst.to_be_bytes(), (8 + len as u16).to_be_bytes(), [0; 2]].concat()
}

/// Ethernet's and IPv4's headers to the other host, and what comes behind them, before so many bytes more.
fn packet(host: usize, (protocol, tos): (u8, u8), rest: &[u8], len: usize, id: u16) -> Vec<u8> {
    let (from, to) = (address(host).octets(), address(1 - host).octets());
    let [len_high, len_low] = ((20 + rest.len() + len) as u16).to_be_bytes();
    let [id_high, id_low] = id.to_be_bytes();
    let mut ip = [&[0x45, tos, len_high, len_low, id_high, id_low, 0x40, 0, 64, protocol, 0, 0][..], &from, &to].concat();
    let sum: u32 = ip.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    [&MACS[1 - host].0[..], &MACS[host].0, &[0x08, 0x00], &ip, rest].concat()
}
