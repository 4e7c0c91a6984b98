//! How a window comes down after a loss: as the peer reports what arrives (RFC 9937), by as much as its controller wants.

use ringway_stack::ring::SendFlags;
use ringway_stack::tcp::congestion::Algorithm;

use super::bench::Bench;
use super::sending::{flight, parted, report, roomy};
use crate::segment::ACK;

/// RFC 9937 s6.2: while more is in flight than is wanted, of what arrives in a recovery as large a part goes again as the flight is to become of what it was,
/// and at the end the window is what is wanted: half of the flight (RFC 5681 s3.1), or seven tenths (RFC 9438 s4.6). The controller is what the program chose
/// last, which leaves the window as it is.
pub(super) fn proportional(bench: &mut Bench) {
    let mut peer = roomy(bench);
    if !peer.sack {
        return;
    }
    let full = peer.mss;
    let count = bench.between(16, 40) as u32;
    let una = flight(bench, &mut peer, u64::from(count));
    let (algorithm, tenths) = bench.pick(&[(Algorithm::Reno, 5), (Algorithm::Cubic, 7), (Algorithm::Dctcp, 5)]);
    let set = bench.ring.tcp_configure(bench.now, peer.id(), |config| config.congestion = algorithm);
    bench.must(set.is_ok(), format_args!("tcp(7), TCP_CONGESTION: {set:?}"));
    bench.silence("tcp(7), TCP_CONGESTION: another controller sends something");
    let waiting = bench.ring.info(peer.id()).map_or(0, |info| info.send_queue);
    bench.write(&peer, una.wrapping_sub(peer.irs) as usize - 1 + waiting, 60 * full as usize, SendFlags::empty());
    bench.silence("RFC 5681 s3.1: more than the congestion window lets go");
    // The first segment is lost; each of the others is reported as it arrives.
    let (mut out, mut begun, mut again) = (0, None, 0);
    for number in 1..count {
        let (start, end) = (una.wrapping_add(full), una.wrapping_add((number + 1) * full));
        let flight = peer.rcv.wrapping_sub(una);
        report(bench, &peer, una, &[(start, end)]);
        let heard = bench.take();
        again += parted(bench, &mut peer, &heard).len();
        if again > 0 && begun.is_none() {
            begun = Some((number, flight));
        }
        let Some((first, flight)) = begun else { continue };
        out += heard.iter().map(|segment| segment.len()).sum::<u32>();
        let wanted = flight * tenths / 10;
        let recover_flight = flight - (first - 1) * full;
        let arrived = (number + 1 - first) * full;
        let proportion = (u64::from(arrived) * u64::from(wanted)).div_ceil(u64::from(recover_flight)) as u32;
        let in_flight = peer.rcv.wrapping_sub(una) - number * full;
        bench.must(
            out <= proportion + full || in_flight <= wanted + full,
            format_args!(
                "RFC 9937 s6.2: {out} bytes sent for {arrived} in a recovery of {flight} with {algorithm:?}, and {proportion} may be"
            ),
        );
    }
    let Some((_, flight)) = begun else { return bench.must(false, "RFC 6675 s5: nothing is sent again") };
    bench.must(again == 1, format_args!("RFC 6675 s5: {again} segments sent again, and one was lost"));
    let wanted = flight * tenths / 10;
    let law = "RFC 9937 s6.2: what is in flight at the end of a recovery";
    let in_flight = peer.rcv.wrapping_sub(una) - (count - 1) * full;
    bench.must(in_flight.abs_diff(wanted) <= 2 * full, format_args!("{law}: {in_flight} of {flight}, and {wanted} are wanted"));
    bench.give(&peer, peer.nxt, una.wrapping_add(flight), ACK, 0);
    bench.take();
    let told = bench.ring.info(peer.id()).map_or(0, |info| info.cwnd) as u32;
    bench.must(told.abs_diff(wanted) <= full, format_args!("RFC 9937 s6.4: a window of {told} after a recovery, and {wanted} are wanted"));
    bench.ring.close(bench.now, peer.id(), true);
}
