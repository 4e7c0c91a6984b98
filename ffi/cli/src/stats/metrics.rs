//! Prometheus's text format (version 0.0.4) over HTTP: each scrape is a sample.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ringway_report::{ProcessReport, SocketReport};

use super::sources;
use super::view::Sample;

/// How long a scraper may take to say what it wants, or to take it.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest request that is read.
const REQUEST_MAX: usize = 8 << 10;

/// Answers until it is interrupted.
///
/// # Errors
/// The address cannot be listened on.
pub(super) fn serve(address: SocketAddr, pids: &[u32]) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("{address}"))?;
    println!("http://{}/metrics", listener.local_addr()?);
    let mut last: Option<Sample> = None;
    for client in listener.incoming().flatten() {
        // Whoever scrapes faster than the processes can afford gets what the last one got.
        let is_fresh = |sample: &Sample| sample.taken.elapsed() < super::pause(sample, super::INTERVAL_MIN);
        let text = |last: &mut Option<Sample>| -> Result<String> {
            if !last.as_ref().is_some_and(is_fresh) {
                *last = Some(Sample { taken: Instant::now(), processes: sources::reports(pids)? });
            }
            Ok(last.as_ref().map_or_else(String::new, |sample| text(&sample.processes)))
        };
        // (One that goes away in the middle is not our concern.)
        let _ = answer(client, || text(&mut last));
    }
    Ok(())
}

fn answer(mut client: TcpStream, text: impl FnOnce() -> Result<String>) -> std::io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let began = Instant::now();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut piece = [0; 1024];
        let count = client.read(&mut piece)?;
        request.extend_from_slice(&piece[..count]);
        if count == 0 || request.len() > REQUEST_MAX || began.elapsed() > PATIENCE {
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
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
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
    ("ringway_ring_batches_total", Grows::Yes, "Looks at the completion queue that found something.", |p| Some(p.ring.batches as f64)),
    ("ringway_ring_sleeps_total", Grows::Yes, "Waits that slept.", |p| Some(p.ring.sleeps as f64)),
    ("ringway_ring_sockets", Grows::No, "Sockets of the ring, closed ones that linger included.", |p| Some(p.ring.sockets as f64)),
    ("ringway_ring_tx_buffers_used", Grows::No, "Send buffers in use.", |p| Some(p.ring.tx_buffers_used as f64)),
    ("ringway_peers", Grows::No, "Stations that frames can be sent to.", |p| p.device.as_ref().map(|d| d.peers.into())),
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

    #[test]
    fn scrapers_are_answered_over_http() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for client in listener.incoming().take(3).flatten() {
                let _ = answer(client, || Ok("ringway_peers 1\n".to_owned()));
            }
        });
        let ask = |request: &str| {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(request.as_bytes()).unwrap();
            let mut reply = String::new();
            client.read_to_string(&mut reply).unwrap();
            reply
        };
        let reply = ask("GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("\r\n\r\nringway_peers 1\n"), "{reply}");
        assert!(ask("GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        server.join().unwrap();
    }
}
