//! TCP_INFO: what the ring knows of a connection, as the bytes of struct tcp_info (linux/tcp.h). The ring counts in bytes where Linux counts segments, so
//! one that is not full counts as one. What the ring has no notion of is zero.

use core::time::Duration;

use ringway_stack::ring::FlowInfo;
use ringway_stack::tcp::{self, Details};

/// TCP_INFINITE_SSTHRESH.
const NO_SSTHRESH: u32 = 0x7fff_ffff;
/// Linux's tcp_reordering.
const REORDERING: u32 = 3;
/// struct tcp_info's length as of Linux 6.18.
const LEN: usize = 280;

/// The fields that have been written so far.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn bytes(&mut self, values: &[u8]) {
        self.0.extend(values);
    }

    fn words(&mut self, values: &[u32]) {
        values.iter().for_each(|value| self.0.extend(value.to_ne_bytes()));
    }

    fn longs(&mut self, values: &[u64]) {
        // (As C aligns them.)
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        values.iter().for_each(|value| self.0.extend(value.to_ne_bytes()));
    }
}

/// What TCP_INFO says of a connection, of a listener, or (`None`) of a socket that is neither.
pub(crate) fn tcp_info(info: Option<&FlowInfo>, details: Option<&Details>) -> Vec<u8> {
    let mut fields = Fields::default();
    if let (Some(info), Some(details)) = (info, details) {
        connection(&mut fields, info, details);
    } else {
        fields.bytes(&[info.and_then(|info| info.state).map_or(STATE_CLOSE, state)]);
    }
    fields.0.resize(LEN, 0);
    fields.0
}

fn connection(fields: &mut Fields, info: &FlowInfo, details: &Details) {
    let mss = usize::from(info.mss.max(1));
    let segments = |bytes: usize| word(bytes.div_ceil(mss) as u64);
    let retries = details.retries.min(255) as u8;
    let options = u8::from(details.timestamps)
        | u8::from(details.sack) << 1
        | u8::from(details.window_scales.is_some()) << 2
        | u8::from(details.syn_data) << 5;
    let scales = details.window_scales.map_or(0, |(peer, ours)| peer & 15 | ours << 4);
    let probes = details.probes.min(255) as u8;
    fields.bytes(&[
        info.state.map_or(STATE_CLOSE, state),
        details.congestion_state,
        retries,
        probes,
        retries,
        options,
        scales,
        u8::from(details.delivery_rate.1),
    ]);
    // rto, ato, snd_mss, rcv_mss; unacked, sacked, lost, retrans, fackets
    fields.words(&[micros(details.rto), 40_000, u32::from(info.mss), u32::from(info.mss)]);
    fields.words(&[segments(details.in_flight), segments(details.sacked), segments(details.lost), 0, 0]);
    // since data was sent, an acknowledgment (never known), data was received, an acknowledgment was
    let (sent, received) = (millis(details.silence.0), millis(details.silence.1));
    fields.words(&[sent, 0, received, received]);
    // pmtu, rcv_ssthresh, rtt, rttvar, snd_ssthresh, snd_cwnd, advmss, reordering
    let advertised = u32::from(details.mss_announced);
    let rcv_wnd = word(details.rcv_wnd as u64);
    fields.words(&[advertised + 40, rcv_wnd, micros(info.srtt), micros(details.rtt_var)]);
    fields.words(&[details.ssthresh.map_or(NO_SSTHRESH, segments), segments(info.cwnd), advertised, REORDERING]);
    // rcv_rtt, rcv_space, total_retrans
    fields.words(&[0, rcv_wnd, word(info.counters.retransmissions)]);
    let on_the_way = (info.send_queue - details.not_sent.min(info.send_queue)) as u64;
    let acknowledged = info.counters.tx_bytes.saturating_sub(info.counters.retransmitted_bytes).saturating_sub(on_the_way);
    // pacing_rate, max_pacing_rate, bytes_acked, bytes_received; segs_out, segs_in
    fields.longs(&[details.pacing_rate.unwrap_or(u64::MAX), u64::MAX, acknowledged, info.counters.rx_bytes]);
    fields.words(&[word(info.counters.tx_packets), word(info.counters.rx_packets)]);
    // notsent_bytes, min_rtt, data_segs_in, data_segs_out; delivery_rate, busy, rwnd_limited, sndbuf_limited; delivered, delivered_ce
    let rtt_min = details.rtt_min.map_or(u32::MAX, micros);
    fields.words(&[word(details.not_sent as u64), rtt_min, 0, 0]);
    fields.longs(&[details.delivery_rate.0, 0, 0, 0]);
    fields.words(&[word(details.delivered.div_ceil(mss as u64)), 0]);
    fields.longs(&[info.counters.tx_bytes, info.counters.retransmitted_bytes]);
    // dsack_dups, reord_seen, rcv_ooopack, snd_wnd, rcv_wnd
    fields.words(&[0, 0, 0, word(details.snd_wnd as u64), rcv_wnd]);
}

fn word(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

const STATE_CLOSE: u8 = 7;

/// The numbers of include/net/tcp_states.h.
const fn state(state: tcp::State) -> u8 {
    match state {
        tcp::State::Established => 1,
        tcp::State::SynSent => 2,
        tcp::State::SynReceived => 3,
        tcp::State::FinWait1 => 4,
        tcp::State::FinWait2 => 5,
        tcp::State::TimeWait => 6,
        tcp::State::Closed => STATE_CLOSE,
        tcp::State::CloseWait => 8,
        tcp::State::LastAck => 9,
        tcp::State::Listen => 10,
        tcp::State::Closing => 11,
    }
}
