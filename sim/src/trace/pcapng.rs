//! Traces as pcapng (draft-ietf-opsawg-pcapng), for Wireshark: an interface a host, both ends of every frame.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};

use super::{Interface, Record, Trace, What};
use crate::fabric::Marks;
use crate::nic::RxDrop;

/// Timestamps count nanoseconds: ten to the minus ninth.
const RESOLUTION_NANOSECONDS: u8 = 9;
/// The direction bits of a packet's flags word.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Which frames a file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Each where it was sent and where it arrived.
    All,
    /// Each where it was sent.
    Sent,
    /// What this host sent and received.
    By(usize),
}

impl Seen {
    fn shows(self, record: &Record) -> bool {
        match self {
            Seen::All => true,
            Seen::Sent => record.what == What::Sent,
            Seen::By(host) => record.host == host,
        }
    }
}

/// Why a trace could not be written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The world was not told to keep frames.
    #[error("this world kept no frames: build it with Capture::Frames")]
    NotKept,
    /// The file could not be written.
    #[error("the trace could not be written: {0}")]
    Write(#[from] PcapError),
}

impl Trace {
    /// Writes the trace as pcapng. What a link did to a frame stands as a comment on the frame where it was sent and where it arrived.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn write_pcapng(&self, out: impl Write) -> Result<(), TraceError> {
        self.write_pcapng_of(Seen::All, out)
    }

    /// As [`Self::write_pcapng`], with only some of the frames: an analyser that takes the file for one capture sees none of them twice.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn write_pcapng_of(&self, seen: Seen, out: impl Write) -> Result<(), TraceError> {
        if !self.keep {
            return Err(TraceError::NotKept);
        }
        let mut writer = PcapNgWriter::with_section_header(out, self.section())?;
        for interface in &self.interfaces {
            writer.write_pcapng_block(describe(interface))?;
        }
        let fates = self.fates();
        let of = |record: &&Record| seen.shows(record);
        // The failure stands on its witness, or, if that one is not shown, on the last frame before it.
        let failure = self.failure();
        let until = failure.and_then(|failure| failure.record).unwrap_or(self.records.len());
        let marked = self.records.iter().take(until + 1).rposition(|record| of(&record) && is_packet(record));
        for (number, record) in self.records.iter().enumerate().filter(|(_, record)| of(record)) {
            let failure = failure.filter(|_| marked == Some(number)).map(|failure| format!("FAILED: {}", failure.text));
            if let Some(block) = packet(record, &fates, failure) {
                writer.write_pcapng_block(block)?;
            }
        }
        Ok(())
    }

    fn section(&self) -> SectionHeaderBlock<'static> {
        let about = format!("seed {}, trace hash {}", self.seed, self.hash());
        SectionHeaderBlock {
            // Not the machine's own: the same run gives the same file everywhere.
            endianness: Endianness::Little,
            options: vec![
                SectionHeaderOption::UserApplication(Cow::Borrowed("ringway-sim")),
                SectionHeaderOption::Comment(Cow::Owned(about)),
            ],
            ..SectionHeaderBlock::default()
        }
    }

    /// What befell each frame on its way, by the frame's number.
    fn fates(&self) -> BTreeMap<u64, String> {
        let mut fates: BTreeMap<u64, String> = BTreeMap::new();
        // What is about no frame stands on the next one that the host sends.
        let mut mishaps: BTreeMap<usize, String> = BTreeMap::new();
        for record in &self.records {
            let name = self.host_name(record.host);
            let fate = match record.what {
                What::Sent => match mishaps.remove(&record.host) {
                    Some(mishaps) => mishaps,
                    None => continue,
                },
                What::Befell(mishap) => {
                    let all = mishaps.entry(record.host).or_default();
                    let separator = if all.is_empty() { "" } else { "; " };
                    *all += &format!("{separator}before, at {} ms: {mishap}", record.at.as_millis());
                    continue;
                }
                What::Delivered | What::Injected => continue,
                What::Refused(why) => format!("{name}: dropped, {}", refusal(why)),
                What::NoReceiver => "switch: no host has this MAC address".to_owned(),
                What::Struck(direction, strike) => format!("{name}'s link, {direction}: {strike}"),
            };
            let all = fates.entry(record.frame).or_default();
            if !all.is_empty() {
                all.push_str("; ");
            }
            all.push_str(&fate);
        }
        fates
    }
}

fn describe(interface: &Interface) -> InterfaceDescriptionBlock<'_> {
    let mut options = vec![
        InterfaceDescriptionOption::IfName(Cow::Borrowed(&interface.name)),
        InterfaceDescriptionOption::IfMacAddr(Cow::Borrowed(&interface.mac.0)),
        InterfaceDescriptionOption::IfTsResol(RESOLUTION_NANOSECONDS),
    ];
    options.extend(interface.bandwidth_bps.map(InterfaceDescriptionOption::IfSpeed));
    InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0, options }
}

fn is_packet(record: &Record) -> bool {
    matches!(record.what, What::Sent | What::Delivered)
}

fn packet<'a>(record: &'a Record, fates: &'a BTreeMap<u64, String>, failure: Option<String>) -> Option<EnhancedPacketBlock<'a>> {
    let (flags, comment) = match record.what {
        What::Sent => (OUTBOUND, fates.get(&record.frame).map(|fate| Cow::Borrowed(fate.as_str()))),
        What::Delivered => (INBOUND, befallen(record.marks).map(Cow::Owned)),
        _ => return None,
    };
    let mut options = vec![EnhancedPacketOption::Flags(flags)];
    options.extend(failure.map(|failure| EnhancedPacketOption::Comment(Cow::Owned(failure))));
    options.extend(comment.map(EnhancedPacketOption::Comment));
    Some(EnhancedPacketBlock {
        interface_id: u32::try_from(record.host).unwrap_or(u32::MAX),
        timestamp: core::time::Duration::from_nanos(record.at.as_nanos()),
        original_len: u32::try_from(record.bytes.len()).unwrap_or(u32::MAX),
        data: Cow::Borrowed(&record.bytes),
        options,
    })
}

/// Why a NIC had no room, in words.
pub(crate) fn refusal(why: RxDrop) -> &'static str {
    match why {
        RxDrop::QueueFull => "receive queue full",
        RxDrop::NoBuffer => "no receive buffer",
        RxDrop::Down => "NIC down",
    }
}

/// The marks of one copy, in words.
pub(crate) fn befallen(marks: Marks) -> Option<String> {
    const WORDS: [(Marks, &str); 7] = [
        (Marks::CORRUPTED, "corrupted"),
        (Marks::DUPLICATE, "second copy"),
        (Marks::HELD_BACK, "held back"),
        (Marks::HIDDEN, "corrupted unnoticed"),
        (Marks::DELAYED, "delayed"),
        (Marks::FORGED, "forged by an attacker"),
        (Marks::ROUTER, "from the router"),
    ];
    let words: Vec<_> = WORDS.into_iter().filter_map(|(mark, word)| marks.contains(mark).then_some(word)).collect();
    (!words.is_empty()).then(|| words.join(", "))
}
