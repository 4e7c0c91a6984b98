//! Two machines on one wire, and programs on them that are polled only when they were woken.

use core::cell::Cell;
use core::future::Future;
use core::time::Duration;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::messages::{Memory as _, Messages};
use ringway_stack::roce::{Node, NodeConfig};
use ringway_stack::rsocket::{OptionName, OptionValue, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Net, RsocketListener, RsocketStream};
use crate::tests::Program;

type Machine = Node<Vec<u8>>;

struct Pair {
    nets: [Net<Machine>; 2],
    clock: Rc<Cell<Instant>>,
}

const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const AT: SocketAddr = SocketAddr::new(B, 7471);

impl Pair {
    fn new() -> Self {
        let clock = Rc::new(Cell::new(Instant::ZERO));
        let nets = [(A, 1), (B, 2)].map(|(address, seed)| {
            let clock = Rc::clone(&clock);
            Net::new(Node::new(NodeConfig::new(address), seed), Settings::default(), move || clock.get())
        });
        Self { nets, clock }
    }

    /// Carries packets. Whether there were any, or tasks to wake.
    fn poll(&self) -> bool {
        let (now, mut packet, mut is_busy) = (self.clock.get(), vec![0; Machine::PACKET_MAX], false);
        for (from, to) in [(0, 1), (1, 0)] {
            while let Some(len) = self.nets[from].with_device(|node| node.poll_transmit(now, &mut packet)) {
                self.nets[to].with_device(|node| node.on_packet(now, &packet[..len]));
                is_busy = true;
            }
        }
        self.nets.iter().map(Net::poll).sum::<usize>() > 0 || is_busy
    }

    /// Jumps to the next deadline. `false`: there is none.
    fn jump(&self) -> bool {
        let deadlines = self.nets.iter().flat_map(|net| [net.next_deadline(), net.with_device(|node| node.deadline())]);
        let Some(at) = deadlines.flatten().min() else { return false };
        self.clock.set(at.max(self.clock.get()));
        self.nets.iter().for_each(|net| net.with_device(|node| node.on_timer(self.clock.get())));
        true
    }

    /// Runs both programs to their end.
    fn run<T, U>(&self, a: impl Future<Output = T>, b: impl Future<Output = U>) -> (T, U) {
        let (mut a, mut b) = (Program::new(a), Program::new(b));
        for _ in 0..1_000_000 {
            let is_stepped = a.step() | b.step();
            if a.result.is_some() && b.result.is_some() {
                break;
            }
            assert!(is_stepped | self.poll() || self.jump(), "everybody waits, and nothing will happen");
        }
        (a.result.expect("the first program ends"), b.result.expect("the second program ends"))
    }
}

#[test]
fn streams_read_and_write_as_tokios_do() {
    let pair = Pair::new();
    let sent: Vec<u8> = (0..300_000u32).map(|i| (i ^ i >> 8) as u8).collect();
    let client = async {
        let mut stream = RsocketStream::connect(&pair.nets[0], AT, &[]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), AT);
        stream.write_all(&sent).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut some = [0; 2];
        assert_eq!((stream.peek(&mut some).await.unwrap(), &some), (2, b"do"));
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let server = async {
        let listener = RsocketListener::bind(&pair.nets[1], AT, &[]).await.unwrap();
        assert_eq!(listener.local_addr().unwrap(), AT);
        let (mut stream, from) = listener.accept().await.unwrap();
        assert_eq!(from.ip(), A);
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        stream.write_all(b"done").await.unwrap();
        got
    };
    let (answer, got) = pair.run(client, server);
    assert!(got == sent && answer == "done");
}

#[test]
fn a_server_that_is_not_there_refuses() {
    let pair = Pair::new();
    let client = async { RsocketStream::connect(&pair.nets[0], AT, &[]).await.unwrap_err().kind() };
    assert_eq!(pair.run(client, async {}).0, ErrorKind::ConnectionRefused);
    let nowhere = async { RsocketStream::connect(&pair.nets[0], "[::1]:5".parse::<SocketAddr>().unwrap(), &[]).await.unwrap_err().kind() };
    assert_eq!(pair.run(nowhere, async {}).0, ErrorKind::HostUnreachable);
}

#[test]
fn direct_writes_are_there_before_what_follows() {
    let pair = Pair::new();
    let client = async {
        let options = [(OptionName::IomapSize, OptionValue::Number(1))];
        let mut stream = RsocketStream::connect(&pair.nets[0], AT, &options).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 1);
        assert_eq!(stream.write_at(b"direct", 70).await.unwrap(), 6);
        stream.write_u8(2).await.unwrap();
        // Until the peer has ended it.
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    };
    let server = async {
        let listener = RsocketListener::bind(&pair.nets[1], AT, &[]).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let mapping = stream.map(vec![0; 100], Some(50)).unwrap();
        stream.write_u8(1).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 2);
        let mut bytes = [0; 6];
        pair.nets[1].with_device(|node| Messages::memory(node, mapping.region.key).unwrap().read(20, &mut bytes));
        assert_eq!(&bytes, b"direct");
        assert_eq!(stream.unmap(&mapping).unwrap().len(), 100);
    };
    pair.run(client, server);
}

#[test]
fn a_future_that_is_dropped_loses_nothing() {
    let pair = Pair::new();
    let client = async {
        let stream = RsocketStream::connect(&pair.nets[0], AT, &[]).await.unwrap();
        let mut some = [0; 4];
        // It is polled once, and dropped.
        tokio::select! {
            biased;
            _ = stream.peek(&mut some) => panic!("nothing has come"),
            () = async {} => {}
        }
        let mut stream = stream;
        stream.write_all(b"go").await.unwrap();
        stream.read_exact(&mut some).await.unwrap();
        some
    };
    let server = async {
        let listener = RsocketListener::bind(&pair.nets[1], AT, &[]).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 2]).await.unwrap();
        stream.write_all(b"gone").await.unwrap();
    };
    assert_eq!(&pair.run(client, server).0, b"gone");
    // What was closed ends, and its peer's reads with it.
    let end = pair.clock.get() + Duration::from_secs(60);
    while pair.poll() || pair.clock.get() < end && pair.jump() {}
}
