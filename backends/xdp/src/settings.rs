//! What an interface is attached with.

/// What an interface is attached with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its name, in the network namespace of the calling thread.
    pub interface: String,
    /// Its queues that are served, the first and the last of them; none: all. Of the others, what comes is the kernel's, or another process's that has those.
    pub queues: Option<(u32, u32)>,
    /// Frames that one ring can have received, and not been through with: of 4 KiB each, which are locked.
    pub received_frames: u32,
    /// Frames beyond these that programs may leave unread. What comes is copied once a quarter of the above is held: it takes 4 KiB a frame, which are not locked,
    /// and no memory until then.
    pub copied_frames: u32,
    /// Frames that one ring can have queued to send, of 4 KiB each, which are locked.
    pub sent_frames: u32,
    /// Bytes that the connections of one ring may have queued, sent and not acknowledged.
    pub send_bytes: usize,
    /// Segments that come one behind the other go up as one frame, and where the kernel cuts well (veth) it is given frames to cut: for connections, and not for who
    /// wants to see the frames that are on the wire.
    pub segmentation: bool,
    /// Checksums of what is sent are left to the kernel, which has the interface fill them in, where both do so (Linux 6.11). Not where a broker lends the ring.
    pub checksums: bool,
    /// Frames that the kernel takes from a queue of the interface when the ring asks it to, which it does each time that it looks and finds none (SO_PREFER_BUSY_POLL, Linux 5.11).
    /// Zero: it is not asked, and frames come by interrupts. Not where a broker lends the ring.
    pub busy_poll: u16,
}

impl Settings {
    /// Bytes that a ring with these locks.
    pub fn locked(&self) -> u64 {
        u64::from(self.received_frames + self.sent_frames) * crate::umem::CHUNK as u64
    }

    /// For that interface, with everything else as it is by default.
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            queues: None,
            received_frames: 2048,
            copied_frames: 1 << 14,
            sent_frames: 1024,
            send_bytes: 16 << 20,
            segmentation: false,
            checksums: false,
            busy_poll: 0,
        }
    }
}
