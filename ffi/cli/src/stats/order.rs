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

/// Which sockets are shown: those that every word of it takes. `state=S`, `port=N` and `program=P` look at that; all other words together are
/// looked for in everything.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    /// As it was written.
    written: String,
    /// What is looked for in everything, in small letters, as what follows.
    text: String,
    /// A state's beginning.
    state: Option<String>,
    port: Option<u16>,
    /// A part of a program's name.
    program: Option<String>,
}

impl Filter {
    pub(super) fn new(written: &str) -> Self {
        let mut filter = Self { written: written.to_owned(), ..Self::default() };
        let mut rest = Vec::new();
        for word in written.to_lowercase().split_whitespace() {
            match word.split_once('=') {
                Some(("state", state)) => filter.state = Some(state.to_owned()),
                Some(("program", program)) => filter.program = Some(program.to_owned()),
                Some(("port", port)) if port.parse::<u16>().is_ok() => filter.port = port.parse().ok(),
                _ => rest.push(word.to_owned()),
            }
        }
        filter.text = rest.join(" ");
        filter
    }

    /// As it was written.
    pub(super) fn written(&self) -> &str {
        &self.written
    }

    /// Whether a process is shown at all.
    pub(super) fn takes_process(&self, process: &ProcessReport) -> bool {
        self.program.as_ref().is_none_or(|program| process.program.to_lowercase().contains(program))
    }

    /// Whether a socket is.
    pub(super) fn takes(&self, process: &ProcessReport, socket: &SocketReport) -> bool {
        let has_port = |address: &str| address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()) == self.port;
        self.takes_process(process)
            && self.state.as_ref().is_none_or(|state| socket.state.to_lowercase().starts_with(state))
            && (self.port.is_none() || has_port(&socket.local) || has_port(&socket.remote))
            && self.is_in_a_line(process, socket)
    }

    /// Whether a line with the socket has the text in it.
    fn is_in_a_line(&self, process: &ProcessReport, socket: &SocketReport) -> bool {
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
        self.text.is_empty() || words.iter().any(|word| word.to_lowercase().contains(&self.text))
    }
}

/// Sorts every process's sockets, and takes out those that are not to be shown.
pub(super) fn arrange(sample: &mut Sample, before: Option<&Sample>, key: Key, filter: &Filter) {
    sample.processes.retain(|process| filter.takes_process(process));
    for process in &mut sample.processes {
        let mut sockets = core::mem::take(&mut process.sockets);
        sockets.retain(|socket| filter.takes(process, socket));
        let earlier = before.and_then(|before| before.processes.iter().find(|earlier| earlier.pid == process.pid));
        let then = |fd: i32| earlier?.sockets.iter().find(|socket| socket.fd == fd);
        sockets.sort_by_cached_key(|socket| (Reverse(key.of(socket, then(socket.fd))), socket.fd));
        process.sockets = sockets;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::sample::{connection, socket};

    #[test]
    fn a_filter_names_what_it_looks_at() {
        let process = ProcessReport { program: "Redis-server".into(), pid: 70, ..Default::default() };
        let (listener, connected) = (socket(5, "tcp", "LISTEN"), connection(1));
        let taken = |filter: &str| [&listener, &connected].map(|socket| Filter::new(filter).takes(&process, socket));
        assert_eq!(taken(""), [true, true]);
        assert_eq!(taken("state=listen"), [true, false]);
        assert_eq!(taken("state=ESTAB port=7000"), [false, true]);
        assert_eq!(taken("port=40000"), [false, true]);
        assert_eq!(taken("port=4000"), [false, false], "no part of a port");
        assert_eq!(taken("4000"), [false, true]);
        assert_eq!(taken("program=redis port=7000"), [true, true]);
        assert_eq!(taken("program=nginx"), [false, false]);
        assert_eq!(taken("port=http"), [false, false]);
    }
}
