//! What the page gets: the trace in arrays of numbers, since twenty thousand frames are to be small.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::dissect::{self, Payload};
use crate::fabric::Direction;
use crate::segment::SYN;
use crate::trace::segment::{Reader, Segment};
use crate::trace::{Note, NoteKind, Record, Trace, What, befallen, refusal};

/// No host, no connection.
const NONE: i64 = -1;

/// Everything that the page shows. Times are nanoseconds of virtual time.
#[derive(Serialize)]
pub(super) struct Data {
    title: String,
    about: String,
    hash: String,
    hosts: Vec<String>,
    /// Connections by name: both ends, or what else the frames have in common.
    flows: Vec<String>,
    frames: Vec<FrameRow>,
    arrivals: Vec<ArrivalRow>,
    notes: Vec<NoteRow>,
}

/// Flow, host (or none: it came from outside), time sent, frame's length, mark, flags, then seq, ack, window, payload's length, options (TCP) or nothing; the line that
/// describes it otherwise; what links did to it.
#[derive(Serialize)]
struct FrameRow(usize, i64, u64, usize, Mark, String, u32, u32, u32, u32, String, String);

/// Frame, host (or none), time, fate, what befell this copy.
#[derive(Serialize)]
struct ArrivalRow(usize, i64, u64, Fate, String);

/// Time, host (or everywhere), kind, text, the frame that shows it (or none).
#[derive(Serialize)]
struct NoteRow(u64, i64, u8, String, i64);

/// What a sender's frame repeats. The numbers are the page's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Mark {
    Plain = 0,
    Retransmission = 1,
    DuplicateAck = 2,
}

/// How a copy's way ended. The numbers are the page's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Fate {
    Delivered = 0,
    DroppedUp = 1,
    DroppedDown = 2,
    Refused = 3,
    NoReceiver = 4,
}

impl Serialize for Mark {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*self as u8)
    }
}

impl Serialize for Fate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*self as u8)
    }
}

/// The page's data of a trace.
pub(super) fn of(trace: &Trace, title: &str, about: &str) -> Data {
    let mut builder = Builder::default();
    for record in trace.records() {
        builder.record(trace, record);
    }
    let kind = |kind| match kind {
        NoteKind::Phase => 0,
        NoteKind::Timer => 1,
        NoteKind::Socket => 2,
        NoteKind::Mishap => 3,
        NoteKind::Failure => 4,
    };
    let place = |host: Option<usize>| host.map_or(NONE, number);
    let row = |record: Option<usize>| record.and_then(|at| builder.rows.get(&trace.records()[at].frame)).map_or(NONE, |&row| number(row));
    let note = |n: &Note| NoteRow(n.at.as_nanos(), place(n.host), kind(n.kind), n.text.clone(), row(n.record));
    let notes = trace.notes().iter().map(note).collect();
    Data {
        title: title.to_owned(),
        about: about.to_owned(),
        hash: trace.hash().to_string(),
        hosts: trace.interfaces().iter().map(|i| i.name.clone()).collect(),
        flows: builder.names,
        frames: builder.frames,
        arrivals: builder.arrivals,
        notes,
    }
}

fn number(index: usize) -> i64 {
    i64::try_from(index).unwrap_or(NONE)
}

#[derive(Default)]
struct Builder {
    reader: Reader,
    frames: Vec<FrameRow>,
    arrivals: Vec<ArrivalRow>,
    /// Rows by the trace's number of the frame.
    rows: BTreeMap<u64, usize>,
    names: Vec<String>,
    flows: BTreeMap<String, usize>,
    sent: BTreeMap<(String, String), Sent>,
}

/// What one end of a connection has sent so far.
#[derive(Clone, Copy, Default)]
struct Sent {
    next: u32,
    ack: u32,
    window: u32,
    any: bool,
}

impl Builder {
    fn record(&mut self, trace: &Trace, record: &Record) {
        match record.what {
            What::Sent => return self.sent(record, number(record.host)),
            What::Injected => return self.sent(record, NONE),
            _ => {}
        }
        let Some(&row) = self.rows.get(&record.frame) else { return };
        let at = record.at.as_nanos();
        let here = number(record.host);
        let arrival = match record.what {
            What::Sent | What::Injected | What::Befell(_) => return,
            What::Delivered => ArrivalRow(row, here, at, Fate::Delivered, befallen(record.marks).unwrap_or_default()),
            What::Refused(why) => ArrivalRow(row, here, at, Fate::Refused, refusal(why).to_owned()),
            What::NoReceiver => ArrivalRow(row, NONE, at, Fate::NoReceiver, "no host has this MAC address".to_owned()),
            What::Struck(direction, strike) => {
                let words = format!("{}'s link, {direction}: {strike}", trace.host_name(record.host));
                let told = &mut self.frames[row].11;
                *told = if told.is_empty() { words } else { format!("{told}; {words}") };
                match direction {
                    _ if !strike.is_drop() => return,
                    Direction::Up => ArrivalRow(row, destination(trace, record), at, Fate::DroppedUp, strike.to_string()),
                    Direction::Down => ArrivalRow(row, here, at, Fate::DroppedDown, strike.to_string()),
                }
            }
        };
        self.arrivals.push(arrival);
    }

    fn sent(&mut self, record: &Record, from: i64) {
        let segment = self.reader.segment(&record.bytes, record.marks);
        let mark = segment.as_ref().map_or(Mark::Plain, |s| self.mark(s));
        let flow = self.flow(&record.bytes);
        let (at, wire_len) = (record.at.as_nanos(), record.bytes.len());
        let row = match segment {
            Some(s) => {
                let letters = s.letters();
                FrameRow(flow, from, at, wire_len, mark, letters, s.seq, s.ack, s.window, s.len, s.options, String::new())
            }
            None => {
                let mut line = String::new();
                self.reader.describe(&record.bytes, record.marks, &mut line);
                FrameRow(flow, from, at, wire_len, mark, String::new(), 0, 0, 0, 0, line, String::new())
            }
        };
        self.rows.insert(record.frame, self.frames.len());
        self.frames.push(row);
    }

    /// The number of the flow that a frame belongs to.
    fn flow(&mut self, frame: &[u8]) -> usize {
        let name = match dissect::payload(frame) {
            Payload::Lookup(lookup) => if lookup.sender.is_ipv6() { "ND" } else { "ARP" }.to_owned(),
            Payload::Ip(ip) => match dissect::ports(frame, &ip) {
                Some((a, b)) if [dissect::TCP, dissect::UDP].contains(&ip.protocol) => {
                    let protocol = if ip.protocol == dissect::TCP { "TCP" } else { "UDP" };
                    format!("{protocol} {} – {}", a.min(b), a.max(b))
                }
                _ if ip.is_icmp() => if ip.is_v6() { "ICMPv6" } else { "ICMP" }.to_owned(),
                _ => format!("IP protocol {}", ip.protocol),
            },
            Payload::Other(ethertype) => format!("ethertype {ethertype:#06x}"),
        };
        let (flows, names) = (&mut self.flows, &mut self.names);
        *flows.entry(name.clone()).or_insert_with(|| {
            names.push(name);
            names.len() - 1
        })
    }

    fn mark(&mut self, segment: &Segment) -> Mark {
        let sent = self.sent.entry((segment.src.to_string(), segment.dst.to_string())).or_default();
        if segment.flags & SYN != 0 && segment.seq == 0 && sent.next > 1 {
            *sent = Sent::default();
        }
        let behind = segment.seq.wrapping_sub(sent.next).cast_signed() < 0;
        let repeats = sent.any && (segment.ack, segment.window) == (sent.ack, sent.window);
        let mark = match segment.occupies() {
            0 if repeats => Mark::DuplicateAck,
            n if n > 0 && sent.any && behind => Mark::Retransmission,
            _ => Mark::Plain,
        };
        let end = segment.seq.wrapping_add(segment.occupies());
        let next = if end.wrapping_sub(sent.next).cast_signed() > 0 { end } else { sent.next };
        *sent = Sent { next, ack: segment.ack, window: segment.window, any: true };
        mark
    }
}

/// The host that a frame is addressed to, if there is one such host.
fn destination(trace: &Trace, record: &Record) -> i64 {
    let mac = dissect::mac_at(&record.bytes, 0);
    trace.interfaces().iter().position(|i| Some(i.mac) == mac).map_or(NONE, number)
}
