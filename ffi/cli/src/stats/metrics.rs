//! Prometheus's text format (version 0.0.4) over HTTP: each scrape is a sample.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ringway_report::{ProcessReport, SocketReport};

use super::sources;
use super::view::Sample;

/// How long a scraper may take to say what it wants, and to take it.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest request that is read.
const REQUEST_MAX: usize = 8 << 10;
/// Scrapers that are answered at the same time; others are told to come again.
const AT_ONCE: usize = 16;
/// After an accept that failed (there may be no descriptor left).
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Answers until it is interrupted.
///
/// # Errors
/// The address cannot be listened on.
pub(super) fn serve(address: SocketAddr, pids: &[u32]) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("{address}"))?;
    println!("http://{}/metrics", listener.local_addr()?);
    let (pids, last) = (pids.to_vec(), Mutex::new(None));
    answer_all(&listener, usize::MAX, move || sampled(&pids, &mut last.lock().unwrap_or_else(PoisonError::into_inner)));
    Ok(())
}

/// The exposition. Whoever scrapes faster than the processes can afford gets what the last one got.
fn sampled(pids: &[u32], last: &mut Option<Sample>) -> Result<String> {
    let is_fresh = |sample: &Sample| sample.taken.elapsed() < super::pause(sample, super::INTERVAL_MIN);
    if !last.as_ref().is_some_and(is_fresh) {
        *last = Some(Sample { taken: Instant::now(), processes: sources::reports(pids)? });
    }
    Ok(last.as_ref().map_or_else(String::new, |sample| text(&sample.processes)))
}

/// Answers so many scrapers, each in a thread of its own, so that a slow one holds up nobody.
fn answer_all(listener: &TcpListener, scrapers: usize, text: impl Fn() -> Result<String> + Send + Sync + 'static) {
    let (busy, text) = (Arc::new(AtomicUsize::new(0)), Arc::new(text));
    for _ in 0..scrapers {
        let client = match listener.accept() {
            Ok((client, _)) => client,
            Err(_) => {
                thread::sleep(ACCEPT_AGAIN);
                continue;
            }
        };
        if busy.fetch_add(1, Ordering::Relaxed) >= AT_ONCE {
            busy.fetch_sub(1, Ordering::Relaxed);
            turn_away(&client);
            continue;
        }
        let (busy, text) = (Busy(Arc::clone(&busy)), Arc::clone(&text));
        // (One that goes away in the middle is not our concern.)
        let answering = move || {
            let _ = answer(client, || text());
            drop(busy);
        };
        // (Where there is no thread for it, it is dropped with all that it has.)
        let _ = thread::Builder::new().spawn(answering);
    }
}

/// One that is being answered, until this is dropped.
struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// In one write that waits for nothing.
fn turn_away(mut client: &TcpStream) {
    if client.set_nonblocking(true).is_ok() {
        let _ = client.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
}

fn answer(mut client: TcpStream, text: impl FnOnce() -> Result<String>) -> io::Result<()> {
    let mut request = Vec::new();
    let until = Instant::now() + PATIENCE;
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut piece = [0; 1024];
        client.set_read_timeout(Some(left(until)?))?;
        let count = client.read(&mut piece)?;
        request.extend_from_slice(&piece[..count]);
        if count == 0 || request.len() > REQUEST_MAX {
            return Ok(());
        }
    }
    let line = String::from_utf8_lossy(&request);
    let mut words = line.split_whitespace();
    let (status, body) = match (words.next(), words.next().map(|path| path.split('?').next().unwrap_or_default())) {
        (Some("GET"), Some("/metrics")) => {
            text().map_or_else(|error| ("503 Service Unavailable", format!("{error:#}\n")), |text| ("200 OK", text))
        }
        (Some("GET"), Some("/")) => ("200 OK", "see /metrics\n".to_owned()),
        (Some("GET"), _) => ("404 Not Found", "see /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "GET /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let (all, until) = (head + &body, Instant::now() + PATIENCE);
    let mut rest = all.as_bytes();
    while !rest.is_empty() {
        client.set_write_timeout(Some(left(until)?))?;
        rest = &rest[client.write(rest)?..];
    }
    Ok(())
}

/// The time that is left.
///
/// # Errors
/// There is none.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A metric of something: its name, whether it only grows, what it is, and how it is read.
type Metric<T> = (&'static str, Grows, &'static str, fn(&T) -> Option<f64>);

/// Whether a metric is a counter or a gauge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grows {
    Yes,
    No,
}

const RING: &[Metric<ProcessReport>] = &[
    ("ringway_ring_rx_frames_total", Grows::Yes, "Frames received.", |p| Some(p.ring.rx_packets as f64)),
    ("ringway_ring_rx_bytes_total", Grows::Yes, "Payload bytes received.", |p| Some(p.ring.rx_bytes as f64)),
    ("ringway_ring_rx_drops_total", Grows::Yes, "Received frames that were dropped.", |p| Some(p.ring.rx_drops as f64)),
    ("ringway_ring_tx_frames_total", Grows::Yes, "Frames sent.", |p| Some(p.ring.tx_packets as f64)),
    ("ringway_ring_tx_bytes_total", Grows::Yes, "Payload bytes sent.", |p| Some(p.ring.tx_bytes as f64)),
    ("ringway_ring_tx_drops_total", Grows::Yes, "Frames that the device did not take.", |p| Some(p.ring.tx_drops as f64)),
    ("ringway_ring_retransmissions_total", Grows::Yes, "TCP segments sent again.", |p| Some(p.ring.retransmissions as f64)),
    ("ringway_ring_to_kernel_total", Grows::Yes, "Connections that the kernel took over (TCP_REPAIR).", |p| Some(p.ring.to_kernel as f64)),
    ("ringway_ring_batches_total", Grows::Yes, "Looks at the completion queue that found something.", |p| Some(p.ring.batches as f64)),
    ("ringway_ring_sleeps_total", Grows::Yes, "Waits that slept.", |p| Some(p.ring.sleeps as f64)),
    ("ringway_ring_sockets", Grows::No, "Sockets of the ring, closed ones that linger included.", |p| Some(p.ring.sockets as f64)),
    ("ringway_ring_tx_buffers_used", Grows::No, "Send buffers in use.", |p| Some(p.ring.tx_buffers_used as f64)),
    ("ringway_peers", Grows::No, "Peers that frames can be sent to.", |p| p.device.as_ref().map(|d| d.peers.into())),
    ("ringway_sockets", Grows::No, "Open sockets.", |p| Some(p.sockets_total as f64)),
];

const SOCKET: &[Metric<SocketReport>] = &[
    ("ringway_socket_rx_packets_total", Grows::Yes, "Segments or datagrams received on the ring.", |s| Some(s.rx_packets as f64)),
    ("ringway_socket_rx_bytes_total", Grows::Yes, "Bytes received on the ring.", |s| Some(s.rx_bytes as f64)),
    ("ringway_socket_tx_packets_total", Grows::Yes, "Segments or datagrams sent on the ring.", |s| Some(s.tx_packets as f64)),
    ("ringway_socket_tx_bytes_total", Grows::Yes, "Bytes sent on the ring.", |s| Some(s.tx_bytes as f64)),
    ("ringway_socket_kernel_rx_bytes_total", Grows::Yes, "Bytes received through the kernel.", |s| Some(s.kernel_rx_bytes as f64)),
    ("ringway_socket_kernel_tx_bytes_total", Grows::Yes, "Bytes sent through the kernel.", |s| Some(s.kernel_tx_bytes as f64)),
    ("ringway_socket_rx_drops_total", Grows::Yes, "Datagrams dropped for want of room.", |s| Some(s.rx_drops as f64)),
    ("ringway_socket_retransmissions_total", Grows::Yes, "TCP segments sent again.", |s| Some(s.retransmissions as f64)),
    ("ringway_socket_offloaded", Grows::No, "Whether a ring carries it.", |s| Some(f64::from(u8::from(s.offloaded)))),
    ("ringway_socket_recv_queue", Grows::No, "Bytes (listener: connections) to be read.", |s| Some(s.recv_queue as f64)),
    ("ringway_socket_send_queue_bytes", Grows::No, "Bytes not acknowledged.", |s| Some(s.send_queue as f64)),
    ("ringway_socket_rtt_seconds", Grows::No, "The smoothed round-trip time.", |s| s.tcp.map(|tcp| tcp.rtt_us as f64 / 1e6)),
    ("ringway_socket_cwnd_bytes", Grows::No, "The congestion window.", |s| s.tcp.map(|tcp| tcp.cwnd as f64)),
];

/// The exposition.
fn text(processes: &[ProcessReport]) -> String {
    let mut out = String::new();
    for metric in RING {
        heading(&mut out, metric);
        for process in processes {
            sample(&mut out, metric, process, &labels(process));
        }
    }
    for metric in SOCKET {
        heading(&mut out, metric);
        for process in processes {
            for socket in &process.sockets {
                sample(&mut out, metric, socket, &format!("{},{}", labels(process), socket_labels(socket)));
            }
        }
    }
    out
}

fn heading<T>(out: &mut String, (name, grows, help, _): &Metric<T>) {
    let kind = if *grows == Grows::Yes { "counter" } else { "gauge" };
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn sample<T>(out: &mut String, (name, _, _, read): &Metric<T>, of: &T, labels: &str) {
    if let Some(value) = read(of) {
        let _ = writeln!(out, "{name}{{{labels}}} {value}");
    }
}

fn labels(process: &ProcessReport) -> String {
    let device = process.device.as_ref().map_or("kernel", |device| &device.kind);
    format!("pid=\"{}\",program=\"{}\",device=\"{}\"", process.pid, escape(&process.program), escape(device))
}

fn socket_labels(s: &SocketReport) -> String {
    let names = [("protocol", &s.protocol), ("state", &s.state), ("local", &s.local), ("remote", &s.remote)];
    let named = names.map(|(name, value)| format!("{name}=\"{}\"", escape(value)));
    format!("fd=\"{}\",{}", s.fd, named.join(","))
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::tests::processes;
    use super::*;

    #[test]
    fn the_exposition() {
        insta::assert_snapshot!(text(&processes(1)));
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escape("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }

    /// Answers so many scrapers with so many bytes.
    fn serving(scrapers: usize, bytes: usize) -> (SocketAddr, thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (address, thread::spawn(move || answer_all(&listener, scrapers, move || Ok("x".repeat(bytes)))))
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        client.read_to_string(&mut reply).unwrap();
        reply
    }

    #[test]
    fn scrapers_are_answered_over_http() {
        let (address, server) = serving(3, 5);
        let reply = ask(address, "GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("\r\n\r\nxxxxx"), "{reply}");
        assert!(ask(address, "GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(address, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        server.join().unwrap();
    }

    #[test]
    fn slow_scrapers_hold_up_nobody_and_not_for_ever() {
        // (More than the kernel keeps of what nobody reads.)
        let (address, server) = serving(AT_ONCE + 3, 24 << 20);
        let began = Instant::now();
        // Some that say nothing, and some that take nothing of what they asked for.
        let mut slow: Vec<TcpStream> = (1..AT_ONCE).map(|_| TcpStream::connect(address).unwrap()).collect();
        for client in &mut slow[..2] {
            client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        }
        assert!(ask(address, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        assert!(began.elapsed() < PATIENCE, "it waited for the others: {:?}", began.elapsed());
        let last = [TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap()];
        // All are busy now (or were, if this machine is slow); after that time nobody is.
        thread::sleep(2 * PATIENCE);
        assert!(ask(address, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        server.join().unwrap();
        drop((slow, last));
    }
}
