//! In which order sockets are shown, and which of them.

use std::cmp::Reverse;

use clap::ValueEnum;
use ringway_report::{ProcessReport, SocketReport};

use super::view::Sample;

/// What sockets are sorted by; numbers from the largest down, descriptors up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Key {
    /// The descriptor.
    Fd,
    /// Bytes received (a second, where there are two samples).
    Rx,
    /// Bytes sent.
    Tx,
    /// The round-trip time.
    Rtt,
    /// The congestion window.
    Cwnd,
    /// Segments sent again.
    Retrans,
    /// What waits to be read.
    RecvQ,
    /// What waits to be acknowledged.
    SendQ,
}

impl Key {
    pub(super) const ALL: [Self; 8] = [Self::Fd, Self::Rx, Self::Tx, Self::Rtt, Self::Cwnd, Self::Retrans, Self::RecvQ, Self::SendQ];

    /// The next one, in a circle.
    pub(super) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|&key| key == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// As its column is called.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Fd => "fd",
            Self::Rx => "rx",
            Self::Tx => "tx",
            Self::Rtt => "rtt",
            Self::Cwnd => "cwnd",
            Self::Retrans => "retrans",
            Self::RecvQ => "recv-q",
            Self::SendQ => "send-q",
        }
    }

    fn of(self, socket: &SocketReport, before: Option<&SocketReport>) -> u64 {
        let since = |now: u64, then: fn(&SocketReport) -> u64| now.saturating_sub(before.map_or(0, then));
        let tcp = socket.tcp.unwrap_or_default();
        match self {
            Self::Fd => 0,
            Self::Rx => since(socket.rx_bytes, |s| s.rx_bytes),
            Self::Tx => since(socket.tx_bytes, |s| s.tx_bytes),
            Self::Rtt => tcp.rtt_us,
            Self::Cwnd => tcp.cwnd,
            Self::Retrans => socket.retransmissions,
            Self::RecvQ => socket.recv_queue,
            Self::SendQ => socket.send_queue,
        }
    }
}

/// Which sockets are shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    /// In small letters.
    text: String,
}

impl Filter {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.to_lowercase() }
    }

    /// What it looks for.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a line with the socket has the text in it.
    pub(super) fn takes(&self, process: &ProcessReport, socket: &SocketReport) -> bool {
        if self.text.is_empty() {
            return true;
        }
        let carried = if socket.offloaded { "ring" } else { "kernel" };
        let words = [
            &process.program,
            &process.pid.to_string(),
            &socket.fd.to_string(),
            &socket.protocol,
            &socket.state,
            &socket.local,
            &socket.remote,
            carried,
            socket.reason.as_deref().unwrap_or_default(),
        ];
        words.iter().any(|word| word.to_lowercase().contains(&self.text))
    }
}

/// Sorts every process's sockets, and takes out those that are not to be shown.
pub(super) fn arrange(sample: &mut Sample, before: Option<&Sample>, key: Key, filter: &Filter) {
    for process in &mut sample.processes {
        let mut sockets = core::mem::take(&mut process.sockets);
        sockets.retain(|socket| filter.takes(process, socket));
        let earlier = before.and_then(|before| before.processes.iter().find(|earlier| earlier.pid == process.pid));
        let then = |fd: i32| earlier?.sockets.iter().find(|socket| socket.fd == fd);
        sockets.sort_by_cached_key(|socket| (Reverse(key.of(socket, then(socket.fd))), socket.fd));
        process.sockets = sockets;
    }
}
