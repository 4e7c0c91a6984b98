//! Traces as text: one line an event, in tcpdump's manner.

use core::fmt::Write;

use super::segment::Reader;
use super::{Record, Trace, What, befallen, refusal};
use crate::fabric::Marks;

/// Renders a kept trace, an event a line.
///
/// `>` a host sent it, `<` a host received it, `x` it was dropped, `!` a link did something else to it.
pub fn render(trace: &Trace) -> String {
    let mut reader = Reader::default();
    let mut out = String::new();
    for record in trace.records() {
        line(&mut reader, trace, record, &mut out);
    }
    out
}

fn line(reader: &mut Reader, trace: &Trace, record: &Record, out: &mut String) {
    let micros = record.at.as_nanos() / 1000;
    let host = trace.host_name(record.host);
    let sign = match record.what {
        What::Sent => '>',
        What::Delivered => '<',
        What::Struck(_, strike) if !strike.is_drop() => '!',
        What::Injected | What::Befell(_) => '!',
        _ => 'x',
    };
    let _ = write!(out, "{:3}.{:06} {host:>8} {sign} ", micros / 1_000_000, micros % 1_000_000);
    if let What::Befell(mishap) = record.what {
        let _ = writeln!(out, "[{mishap}]");
        return;
    }
    reader.describe(&record.bytes, out);
    let _ = match record.what {
        What::Sent | What::Befell(_) => Ok(()),
        What::Injected => write!(out, "  [from {}]", if record.marks.contains(Marks::FORGED) { "an attacker" } else { "the router" }),
        What::Delivered => befallen(record.marks).map_or(Ok(()), |marks| write!(out, "  [{marks}]")),
        What::Refused(why) => write!(out, "  [{}]", refusal(why)),
        What::NoStation => write!(out, "  [no such station]"),
        What::Struck(direction, strike) => write!(out, "  [{direction}: {strike}]"),
    };
    out.push('\n');
}
