//! Programs over software ConnectX that are plugged into the ends of the cable: one at each end, and one at either, with the kernel at the other.
//!
//! At both ends are programs here that the bus does not serve (the page of these cases says why). Java is not among those beside the kernel, for its threads' blocking sockets are
//! what Python's are, and it takes long; Go's sockets are no ring's anywhere.

use super::super::faults::{self, MIB};
use super::super::{Device, Ends, Leaving, Way, at_once, carried, forking, runtimes, servers};
use crate::harness::{Cable, Case};
use crate::inetd;

/// Who serves is on a card, or who asks, or both.
const WAYS: [Way; 3] = [(false, [true, true]), (false, [true, false]), (false, [false, true])];

/// Those that have the kernel at one end.
const BESIDE_THE_KERNEL: [Way; 2] = [(false, [true, false]), (false, [false, true])];

/// The same by either family.
const BY_EITHER_FAMILY: [Way; 4] = [(false, [true, false]), (false, [false, true]), (true, [true, false]), (true, [false, true])];

/// Runs a case each of `ways`. Of the programs that are on a card, each moves so many bytes by it, but those whose connections are `leaving`.
fn plugged(name: &str, bytes: u64, leaving: &[Leaving], ways: &[Way], test: impl Fn(&Ends<'_>) -> [&'static str; 2]) {
    for &way in ways {
        carried(Case::new(name), (&Cable::lay(), Device::PluggedCards), way, bytes, leaving, &test);
    }
}

#[test]
fn nginx_and_curl() {
    const SIZE: u64 = 16 << 20;
    plugged("plugged-nginx", SIZE, &[], &BESIDE_THE_KERNEL, |ends| servers::fetched(ends, SIZE));
}

#[test]
fn nginx_with_workers() {
    plugged("plugged-workers", 50_000, &[("nginx", 0)], &WAYS, |ends| servers::fetched_from_workers(ends, 200));
}

#[test]
fn redis_and_its_benchmark() {
    plugged("plugged-redis", 1_000_000, &[], &BESIDE_THE_KERNEL, servers::redis_asked);
}

#[test]
fn memcached_by_hand() {
    plugged("plugged-memcached", 1_000_000, &[], &BESIDE_THE_KERNEL, servers::memcached_asked);
}

#[test]
fn memcached_and_its_load() {
    plugged("plugged-memcaslap", 1_000_000, &[], &BESIDE_THE_KERNEL, |ends| servers::memcached_loaded(ends, 2_000));
}

#[test]
fn sockperf() {
    plugged("plugged-sockperf", 5_000, &[], &BESIDE_THE_KERNEL, servers::sockperf_asked);
}

#[test]
fn dnsmasq_and_dig() {
    plugged("plugged-dns", 300, &[("dnsmasq", 1)], &WAYS, servers::names_asked);
}

#[test]
fn iperf3() {
    plugged("plugged-iperf3", 1_000_000, &[], &BESIDE_THE_KERNEL, servers::iperf3_asked);
}

/// Who sends ends when it has written all of it: what the other has not read for a while by then is the kernel's to send.
#[test]
fn socat_copies_a_file() {
    const SIZE: u64 = 16 << 20;
    let both = [(false, [true; 2]), (true, [true; 2])];
    for ways in [&both[..], &BY_EITHER_FAMILY] {
        plugged("plugged-socat", SIZE, &[], ways, |ends| servers::copied(ends, SIZE));
    }
}

#[test]
fn socat_datagrams() {
    plugged("plugged-datagrams", 4, &[], &BY_EITHER_FAMILY, servers::echoed);
}

#[test]
fn who_subscribed_hears_of_a_killed_server() {
    at_once("plugged-killed", Device::PluggedCards, 4, &WAYS, servers::server_killed);
}

#[test]
fn inetd() {
    plugged("plugged-inetd", forking::SIZE, &[(inetd::INETD, 1)], &WAYS, forking::inetd_asked);
}

#[test]
fn socat() {
    plugged("plugged-socat-forks", forking::SIZE, &[("socat", 1)], &WAYS, forking::forking_socat_asked);
}

#[test]
fn git() {
    plugged("plugged-git", 0, &[("git", 1)], &WAYS, forking::git_exchanged);
}

#[test]
fn postgres() {
    plugged("plugged-postgres", 10_000, &[("postgres", 0)], &WAYS, forking::postgres_asked);
}

#[test]
fn ssh_and_scp() {
    plugged("plugged-ssh", forking::SIZE, &[("sshd", 1)], &WAYS, forking::ssh_asked);
}

#[test]
fn rsync_by_ssh() {
    plugged("plugged-rsync-ssh", forking::SIZE, &[("sshd", 1)], &WAYS, forking::rsync_by_ssh_done);
}

#[test]
fn rsync_by_its_daemon() {
    plugged("plugged-rsync", 0, &[("rsync", 1)], &WAYS, forking::rsync_by_daemon_done);
}

#[test]
fn node() {
    plugged("plugged-node", runtimes::SIZE, &[], &BESIDE_THE_KERNEL, runtimes::node_talks);
}

#[test]
fn go() {
    plugged("plugged-go", runtimes::SIZE, &[("peer", 0)], &[(false, [true, true])], runtimes::go_talks);
}

#[test]
fn python() {
    plugged("plugged-python", runtimes::SIZE, &[], &BESIDE_THE_KERNEL, runtimes::python_talks);
}

#[test]
fn tokio() {
    plugged("plugged-tokio", runtimes::SIZE_IN_ALL, &[], &BESIDE_THE_KERNEL, runtimes::tokio_streams);
}

#[test]
fn mio() {
    plugged("plugged-mio", runtimes::SIZE_IN_ALL, &[], &BESIDE_THE_KERNEL, runtimes::mio_streams);
}

#[test]
fn libuv() {
    plugged("plugged-libuv", runtimes::SIZE_IN_ALL, &[], &BESIDE_THE_KERNEL, runtimes::libuv_streams);
}

#[test]
fn asyncio() {
    plugged("plugged-asyncio", runtimes::SIZE_IN_ALL, &[], &BESIDE_THE_KERNEL, runtimes::asyncio_streams);
}

/// Runs a case through a relay, with all of its faults.
fn with_everything(name: &str, bytes: u64, leaving: &[Leaving], test: impl Fn(&Ends<'_>) -> [&'static str; 2]) {
    faults::through_leaving(name, (faults::everything(), Device::PluggedCards), &WAYS, bytes, leaving, test);
}

#[test]
fn curl_with_everything() {
    // (So much that it cannot be over before the first episode of delays.)
    const SIZE: u64 = 4 * MIB;
    with_everything("plugged-faults", SIZE, &[], |ends| faults::transferred(ends, "plugged-faults", SIZE));
}

#[test]
fn redis_with_everything() {
    with_everything("plugged-faults-redis", 100_000, &[], faults::requested);
}

#[test]
fn iperf3_with_everything() {
    with_everything("plugged-faults-iperf3", MIB, &[], faults::both_directions);
}

#[test]
fn ssh_with_everything() {
    with_everything("plugged-faults-ssh", MIB, &[("sshd", 1)], faults::piped_by_ssh);
}
