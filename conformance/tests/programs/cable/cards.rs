//! Programs over two software ConnectX, Ringway to Ringway: the cable is between their ports, whose kernels ask each other who has which address, and all else goes by a bus
//! from card to card.

mod plugged;

use std::path::PathBuf;

use super::{Device, Ends, carried, runtimes, servers};
use crate::harness::{Cable, Case};

/// A folder that is a bus. (Its name is part of a socket's, which is short.)
struct Bus(PathBuf);

impl Bus {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ringway-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        Self(folder)
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a case by each of these versions of IP. Each program moves so many bytes by its card.
fn on_cards(name: &str, bytes: u64, versions: &[u8], test: impl Fn(&Ends<'_>) -> [&'static str; 2]) {
    for version in versions {
        let bus = Bus::new(name);
        carried(Case::new(name), (&Cable::lay(), Device::Cards(&bus.0)), (*version == 6, [true; 2]), bytes, &[], &test);
    }
}

#[test]
fn nginx_and_curl() {
    const SIZE: u64 = 16 << 20;
    on_cards("cards-nginx", SIZE, &[4, 6], |ends| servers::fetched(ends, SIZE));
}

#[test]
fn redis_and_its_benchmark() {
    on_cards("cards-redis", 1_000_000, &[4], servers::redis_asked);
}

#[test]
fn memcached_by_hand() {
    on_cards("cards-memcached", 1_000_000, &[6], servers::memcached_asked);
}

#[test]
fn sockperf() {
    on_cards("cards-sockperf", 5_000, &[4], servers::sockperf_asked);
}

#[test]
fn iperf3() {
    on_cards("cards-iperf3", 1_000_000, &[4], servers::iperf3_asked);
}

#[test]
fn socat_datagrams() {
    on_cards("cards-datagrams", 4, &[4, 6], servers::echoed);
}

#[test]
fn memcached_and_its_load() {
    on_cards("cards-memcaslap", 1_000_000, &[4], |ends| servers::memcached_loaded(ends, 2_000));
}

#[test]
fn java() {
    on_cards("cards-java", runtimes::SIZE, &[6], runtimes::java_talks);
}

#[test]
fn node() {
    on_cards("cards-node", runtimes::SIZE, &[4], runtimes::node_talks);
}

#[test]
fn python() {
    on_cards("cards-python", runtimes::SIZE, &[4], runtimes::python_talks);
}

#[test]
fn tokio() {
    on_cards("cards-tokio", runtimes::SIZE_IN_ALL, &[6], runtimes::tokio_streams);
}

#[test]
fn mio() {
    on_cards("cards-mio", runtimes::SIZE_IN_ALL, &[4], runtimes::mio_streams);
}

#[test]
fn libuv() {
    on_cards("cards-libuv", runtimes::SIZE_IN_ALL, &[4], runtimes::libuv_streams);
}

#[test]
fn asyncio() {
    on_cards("cards-asyncio", runtimes::SIZE_IN_ALL, &[4], runtimes::asyncio_streams);
}
