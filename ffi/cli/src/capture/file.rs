//! The pcapng file: an interface for each ring, a block for each frame, and at the end a count for each ring.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};
use ringway_cli::filter::Filter;
use ringway_host::Clock;

use super::packet;
use super::sources::Seen;

/// Timestamps count nanoseconds: ten to the minus ninth.
const RESOLUTION_NANOSECONDS: u8 = 9;
/// The direction bits of a packet's flags word.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// What of a frame, and which frames, are written.
#[derive(Default)]
pub(super) struct Limits {
    /// Bytes of each.
    pub(super) snaplen: u32,
    /// So many at most.
    pub(super) count: Option<u64>,
    pub(super) filter: Option<Filter>,
}

/// See the module's documentation.
pub(super) struct CaptureFile<W: Write> {
    writer: PcapNgWriter<W>,
    limits: Limits,
    /// For each interface: frames that were lost since the last one that was written.
    lost_since: Vec<u64>,
    /// What is added to the frames' times, so that they count from 1970.
    since_1970: Duration,
    written: u64,
    lost: u64,
}

/// A ring.
pub(super) struct Interface<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
}

impl<W: Write> CaptureFile<W> {
    /// `clock`: that of the frames' times.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn new(out: W, clock: Clock, limits: Limits) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let section = SectionHeaderBlock {
            endianness: Endianness::Little,
            options: vec![SectionHeaderOption::UserApplication(Cow::Borrowed(concat!("ringway ", env!("CARGO_PKG_VERSION"))))],
            ..SectionHeaderBlock::default()
        };
        Ok(Self {
            writer: PcapNgWriter::with_section_header(out, section).map_err(as_io)?,
            limits,
            lost_since: Vec::new(),
            since_1970: now.saturating_sub(Duration::from_nanos(clock.now().as_nanos())),
            written: 0,
            lost: 0,
        })
    }

    /// Describes a ring. Returns its number.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn describe(&mut self, interface: &Interface<'_>) -> Result<u32> {
        let options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(interface.name)),
            InterfaceDescriptionOption::IfDescription(Cow::Borrowed(interface.description)),
            InterfaceDescriptionOption::IfTsResol(RESOLUTION_NANOSECONDS),
        ];
        let block = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: self.limits.snaplen, options };
        self.writer.write_pcapng_block(block).map_err(as_io)?;
        self.lost_since.push(0);
        Ok(self.lost_since.len() as u32 - 1)
    }

    /// Writes a frame, if it is one of those that are asked for.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&mut self, seen: Seen) -> Result<()> {
        self.pass_over(&seen);
        let Seen { interface, is_shared_memory, frame } = seen;
        let flags = if frame.is_sent { OUTBOUND } else { INBOUND };
        let timestamp = self.since_1970.saturating_add(Duration::from_nanos(frame.time_ns));
        let (mut bytes, len) = packet::on_the_wire(frame, is_shared_memory);
        // (A tag may have made it longer.)
        bytes.truncate(self.limits.snaplen as usize);
        if self.is_full() || self.limits.filter.as_ref().is_some_and(|filter| !filter.matches(&bytes, len)) {
            return Ok(());
        }
        let mut options = vec![EnhancedPacketOption::Flags(flags)];
        let lost = core::mem::take(&mut self.lost_since[interface as usize]);
        if lost != 0 {
            options.push(EnhancedPacketOption::DropCount(lost));
        }
        let block = EnhancedPacketBlock {
            interface_id: interface,
            timestamp,
            original_len: u32::try_from(len).unwrap_or(u32::MAX),
            data: Cow::Owned(bytes),
            options,
        };
        self.writer.write_pcapng_block(block).map_err(as_io)?;
        self.written += 1;
        Ok(())
    }

    /// Keeps a frame out of the file, but not what was lost before it.
    pub(super) fn pass_over(&mut self, seen: &Seen) {
        let lost = &mut self.lost_since[seen.interface as usize];
        *lost = lost.saturating_add(seen.frame.lost);
    }

    /// Whether it has as many frames as were asked for.
    pub(super) fn is_full(&self) -> bool {
        self.limits.count.is_some_and(|count| self.written >= count)
    }

    /// Writes how many frames a ring had, and how many of them were lost.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn tell_count(&mut self, interface: u32, seen: u64, lost: u64) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let options = vec![InterfaceStatisticsOption::IsbIfRecv(seen), InterfaceStatisticsOption::IsbIfDrop(lost)];
        // (The higher half comes first, s4.6, which the crate leaves to its caller.)
        let block = InterfaceStatisticsBlock { interface_id: interface, timestamp: now.rotate_left(32), options };
        self.writer.write_pcapng_block(block).map_err(as_io)?;
        self.lost = self.lost.saturating_add(lost);
        Ok(())
    }

    /// What was written so far is to be read.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn flush(&mut self) -> Result<()> {
        Ok(self.writer.get_mut().flush()?)
    }

    /// Frames that were written.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// Frames that were lost.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }
}

fn as_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}
