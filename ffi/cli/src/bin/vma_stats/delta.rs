//! What happened between two reports of a process.

use ringway_report::{ProcessReport, RingReport, SocketReport, WaitReport};

/// Subtracts each counter, and divides by the seconds; levels (queues, addresses, states) are as they are now. What is new counts from nothing.
pub(crate) fn between(before: &ProcessReport, now: &ProcessReport, seconds: f64) -> ProcessReport {
    let seconds = if seconds > 0.0 { seconds } else { 1.0 };
    let mut delta = now.clone();
    ring(&mut delta.ring, &before.ring, seconds);
    for socket in &mut delta.sockets {
        if let Some(earlier) = before.sockets.iter().find(|earlier| is_same(earlier, socket)) {
            of_socket(socket, earlier, seconds);
        } else {
            of_socket(socket, &SocketReport::default(), seconds);
        }
    }
    for wait in &mut delta.waits {
        let earlier = before.waits.iter().find(|earlier| (&earlier.kind, earlier.fd) == (&wait.kind, wait.fd));
        of_wait(wait, earlier.unwrap_or(&WaitReport::default()), seconds);
    }
    delta
}

/// A number may have come to mean another socket meanwhile.
fn is_same(earlier: &SocketReport, now: &SocketReport) -> bool {
    let name = |s: &SocketReport| (s.fd, s.protocol.clone());
    name(earlier) == name(now) && (earlier.local == now.local || earlier.local.is_empty()) && earlier.rx_packets <= now.rx_packets
}

macro_rules! subtract {
    ($now:expr, $before:expr, $seconds:expr, $($field:ident)*) => {
        $($now.$field = (($now.$field.saturating_sub($before.$field)) as f64 / $seconds).round() as u64;)*
    };
}

fn of_socket(now: &mut SocketReport, before: &SocketReport, seconds: f64) {
    subtract!(now, before, seconds,
        rx_packets rx_bytes tx_packets tx_bytes kernel_rx_packets kernel_tx_packets kernel_rx_bytes kernel_tx_bytes retransmissions
        rx_eagains rx_errors tx_eagains tx_errors tx_dummies kernel_rx_eagains kernel_rx_errors kernel_tx_eagains kernel_tx_errors
        rx_drops rx_drop_bytes rx_poll_hits rx_poll_misses rx_ring_migrations tx_ring_migrations);
}

fn ring(now: &mut RingReport, before: &RingReport, seconds: f64) {
    subtract!(now, before, seconds,
        rx_packets rx_bytes rx_drops tx_packets tx_bytes tx_drops retransmissions copied_bytes polls sleeps lock_contended core_claims core_claims_refused migrations to_kernel
        batches);
}

fn of_wait(now: &mut WaitReport, before: &WaitReport, seconds: f64) {
    subtract!(now, before, seconds, ready timeouts errors poll_hits poll_misses);
}
