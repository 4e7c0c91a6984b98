//! Sockets as `ss` writes them (ss(8)): a line each, and one more of what TCP knows.

use std::fmt::Write as _;
use std::net::SocketAddr;

use ringway_cli::columns::{self, Column};
use ringway_report::{SocketReport, TcpReport};

use super::{Options, Owned};

/// The lines of these sockets.
pub(super) fn lines(sockets: &[Owned], options: &Options) -> String {
    let is_shown = |column: &Column| match column.names[0] {
        // (What all have in common is not said.)
        NETID => options.tcp == options.udp,
        PROCESS => options.processes,
        TIMER => options.options || options.info,
        _ => true,
    };
    let columns: Vec<Column> = COLUMNS.into_iter().filter(is_shown).collect();
    let row = |owned: &Owned| columns.iter().map(|column| cell(column.names[0], owned)).collect();
    let fitted = columns::fit(&columns, sockets.iter().map(row).collect(), usize::MAX, GAP);
    let table = columns::lines(&columns, &fitted, GAP);
    let mut text = String::new();
    for (line, socket) in table.lines().zip([None].into_iter().chain(sockets.iter().map(Some))) {
        if socket.is_none() && options.no_header {
            continue;
        }
        text += line;
        text += "\n";
        if let Some(owned) = socket.filter(|_| options.info) {
            let words = details(&owned.socket);
            if !words.is_empty() {
                let _ = writeln!(text, "\t {}", words.join(" "));
            }
        }
    }
    text
}

const GAP: usize = 2;
const NETID: &str = "Netid";
const STATE: &str = "State";
const RECV_QUEUE: &str = "Recv-Q";
const SEND_QUEUE: &str = "Send-Q";
const LOCAL: &str = "Local Address:Port";
const PEER: &str = "Peer Address:Port";
const DEVICE: &str = "Device";
const PROCESS: &str = "Process";
const TIMER: &str = "Timer";

const COLUMNS: [Column; 9] = [
    Column::text(NETID, NETID, 5),
    Column::text(STATE, STATE, 5),
    Column::number(RECV_QUEUE, RECV_QUEUE),
    Column::number(SEND_QUEUE, SEND_QUEUE),
    Column::address(LOCAL),
    Column::address(PEER),
    Column::text(DEVICE, DEVICE, 3),
    Column::text(PROCESS, PROCESS, 7),
    Column::text(TIMER, TIMER, 5),
];

fn cell(column: &str, owned: &Owned) -> String {
    let Owned { pid, program, socket } = owned;
    let shown = Shown::of(socket);
    match column {
        NETID => socket.protocol.clone(),
        STATE => shown.state().to_owned(),
        RECV_QUEUE => (socket.recv_queue + socket.kernel_recv_queue).to_string(),
        // (Of a listener: how many may wait.)
        SEND_QUEUE if shown.state() == LISTEN => socket.backlog.to_string(),
        SEND_QUEUE => (socket.send_queue + socket.kernel_send_queue).to_string(),
        LOCAL => address(&socket.local, None),
        PEER => address(&socket.remote, shown.family()),
        DEVICE => socket.device.clone(),
        PROCESS if socket.fd < 0 => format!("users:((\"{program}\",pid={pid}))"),
        PROCESS => format!("users:((\"{program}\",pid={pid},fd={}))", socket.fd),
        _ => timer(socket),
    }
}

/// An address, with a star for what is not there.
fn address(text: &str, family: Option<Family>) -> String {
    match (text, family) {
        ("", Some(Family::V4)) => "0.0.0.0:*".to_owned(),
        ("", Some(Family::V6)) => "[::]:*".to_owned(),
        ("", None) => "*:*".to_owned(),
        _ => text.strip_suffix(":0").map_or_else(|| text.to_owned(), |ip| format!("{ip}:*")),
    }
}

fn timer(socket: &SocketReport) -> String {
    let Some((tcp, timer)) = tcp(socket).and_then(|tcp| Some((tcp, tcp.timer?))) else { return String::new() };
    format!("timer:({},{},{})", timer.kind.name(), time(timer.left_us / 1000), tcp.retries.max(tcp.probes))
}

/// A time in milliseconds, as short as says enough.
fn time(ms: u64) -> String {
    let (minutes, seconds) = (ms / 60_000, ms / 1000 % 60);
    match (minutes, seconds) {
        (0, 0) => format!("{ms}ms"),
        (0, 0..10) => format!("{}.{:03}sec", seconds, ms % 1000),
        (0, _) => format!("{seconds}sec"),
        (0..10, _) => format!("{minutes}min{seconds}sec"),
        _ => format!("{minutes}min"),
    }
}

/// What TCP knows, on whichever side the connection is.
fn tcp(socket: &SocketReport) -> Option<&TcpReport> {
    socket.tcp.as_ref().or(socket.kernel_tcp.as_ref())
}

/// What `ss -i` says of a connection, in its words; what is zero is left out, as there.
fn details(socket: &SocketReport) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(tcp) = tcp(socket) {
        words.extend(tcp.timestamps.then(|| "ts".to_owned()));
        words.extend(tcp.sack.then(|| "sack".to_owned()));
        words.extend(tcp.window_scales.map(|(peer, ours)| format!("wscale:{peer},{ours}")));
        words.push(format!("rto:{}", millis(tcp.rto_us)));
        if tcp.rtt_us != 0 {
            words.push(format!("rtt:{}/{}", millis(tcp.rtt_us), millis(tcp.rtt_var_us)));
        }
        let segments = |bytes: u64| bytes.div_ceil(tcp.mss.max(1));
        words.push(format!("mss:{} cwnd:{}", tcp.mss, segments(tcp.cwnd)));
        words.extend(tcp.ssthresh.map(|ssthresh| format!("ssthresh:{}", segments(ssthresh))));
    }
    let is_kernels = socket.tcp.is_none() && socket.kernel_tcp.is_some();
    let tcp = tcp(socket).copied().unwrap_or_default();
    let counts = [
        ("bytes_sent", if is_kernels { socket.kernel_tx_bytes } else { socket.tx_bytes }),
        ("bytes_retrans", tcp.retransmitted_bytes),
        ("bytes_acked", tcp.acked_bytes),
        ("bytes_received", if is_kernels { socket.kernel_rx_bytes } else { socket.rx_bytes }),
        ("segs_out", socket.tx_packets),
        ("segs_in", socket.rx_packets),
        ("lastsnd", tcp.since_sent_ms),
        ("lastrcv", tcp.since_received_ms),
        ("unacked", tcp.in_flight.div_ceil(tcp.mss.max(1))),
    ];
    words.extend(counts.into_iter().filter(|(_, count)| *count != 0).map(|(name, count)| format!("{name}:{count}")));
    if tcp.retries != 0 || tcp.retransmissions != 0 {
        words.push(format!("retrans:{}/{}", tcp.retries, tcp.retransmissions));
    }
    let windows = [("notsent", tcp.not_sent), ("snd_wnd", tcp.snd_wnd), ("rcv_wnd", tcp.rcv_wnd), ("drops", socket.rx_drops)];
    words.extend(windows.into_iter().filter(|(_, count)| *count != 0).map(|(name, count)| format!("{name}:{count}")));
    words.extend(tcp.recovering.then(|| "recovering".to_owned()));
    words.extend(socket.reason.as_ref().map(|reason| format!("reason:{reason}")));
    words
}

/// Microseconds as milliseconds, with no more figures than there are.
fn millis(us: u64) -> String {
    let text = format!("{}.{:03}", us / 1000, us % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// An address's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

const LISTEN: &str = "LISTEN";
const ESTABLISHED: &str = "ESTAB";
const UNCONNECTED: &str = "UNCONN";

/// A socket, as `ss` sees it.
pub(super) struct Shown<'a>(&'a SocketReport);

impl<'a> Shown<'a> {
    pub(super) const fn of(socket: &'a SocketReport) -> Self {
        Self(socket)
    }

    /// Its state in the words of `ss`.
    fn state(&self) -> &'a str {
        match &*self.0.state {
            "" if self.0.remote.is_empty() || self.0.protocol == "tcp" => UNCONNECTED,
            "" | "ESTABLISHED" => ESTABLISHED,
            "SYN-RECEIVED" => "SYN-RECV",
            "CLOSED" => UNCONNECTED,
            state => state,
        }
    }

    /// Whether a person means its state by this: in the words of `ss` or of RFC 9293, or by their beginning.
    pub(super) fn is_in(&self, meant: &str) -> bool {
        let meant = meant.to_uppercase();
        let begins = |state: &str| state.starts_with(&meant);
        begins(self.state()) || begins(&self.0.state) || (meant == "LISTENING" && self.state() == LISTEN)
    }

    /// What `ss -l` shows.
    pub(super) fn listens(&self) -> bool {
        self.is_bound() && matches!(self.state(), LISTEN | UNCONNECTED)
    }

    /// What `ss` shows if nobody says otherwise.
    pub(super) fn is_connected(&self) -> bool {
        !matches!(self.state(), LISTEN | UNCONNECTED | "TIME-WAIT" | "SYN-RECV")
    }

    fn is_bound(&self) -> bool {
        !self.0.local.is_empty()
    }

    /// `None`: it has no address yet.
    pub(super) fn family(&self) -> Option<Family> {
        let of = |text: &str| text.parse().ok().map(|address: SocketAddr| if address.is_ipv4() { Family::V4 } else { Family::V6 });
        of(&self.0.local).or_else(|| of(&self.0.remote))
    }

    /// At either end.
    pub(super) fn has_port(&self, port: u16) -> bool {
        [&self.0.local, &self.0.remote].iter().any(|text| text.parse().is_ok_and(|address: SocketAddr| address.port() == port))
    }
}
