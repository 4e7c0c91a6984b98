//! Traces as text: one line an event, in tcpdump's manner.

use core::fmt::Write;

use ringway_stack::Instant;

use super::segment::Reader;
use super::{Note, Record, Trace, What, befallen, refusal};
use crate::fabric::Marks;

/// Renders a kept trace, an event a line.
///
/// `>` a host sent it, `<` a host received it, `x` it was dropped, `!` a link did something else to it; `#` a check failed, which ended the run.
pub fn render(trace: &Trace) -> String {
    let mut reader = Reader::default();
    let mut out = String::new();
    let failure = trace.failure();
    for (number, record) in trace.records().iter().enumerate() {
        line(&mut reader, trace, record, &mut out);
        if let Some(failure) = failure.filter(|failure| failure.record == Some(number)) {
            failed(trace, failure, &mut out);
        }
    }
    if let Some(failure) = failure.filter(|failure| failure.record.is_none()) {
        failed(trace, failure, &mut out);
    }
    out
}

fn line(reader: &mut Reader, trace: &Trace, record: &Record, out: &mut String) {
    let sign = match record.what {
        What::Sent => '>',
        What::Delivered => '<',
        What::Struck(_, strike) if !strike.is_drop() => '!',
        What::Injected | What::Befell(_) => '!',
        _ => 'x',
    };
    begin(record.at, trace.host_name(record.host), sign, out);
    if let What::Befell(mishap) = record.what {
        let _ = writeln!(out, "[{mishap}]");
        return;
    }
    reader.describe(&record.bytes, record.marks, out);
    let _ = match record.what {
        What::Sent | What::Befell(_) => Ok(()),
        What::Injected => write!(out, "  [from {}]", if record.marks.contains(Marks::FORGED) { "an attacker" } else { "the router" }),
        What::Delivered => befallen(record.marks).map_or(Ok(()), |marks| write!(out, "  [{marks}]")),
        What::Refused(why) => write!(out, "  [{}]", refusal(why)),
        What::NoReceiver => write!(out, "  [no host has this MAC address]"),
        What::Struck(direction, strike) => write!(out, "  [{direction}: {strike}]"),
    };
    out.push('\n');
}

fn failed(trace: &Trace, failure: &Note, out: &mut String) {
    begin(failure.at, failure.host.map_or("", |host| trace.host_name(host)), '#', out);
    let _ = writeln!(out, "FAILED: {}", failure.text);
}

fn begin(at: Instant, host: &str, sign: char, out: &mut String) {
    let micros = at.as_nanos() / 1000;
    let _ = write!(out, "{:3}.{:06} {host:>8} {sign} ", micros / 1_000_000, micros % 1_000_000);
}
