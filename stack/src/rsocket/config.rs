//! Sizes, their defaults and limits, and the files that say others (rsocket(7)).

use core::time::Duration;

use super::wire::{ByteOrder, from_scale, to_scale};
use crate::device::messages::MessageLimits;
use crate::roce::Flaw;

/// Work requests in a queue, at least and at most.
pub const QUEUE_MIN: u16 = 16;
/// See there.
pub const QUEUE_MAX: u16 = 0xfffe;
/// Room in the send buffer without which nothing is sent; also the longest datagram, headers included.
pub const SEND_LOW_WATER: u32 = 2048;
/// Work requests of the send queue that are control messages' alone.
pub const CONTROL_SLOTS: u16 = 4;
/// Pieces of the receive buffer that a sender is told of at once.
pub const TARGET_ENTRIES: u32 = 2;
/// Of a long send the first message has this length, so that the wire is busy while the rest is copied; each one after it has twice the length of the
/// one before, up to [`TRANSFER_MAX`]. (Where bytes are placed, and nobody answers, the first one has that length, too.)
pub const TRANSFER_FIRST: u32 = 2048;
/// See there.
pub const TRANSFER_MAX: u32 = 65_536;

/// The sizes of one socket's queues and buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Work requests in the send queue.
    pub send_queue: u16,
    /// Work requests in the receive queue: also the messages that may come before the program reads.
    pub recv_queue: u16,
    /// Bytes up to which a message is copied into its work request.
    pub inline: u16,
    /// Bytes of the send buffer.
    pub send_buffer: u32,
    /// Bytes of the receive buffer.
    pub recv_buffer: u32,
    /// Mappings that the peer may offer ([`to_scale`] rounds).
    pub iomap: u16,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { send_queue: 384, recv_queue: 384, inline: 64, send_buffer: 1 << 17, recv_buffer: 1 << 17, iomap: 0 }
    }
}

impl Sizes {
    /// What of it a device can do. A receive buffer has two halves, and a send buffer room for one message at least.
    #[must_use]
    pub fn within(self, limits: &MessageLimits) -> Self {
        let max = limits.wrs.min(limits.cq_depth / 2).min(usize::from(QUEUE_MAX)) as u16;
        let queue = |size: u16| size.max(QUEUE_MIN).min(max);
        Self {
            send_queue: queue(self.send_queue),
            recv_queue: queue(self.recv_queue),
            inline: self.inline.min(limits.inline.min(usize::from(u16::MAX)) as u16),
            send_buffer: if self.send_buffer < SEND_LOW_WATER { SEND_LOW_WATER * 2 } else { self.send_buffer },
            recv_buffer: self.recv_buffer.saturating_add(1).max(2) & !1,
            iomap: from_scale(to_scale(self.iomap)),
        }
    }
}

/// What the machine is like, as peers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// In which byte order tables are read here.
    pub order: ByteOrder,
    /// The device cannot write with immediate data (iWARP): a message is a send of its own, after the write. Both ends' devices are of one kind.
    pub by_sends: bool,
    /// Of a long send the first message has this length ([`TRANSFER_FIRST`], as librdmacm has it, if no device has a reason for another).
    pub transfer_first: u32,
    /// How often a stream asks whether its peer is there, if its program does not have it ask more often (SO_KEEPALIVE): where nobody tells of peers that are gone. `None`: the device does.
    pub keepalive: Option<Duration>,
    #[cfg(test)]
    pub(crate) flaw: Flaw,
}

impl Host {
    /// Whether this is wrong with it; a constant `false` but in tests.
    #[inline]
    pub(super) fn has(&self, flaw: Flaw) -> bool {
        #[cfg(test)]
        return self.flaw == flaw;
        #[cfg(not(test))]
        {
            let _ = flaw;
            false
        }
    }
}

impl Default for Host {
    fn default() -> Self {
        Self {
            order: ByteOrder::NATIVE,
            by_sends: false,
            transfer_first: TRANSFER_FIRST,
            keepalive: None,
            #[cfg(test)]
            flaw: Flaw::None,
        }
    }
}

/// What holds for all sockets of a process, as an administrator sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The sizes that sockets begin with.
    pub sizes: Sizes,
    /// How long to look for completions before sleeping. For who sleeps: nothing here does.
    pub polling_time: Duration,
    /// How long a sleep in rpoll takes at most. For who sleeps.
    pub wake_up_interval: Duration,
    /// How long a socket that was closed waits for what it sent to arrive, before it gives up. (librdmacm waits for ever.)
    pub close_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sizes: Sizes::default(),
            polling_time: Duration::from_micros(10),
            wake_up_interval: Duration::from_millis(500),
            close_timeout: Duration::from_secs(30),
        }
    }
}

impl Settings {
    /// The files that may be in rsockets' folder (/etc/rdma/rsocket), each with one number.
    pub const FILES: [&'static str; 8] = [
        "mem_default",
        "wmem_default",
        "sqsize_default",
        "rqsize_default",
        "inline_default",
        "iomap_size",
        "polling_time",
        "wake_up_interval",
    ];

    /// Takes the text of a file. Whether it had that name and such a number; if not, nothing changed.
    pub fn set(&mut self, file: &str, text: &str) -> bool {
        let Some(number) = leading_number(text) else { return false };
        let sizes = &mut self.sizes;
        let small = u16::try_from(number);
        match (file, small) {
            ("mem_default", _) => sizes.recv_buffer = number.max(1),
            ("wmem_default", _) => sizes.send_buffer = if number < SEND_LOW_WATER { SEND_LOW_WATER * 2 } else { number },
            ("sqsize_default", Ok(size)) => sizes.send_queue = size,
            ("rqsize_default", Ok(size)) => sizes.recv_queue = size,
            ("inline_default", Ok(size)) => sizes.inline = size,
            ("iomap_size", Ok(size)) => sizes.iomap = from_scale(to_scale(size)),
            ("polling_time", _) => self.polling_time = Duration::from_micros(number.into()),
            ("wake_up_interval", _) => self.wake_up_interval = Duration::from_millis(number.into()),
            _ => return false,
        }
        true
    }
}

/// The number that a text begins with, after blanks: what follows is ignored, as librdmacm does.
fn leading_number(text: &str) -> Option<u32> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: MessageLimits = MessageLimits { wrs: 1000, cq_depth: 4000, inline: 512, datagram: 1024 };

    #[test]
    fn files_say_other_defaults() {
        let mut settings = Settings::default();
        for file in Settings::FILES {
            assert!(settings.set(file, " 300\n"), "{file}");
        }
        let sizes = Sizes { send_queue: 300, recv_queue: 300, inline: 300, send_buffer: 4096, recv_buffer: 300, iomap: 256 };
        assert_eq!(settings.sizes, sizes);
        assert_eq!((settings.polling_time, settings.wake_up_interval), (Duration::from_micros(300), Duration::from_millis(300)));
        for (file, text) in
            [("mem_default", "much"), ("mem_default", ""), ("sqsize_default", "70000"), ("max_events", "1"), ("mem_default", "-1")]
        {
            assert!(!settings.set(file, text), "{file}: {text}");
        }
        assert_eq!(settings.sizes, sizes);
        assert!(settings.set("mem_default", "0"));
        assert_eq!(settings.sizes.recv_buffer, 1);
    }

    #[test]
    fn sizes_are_held_within_what_the_device_can_do() {
        let asked = Sizes { send_queue: 1, recv_queue: 2000, inline: 600, send_buffer: 10, recv_buffer: 1, iomap: 300 };
        let got = Sizes { send_queue: 16, recv_queue: 1000, inline: 512, send_buffer: 4096, recv_buffer: 2, iomap: 256 };
        assert_eq!(asked.within(&LIMITS), got);
        assert_eq!(Sizes::default().within(&LIMITS), Sizes::default());
    }
}
