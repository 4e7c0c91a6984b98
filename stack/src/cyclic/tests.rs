use proptest::prelude::*;

use super::*;
use crate::device::{Capabilities, RxBuffer};
use crate::offload::DeviceKind;
use crate::time::Instant;

/// Received bytes, as in any device.
#[derive(Clone, Debug)]
struct Bytes(Vec<u8>);

impl RxBuffer for Bytes {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0[offset..offset + out.len()]);
    }
    fn checksum(&self, offset: usize, len: usize) -> u16 {
        crate::wire::checksum::sum(&self.0[offset..offset + len])
    }
    fn slice(&self, offset: usize, len: usize) -> Self {
        Self(self.0[offset..offset + len].to_vec())
    }
}

/// A packet's bytes: its headers, its payload, and where the payload is cut into parts.
#[derive(Clone, Debug)]
struct Sent {
    headers: Vec<u8>,
    payload: Vec<u8>,
    cuts: [usize; 3],
    at: Instant,
}

impl Sent {
    fn new(number: u8, len: usize) -> Self {
        let bytes = |salt: u8, len: usize| (0..len).map(|i| (i as u8).wrapping_mul(7) ^ number ^ salt).collect();
        let at = Instant::from_nanos(u64::from(number));
        Self { headers: bytes(0x80, 42), payload: bytes(0, len), cuts: [len / 3, len / 2, len / 2 + len / 4], at }
    }

    fn write(&self, buffer: &mut CyclicBuffer<Vec<u8>>) -> Result<(), Refused> {
        let mut cuts = self.cuts.map(|cut| cut.min(self.payload.len()));
        cuts.sort_unstable();
        let [a, b, c] = cuts;
        let buffers = [Bytes(self.payload[b..c].to_vec()), Bytes(self.payload[c..].to_vec())];
        let copied = [&self.payload[..a], &self.payload[a..b]];
        buffer.write(&Packet { headers: &self.headers, copied, buffers: &buffers, received: self.at })
    }

    fn whole(&self) -> Vec<u8> {
        [&self.headers[..], &self.payload].concat()
    }
}

fn padded_to(mut bytes: Vec<u8>, len: usize) -> Vec<u8> {
    bytes.resize(len, 0);
    bytes
}

fn geometry(records: Records, packets: usize, payload_bytes: usize, header_bytes: usize) -> Geometry {
    Geometry { records, packets, payload_bytes, header_bytes, vlan: false }
}

fn buffer(geometry: &Geometry) -> CyclicBuffer<Vec<u8>> {
    let bytes = geometry.layout().unwrap().bytes();
    CyclicBuffer::new(geometry, vec![0xee; bytes]).unwrap()
}

fn payload<'a>(buffer: &'a CyclicBuffer<Vec<u8>>, run: &Run) -> &'a [u8] {
    &buffer.memory()[run.payload.clone()]
}

fn headers<'a>(buffer: &'a CyclicBuffer<Vec<u8>>, run: &Run) -> &'a [u8] {
    &buffer.memory()[run.headers.clone()]
}

#[test]
fn each_mode_keeps_its_parts_where_it_says() {
    let sent = [Sent::new(1, 20), Sent::new(2, 20)];
    let run_of = |geometry: &Geometry| {
        let mut buffer = buffer(geometry);
        sent.iter().for_each(|sent| sent.write(&mut buffer).unwrap());
        let run = buffer.read(1, 9).unwrap().unwrap();
        assert_eq!((run.packets, run.received), (2, sent[0].at));
        (payload(&buffer, &run).to_vec(), headers(&buffer, &run).to_vec())
    };
    let all = |part: &dyn Fn(&Sent) -> Vec<u8>| sent.iter().flat_map(part).collect::<Vec<_>>();

    assert_eq!(run_of(&geometry(Records::Raw, 4, 20, 0)), (all(&Sent::whole), Vec::new()));
    assert_eq!(run_of(&geometry(Records::StripHeaders, 4, 20, 0)), (all(&|sent| sent.payload.clone()), Vec::new()));
    let (bodies, own) = (all(&|sent| sent.payload[8..].to_vec()), all(&|sent| sent.payload[..8].to_vec()));
    assert_eq!(run_of(&geometry(Records::StripHeaders, 4, 12, 8)), (bodies.clone(), own));
    let both = all(&|sent| sent.whole()[..50].to_vec());
    assert_eq!(run_of(&geometry(Records::SeparateHeaders, 4, 12, 8)), (bodies, both));
    assert_eq!(run_of(&geometry(Records::Padded, 4, 20, 0)), (all(&|sent| padded_to(sent.whole(), 64)), Vec::new()));
}

#[test]
fn a_short_packet_leaves_nothing_of_an_older_one_behind() {
    for (records, header_bytes) in [(Records::Raw, 0), (Records::StripHeaders, 4), (Records::SeparateHeaders, 4)] {
        let mut buffer = buffer(&geometry(records, 1, 16, header_bytes));
        Sent::new(1, 16).write(&mut buffer).unwrap();
        buffer.read(1, 1).unwrap().unwrap();
        assert_eq!(buffer.read(1, 1).unwrap(), None);
        let short = Sent::new(2, 2);
        short.write(&mut buffer).unwrap();
        let run = buffer.read(1, 1).unwrap().unwrap();
        let (payload, headers) = (payload(&buffer, &run), headers(&buffer, &run));
        match records {
            Records::Raw => assert_eq!(payload, padded_to(short.whole(), 58)),
            Records::StripHeaders => assert_eq!((payload, headers), (&[0; 16][..], &padded_to(short.payload, 4)[..])),
            _ => assert_eq!((payload, headers), (&[0; 16][..], &padded_to(short.whole(), 46)[..])),
        }
    }
}

#[test]
fn fewer_than_the_least_are_given_out_only_at_the_end() {
    let mut buffer = buffer(&geometry(Records::StripHeaders, 5, 8, 0));
    for number in 0..3 {
        Sent::new(number, 8).write(&mut buffer).unwrap();
    }
    assert_eq!(buffer.read(4, 4).unwrap(), None);
    assert_eq!(buffer.read(0, 2).unwrap().unwrap().payload, 0..16);
    assert_eq!(buffer.read(2, 2).unwrap(), None);
    for number in 3..5 {
        Sent::new(number, 8).write(&mut buffer).unwrap();
    }
    // Nothing is overwritten before a call goes back to the beginning, though two of five are done with.
    assert_eq!(Sent::new(5, 8).write(&mut buffer), Err(Refused::End));
    assert_eq!(buffer.read(4, 9).unwrap().unwrap().payload, 16..40);
    assert_eq!(Sent::new(5, 8).write(&mut buffer), Err(Refused::End));
    assert_eq!((buffer.read(1, 1).unwrap(), buffer.rewinds()), (None, 1));
    Sent::new(5, 8).write(&mut buffer).unwrap();
    let run = buffer.read(1, 1).unwrap().unwrap();
    assert_eq!((run.payload.clone(), payload(&buffer, &run)), (0..8, &Sent::new(5, 8).payload[..]));
}

#[test]
fn with_padding_a_long_packet_takes_several_strides_and_never_wraps() {
    let mut buffer = buffer(&geometry(Records::Padded, 4, 20, 0));
    assert_eq!(buffer.layout().record_bytes, 64);
    for (number, len) in [(1, 20), (2, 100)] {
        Sent::new(number, len).write(&mut buffer).unwrap();
    }
    assert_eq!(Sent::new(3, 20).write(&mut buffer), Err(Refused::End));
    assert_eq!(buffer.read(1, 9).unwrap().unwrap().payload, 0..256);
    buffer.read(1, 1).unwrap();
    Sent::new(4, 20).write(&mut buffer).unwrap();
    assert_eq!(Sent::new(5, 200).write(&mut buffer), Err(Refused::End));
    assert_eq!(buffer.read(5, 9).unwrap().unwrap().packets, 1, "what is there comes before a rewind");
    assert_eq!(Sent::new(5, 300).write(&mut buffer), Err(Refused::Oversized), "longer than all of it");
    assert_eq!(buffer.oversized(), 1);
}

#[test]
fn what_fits_no_record_is_refused() {
    let sent = |len| Sent::new(1, len);
    let mut raw = buffer(&geometry(Records::Raw, 4, 20, 0));
    assert_eq!((sent(20).write(&mut raw), sent(21).write(&mut raw)), (Ok(()), Err(Refused::Oversized)));
    let mut stripped = buffer(&geometry(Records::StripHeaders, 4, 20, 4));
    assert_eq!((sent(24).write(&mut stripped), sent(25).write(&mut stripped)), (Ok(()), Err(Refused::Oversized)));
    let mut separate = buffer(&geometry(Records::SeparateHeaders, 4, 20, 4));
    assert_eq!((sent(24).write(&mut separate), sent(25).write(&mut separate)), (Ok(()), Err(Refused::Oversized)));
    // IP options make headers longer than their array has room for.
    let optioned = Sent { headers: vec![1; 46], ..sent(4) };
    assert_eq!((optioned.write(&mut separate), optioned.write(&mut stripped)), (Err(Refused::Oversized), Ok(())));
    let mut tagged = buffer(&Geometry { vlan: true, ..geometry(Records::SeparateHeaders, 4, 20, 4) });
    optioned.write(&mut tagged).unwrap();
    let run = tagged.read(1, 1).unwrap().unwrap();
    assert_eq!(headers(&tagged, &run), [&[1; 46][..], &optioned.payload].concat());
}

#[test]
fn geometries_and_calls_that_make_no_sense_are_refused() {
    let refused = |geometry: Geometry| geometry.layout().unwrap_err();
    assert_eq!(refused(geometry(Records::Raw, 4, 20, 1)), GeometryError::Invalid);
    assert_eq!(refused(geometry(Records::Raw, 0, 20, 0)), GeometryError::Invalid);
    assert_eq!(refused(geometry(Records::Padded, 4, 0, 0)), GeometryError::Invalid);
    assert_eq!(refused(geometry(Records::StripHeaders, usize::MAX, 2, 0)), GeometryError::TooLarge);
    assert_eq!(refused(geometry(Records::SeparateHeaders, 1 << 20, 1000, 24)), GeometryError::TooLarge);
    assert_eq!(refused(geometry(Records::Padded, 4, usize::MAX >> 1, 0)), GeometryError::TooLarge);
    let strip = geometry(Records::StripHeaders, 3, 10, 5);
    assert_eq!(strip.layout().unwrap().bytes(), 64 + 15);
    assert_eq!(CyclicBuffer::new(&strip, vec![0; 78]).unwrap_err(), GeometryError::NoRoom(79));
    let mut buffer = buffer(&strip);
    assert_eq!(buffer.read(2, 1), Err(CyclicError::Invalid { min: 2, max: 1 }));
    assert_eq!(buffer.read(0, 0), Err(CyclicError::Invalid { min: 0, max: 0 }));
}

#[test]
fn it_says_that_it_is_done_in_software_and_why() {
    let caps = Capabilities::least(DeviceKind::Shm, 65_535);
    assert_eq!(CyclicBuffer::<Vec<u8>>::lacking(&caps).unwrap().to_string(), "shm has no striding receive queue");
    assert_eq!(CyclicBuffer::<Vec<u8>>::lacking(&Capabilities { striding: true, ..caps }), None);
}

/// What a program and a network do.
#[derive(Clone, Debug)]
enum Step {
    Arrive(usize, [usize; 3]),
    Read(usize, usize),
}

fn any_step(len_max: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..=len_max, any::<[usize; 3]>()).prop_map(move |(len, cuts)| Step::Arrive(len, cuts.map(|cut| cut % (len_max + 1)))),
        1 => (0..6usize, 0..6usize).prop_map(|(min, more)| Step::Read(min, (min + more).max(1))),
    ]
}

fn any_geometry() -> impl Strategy<Value = Geometry> {
    let records = prop_oneof![Just(Records::Raw), Just(Records::StripHeaders), Just(Records::SeparateHeaders), Just(Records::Padded)];
    (records, 1..12usize, 1..100usize, 0..20usize, any::<bool>()).prop_map(|(records, packets, payload_bytes, header_bytes, vlan)| {
        let header_bytes = if records == Records::Raw { 0 } else { header_bytes };
        Geometry { records, packets, payload_bytes, header_bytes, vlan }
    })
}

/// A packet's record and its entry of the array of headers, made the simple way.
fn expected(geometry: &Geometry, layout: &Layout, sent: &Sent) -> (Vec<u8>, Vec<u8>) {
    let own = geometry.header_bytes.min(sent.payload.len());
    let rest = padded_to(sent.payload[own..].to_vec(), layout.record_bytes);
    let apart = padded_to(sent.payload[..own].to_vec(), geometry.header_bytes);
    match geometry.records {
        Records::Raw => (padded_to(sent.whole(), layout.record_bytes), Vec::new()),
        Records::Padded => (padded_to(sent.whole(), sent.whole().len().next_multiple_of(layout.record_bytes)), Vec::new()),
        Records::StripHeaders => (rest, apart),
        Records::SeparateHeaders => (rest, [padded_to(sent.headers.clone(), geometry.net_bytes()), apart].concat()),
    }
}

proptest! {
    /// Every packet that was written is given out once, whole and in order, in runs as long as was asked for; and what was given out stays as it
    /// was until the call that rewinds.
    #[test]
    fn runs_are_what_arrived((geometry, steps) in any_geometry().prop_flat_map(|geometry| {
        let len_max = geometry.payload_bytes + geometry.header_bytes + 130;
        (Just(geometry), prop::collection::vec(any_step(len_max), 1..120))
    })) {
        let mut buffer = buffer(&geometry);
        let layout = *buffer.layout();
        let mut waiting = std::collections::VecDeque::new();
        // Runs since the last rewind, and their bytes.
        let mut out: Vec<(Run, Vec<u8>, Vec<u8>)> = Vec::new();
        let (mut refused, mut number) = (false, 0u8);
        for step in steps {
            match step {
                Step::Arrive(len, cuts) => {
                    number = number.wrapping_add(1);
                    let sent = Sent { cuts, ..Sent::new(number, len) };
                    match sent.write(&mut buffer) {
                        Ok(()) => waiting.push_back(sent),
                        Err(Refused::End) => refused = true,
                        Err(Refused::Oversized) => {
                            let room = match geometry.records {
                                Records::Padded => layout.payload_bytes() - 42,
                                _ => geometry.header_bytes + geometry.payload_bytes,
                            };
                            prop_assert!(len > room || (geometry.records == Records::Raw && 42 + len > layout.record_bytes));
                        }
                    }
                }
                Step::Read(min, max) => {
                    let rewinds = buffer.rewinds();
                    let run = buffer.read(min, max).unwrap();
                    if buffer.rewinds() > rewinds {
                        prop_assert!(run.is_none() && waiting.is_empty(), "a rewind with {} waiting", waiting.len());
                        out.clear();
                        refused = false;
                    }
                    let end = refused || out.last().map_or(0, |(run, ..)| run.payload.end) + waiting.len() * layout.record_bytes
                        == layout.payload_bytes() || geometry.records == Records::Padded;
                    match run {
                        None => prop_assert!(waiting.len() < min.max(1)),
                        Some(run) => {
                            prop_assert!(run.packets <= max && (run.packets >= min || end));
                            prop_assert_eq!(run.packets, waiting.len().min(max));
                            prop_assert_eq!(run.payload.start, out.last().map_or(0, |(run, ..)| run.payload.end));
                            let given: Vec<Sent> = waiting.drain(..run.packets).collect();
                            prop_assert_eq!(run.received, given[0].at);
                            let (records, entries): (Vec<_>, Vec<_>) = given.iter().map(|sent| expected(&geometry, &layout, sent)).unzip();
                            prop_assert_eq!(payload(&buffer, &run), records.concat());
                            prop_assert_eq!(headers(&buffer, &run), entries.concat());
                            out.push((run, records.concat(), entries.concat()));
                        }
                    }
                }
            }
            for (run, records, entries) in &out {
                prop_assert!(payload(&buffer, run) == records && headers(&buffer, run) == entries, "{:?} was overwritten", run);
            }
        }
    }
}
