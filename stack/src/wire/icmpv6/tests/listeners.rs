//! Multicast listener discovery's messages.

use core::net::Ipv6Addr;
use core::time::Duration;

use super::super::mld::{Invalid, Message, QueryV2, RecordKind, *};
use super::{A, GROUP, LINK_LOCAL};
use crate::wire::ipv6;
use crate::wire::ipv6::extension::walk;

/// A packet's message, as a host that gets the packet reads it.
fn read(packet: &[u8]) -> Result<Message<'_>, Invalid> {
    let (header, _) = ipv6::Header::parse(packet).unwrap();
    let upper = walk(&header, packet).unwrap();
    assert_eq!((upper.protocol, upper.router_alert), (ipv6::PROTOCOL_ICMPV6, Some(ROUTER_ALERT)));
    let bytes = &packet[upper.at..ipv6::LEN + usize::from(header.payload_len)];
    assert_eq!(header.check_upper(ipv6::PROTOCOL_ICMPV6, bytes), Ok(()));
    Message::parse(&header, upper.router_alert, bytes)
}

fn query(code: u16, group: Option<Ipv6Addr>, tail: &[u8]) -> Vec<u8> {
    let mut out = vec![0; V1_PACKET_LEN + tail.len()];
    assert_eq!(emit_query((LINK_LOCAL, group.unwrap_or(ipv6::ALL_NODES)), group, code, tail, &mut out), out.len());
    out
}

#[test]
fn queries_of_both_versions() {
    let v1 = query(10_000, None, &[]);
    assert_eq!(read(&v1), Ok(Message::Query { group: None, max_response: Duration::from_secs(10), v2: None }));
    // RFC 3810 s5.1.3, s5.1.9: from 0x8000 and 0x80 on, codes are numbers with an exponent.
    for (code, millis) in [(0x7fff, 0x7fff), (0x8000, 0x8000), (0x8001, 0x8008), (0xffff, 0x1fff << 10)] {
        let packet = query(code, Some(GROUP), &[0x0a, 0x8f, 0, 1, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa]);
        let Ok(Message::Query { group: Some(GROUP), max_response, v2: Some(v2) }) = read(&packet) else { panic!("a query of version 2") };
        assert_eq!(max_response, Duration::from_millis(millis));
        let QueryV2 { suppress, robustness, interval, sources } = v2;
        assert_eq!((suppress, robustness, interval), (true, 2, Duration::from_secs(31 << 3)));
        assert_eq!(sources.iter().collect::<Vec<_>>(), [A]);
    }
    // In version 1 the same bits are milliseconds (RFC 2710 s3.4).
    let long = query(0xffff, None, &[]);
    assert_eq!(read(&long), Ok(Message::Query { group: None, max_response: Duration::from_millis(65_535), v2: None }));
    // RFC 3810 s8.1: between the versions' lengths is neither.
    assert_eq!(read(&query(0, None, &[2, 0])), Err(Invalid::Truncated));
    assert_eq!(read(&query(0, None, &[2, 125, 0, 1])), Err(Invalid::Truncated), "a source is promised");
}

/// RFC 3810 s6.2: "If any of these checks fails, the packet is dropped."
#[test]
fn what_is_not_from_the_link_is_dropped() {
    let packet = query(1000, None, &[2, 125, 0, 0]);
    let (header, _) = ipv6::Header::parse(&packet).unwrap();
    let bytes = &packet[HEADERS_LEN..];
    assert!(Message::parse(&header, Some(0), bytes).is_ok());
    for header in [
        ipv6::Header { src: A, ..header },
        ipv6::Header { src: Ipv6Addr::UNSPECIFIED, ..header },
        ipv6::Header { hop_limit: 2, ..header },
        ipv6::Header { hop_limit: 255, ..header },
    ] {
        assert_eq!(Message::parse(&header, Some(0), bytes), Err(Invalid::Stranger));
    }
    assert_eq!(Message::parse(&header, None, bytes), Err(Invalid::Stranger));
    assert_eq!(Message::parse(&header, Some(1), bytes), Err(Invalid::Stranger), "an alert for RSVP");
    let no_group = query(1000, Some(A), &[]);
    assert_eq!(read(&no_group), Err(Invalid::Group));
    let mut out = [0; V1_PACKET_LEN];
    emit_v1(Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED, false, &mut out);
    assert_eq!(read(&out), Err(Invalid::Group));
}

#[test]
fn reports_roundtrip_and_auxiliary_data_are_passed_over() {
    let kinds =
        [RecordKind::IsInclude, RecordKind::IsExclude, RecordKind::ToInclude, RecordKind::ToExclude, RecordKind::Allow, RecordKind::Block];
    let mut records = vec![];
    for (at, kind) in kinds.into_iter().chain([RecordKind::Other(9)]).enumerate() {
        let sources: Vec<_> = (0..at as u16).map(|n| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n)).collect();
        let mut record = vec![0; RECORD_LEN + 16 * at];
        assert_eq!(emit_record(kind, GROUP, &sources, &mut record), record.len());
        assert_eq!(record[0], if at == 6 { 9 } else { at as u8 + 1 }, "RFC 3810 s5.2.12 numbers them");
        if at == 2 {
            record[1] = 1;
            record.extend([1, 2, 3, 4]);
        }
        records.extend(record);
    }
    let mut packet = vec![0; HEADERS_LEN + REPORT_LEN + records.len()];
    assert_eq!(emit_report(LINK_LOCAL, 7, &records, &mut packet), packet.len());
    assert_eq!(&packet[24..40], &ipv6::ALL_MLDV2_ROUTERS.octets());
    let Ok(Message::Report { records: read_records }) = read(&packet) else { panic!("a report") };
    let summary: Vec<_> = read_records.iter().map(|record| (record.kind, record.group, record.sources.len())).collect();
    let expected: Vec<_> = kinds.into_iter().chain([RecordKind::Other(9)]).enumerate().map(|(at, kind)| (kind, GROUP, at)).collect();
    assert_eq!(summary, expected);
    // One record more than there are.
    emit_report(LINK_LOCAL, 8, &records, &mut packet);
    assert_eq!(read(&packet), Err(Invalid::Truncated));
}
