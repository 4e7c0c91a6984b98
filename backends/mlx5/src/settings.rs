//! What a card is opened with.

use ringway_stack::device::MacAddr;

/// What a card is opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its name, as ibv_devices(1) lists it.
    pub device: String,
    /// Its port, counted from 1.
    pub port: u8,
    /// The address that rings send from and receive by; none: that of the port's interface.
    pub mac: Option<MacAddr>,
    /// The largest IP packet in bytes, up to 9000; none: the interface's.
    pub mtu: Option<usize>,
    /// The kernel has the port as well, with the same addresses: what no rule steers is its. Else the first ring gets that: broadcasts, and what is for the
    /// address above or for groups of IPv6.
    pub is_beside_kernel: bool,
    /// Frames that a ring can have received: those that the card may fill, and those that the stack has not been through with. Rounded up to a power of two.
    pub received_frames: u32,
    /// Frames beyond these that programs may leave unread: what comes is copied there once half of the above is held.
    pub copied_frames: u32,
    /// Blocks of 64 bytes in a ring's send queue: a short frame takes one to four. Rounded up to a power of two.
    pub send_blocks: u32,
    /// Send buffers of a ring, of 4 KiB each.
    pub send_buffers: u32,
    /// Bytes of the card's memory, of each ring, into which the payload of what it sends is copied, so that the card fetches less from the process's (VMA_RING_DEV_MEM_TX); zero:
    /// none. A card has some 128 KiB for all; what there is no room for is sent from the process's memory.
    pub staged_bytes: usize,
    /// The memory of all of these is on huge pages, where there are some.
    pub huge_pages: bool,
    /// Completions of what is received are compressed, where the card can: it writes less, and frames of a run have one time.
    pub compresses: bool,
}

impl Settings {
    /// For that card, with everything else as it is by default.
    pub fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            port: 1,
            mac: None,
            mtu: None,
            is_beside_kernel: true,
            received_frames: 2048,
            copied_frames: 1 << 13,
            send_blocks: 2048,
            send_buffers: 4096,
            staged_bytes: 0,
            huge_pages: true,
            compresses: false,
        }
    }
}
