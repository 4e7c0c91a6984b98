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
use ringway_host::Clock;

use super::packet;
use super::sources::Seen;

/// Timestamps count nanoseconds: ten to the minus ninth.
const RESOLUTION_NANOSECONDS: u8 = 9;
/// The direction bits of a packet's flags word.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// See the module's documentation.
pub(super) struct CaptureFile<W: Write> {
    writer: PcapNgWriter<W>,
    interfaces: u32,
    /// What is added to the frames' times, so that they count from 1970.
    since_1970: Duration,
    written: u64,
    lost: u64,
}

/// A ring.
pub(super) struct Interface<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) snaplen: u32,
}

impl<W: Write> CaptureFile<W> {
    /// `clock`: that of the frames' times.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn new(out: W, clock: Clock) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let section = SectionHeaderBlock {
            endianness: Endianness::Little,
            options: vec![SectionHeaderOption::UserApplication(Cow::Borrowed(concat!("ringway ", env!("CARGO_PKG_VERSION"))))],
            ..SectionHeaderBlock::default()
        };
        Ok(Self {
            writer: PcapNgWriter::with_section_header(out, section).map_err(as_io)?,
            interfaces: 0,
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
        let block = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: interface.snaplen, options };
        self.writer.write_pcapng_block(block).map_err(as_io)?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&mut self, seen: Seen) -> Result<()> {
        let Seen { interface, is_shared_memory, frame } = seen;
        let mut options = vec![EnhancedPacketOption::Flags(if frame.is_sent { OUTBOUND } else { INBOUND })];
        if frame.lost != 0 {
            options.push(EnhancedPacketOption::DropCount(frame.lost));
        }
        let timestamp = self.since_1970.saturating_add(Duration::from_nanos(frame.time_ns));
        let (bytes, len) = packet::on_the_wire(frame, is_shared_memory);
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
        self.lost += lost;
        Ok(())
    }

    /// What was written so far is to be read.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn flush(&mut self) -> Result<()> {
        Ok(self.writer.get_mut().flush()?)
    }

    /// There will be nothing more.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.writer.get_mut().flush()
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
