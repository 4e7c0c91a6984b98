//! TCP_INFO: what the ring knows of a connection, in the words of struct tcp_info (linux/tcp.h).
//!
//! The ring counts in bytes where the kernel counts segments, so that a segment which is not full counts as one; and the times since data
//! was sent and received are since any segment was. What the ring has no
//! notion of (ECN, reordering, times at which a window or a buffer was the limit) is zero, or what the kernel says
//! where it has none.

use core::time::Duration;

use ringway_stack::ring::FlowId;
use ringway_stack::{Instant, tcp};

use crate::process::Offload;

/// struct tcp_info as of Linux 6.6; a program with an older one takes its beginning.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct TcpInfo {
    state: u8,
    ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    options: u8,
    /// The peer's in the lower half, ours in the upper.
    window_scales: u8,
    /// The lowest bit: the program limited the delivery rate.
    flags: u8,
    /// Times in microseconds, those of what was last sent and received in milliseconds.
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
    rcv_ooopack: u32,
    snd_wnd: u32,
    rcv_wnd: u32,
    rehash: u32,
}

const STATE_CLOSE: u8 = 7;
/// TCP_INFINITE_SSTHRESH.
const NO_SSTHRESH: u32 = 0x7fff_ffff;
/// What Linux says of the shortest round trip before there was one.
const NO_RTT: u32 = u32::MAX;
/// Linux's tcp_reordering.
const REORDERING: u32 = 3;

/// What TCP_INFO says of a connection.
pub(super) fn tcp_info(offload: &Offload, now: Instant, id: FlowId) -> TcpInfo {
    // SAFETY: all of it is integers, for which zero is a value.
    let mut raw: TcpInfo = unsafe { core::mem::zeroed() };
    raw.state = STATE_CLOSE;
    let (Some(info), Some(details)) = (offload.rings.of(id).info(id), offload.rings.of(id).tcp_details(now, id)) else { return raw };
    let mss = usize::from(info.mss.max(1));
    let segments = |bytes: usize| clamp(bytes.div_ceil(mss) as u64);
    raw.state = info.state.map_or(STATE_CLOSE, linux_state);
    raw.ca_state = details.congestion_state;
    raw.retransmits = details.retries.min(255) as u8;
    raw.probes = details.probes.min(255) as u8;
    raw.backoff = raw.retransmits;
    let scales = details.window_scales.is_some();
    raw.options = u8::from(details.timestamps) | u8::from(details.sack) << 1 | u8::from(scales) << 2 | u8::from(details.ecn) << 3;
    raw.window_scales = details.window_scales.map_or(0, |(peer, ours)| peer & 15 | ours << 4);
    raw.rto = micros(details.rto);
    raw.ato = ACK_TIMEOUT_US;
    raw.snd_mss = u32::from(info.mss);
    raw.rcv_mss = u32::from(info.mss);
    raw.advmss = u32::from(details.mss_announced);
    raw.pmtu = u32::from(details.mss_announced) + 40;
    raw.unacked = segments(details.in_flight);
    (raw.sacked, raw.lost) = (segments(details.sacked), segments(details.lost));
    (raw.delivery_rate, raw.flags) = (details.delivery_rate.0, u8::from(details.delivery_rate.1));
    raw.delivered = clamp(details.delivered.div_ceil(mss as u64));
    raw.total_retrans = clamp(info.counters.retransmissions);
    (raw.last_data_sent, raw.last_data_recv) = (millis(details.silence.0), millis(details.silence.1));
    raw.last_ack_recv = raw.last_data_recv;
    (raw.rtt, raw.rttvar) = (micros(info.srtt), micros(details.rtt_var));
    (raw.rcv_rtt, raw.min_rtt) = (0, details.rtt_min.map_or(NO_RTT, micros));
    raw.snd_ssthresh = details.ssthresh.map_or(NO_SSTHRESH, segments);
    raw.snd_cwnd = segments(info.cwnd);
    raw.reordering = REORDERING;
    (raw.rcv_space, raw.rcv_ssthresh) = (clamp(details.rcv_wnd as u64), clamp(details.rcv_wnd as u64));
    (raw.pacing_rate, raw.max_pacing_rate) = (details.pacing_rate.unwrap_or(u64::MAX), u64::MAX);
    raw.bytes_sent = info.counters.tx_bytes;
    raw.bytes_retrans = info.counters.retransmitted_bytes;
    let on_the_way = (info.send_queue - details.not_sent.min(info.send_queue)) as u64;
    raw.bytes_acked = raw.bytes_sent.saturating_sub(raw.bytes_retrans).saturating_sub(on_the_way);
    raw.bytes_received = info.counters.rx_bytes;
    (raw.segs_out, raw.segs_in) = (clamp(info.counters.tx_packets), clamp(info.counters.rx_packets));
    raw.notsent_bytes = clamp(details.not_sent as u64);
    (raw.snd_wnd, raw.rcv_wnd) = (clamp(details.snd_wnd as u64), clamp(details.rcv_wnd as u64));
    raw
}

/// The longest that an acknowledgment waits (Linux's TCP_DELACK_MIN).
const ACK_TIMEOUT_US: u32 = 40_000;

fn clamp(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// The numbers of include/net/tcp_states.h.
const fn linux_state(state: tcp::State) -> u8 {
    match state {
        tcp::State::Established => 1,
        tcp::State::SynSent => 2,
        tcp::State::SynReceived => 3,
        tcp::State::FinWait1 => 4,
        tcp::State::FinWait2 => 5,
        // A TIME-WAIT goes on without the socket, which is closed (tcp_time_wait).
        tcp::State::TimeWait | tcp::State::Closed => STATE_CLOSE,
        tcp::State::CloseWait => 8,
        tcp::State::LastAck => 9,
        tcp::State::Listen => 10,
        tcp::State::Closing => 11,
    }
}
