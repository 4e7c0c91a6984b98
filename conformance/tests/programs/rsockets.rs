//! The same programs with `librspreload.so` at both ends: their sockets are rsockets, and the kernel sends next to nothing.
//!
//! What stays on the kernel, and why:
//!
//! - sshd's connections: it executes itself anew for each, and a program that is executed has no rsockets of the one before. It works all the same, which is what is
//!   held here
//! - nginx's workers beside the first: one process at a time listens as an rsocket

use crate::harness::Case;
use crate::{iperf3, memcached, nginx, redis, socat, sockperf, ssh};

#[test]
fn sockperf_ping_pong() {
    sockperf::talk(Case::rsockets("rsockets-sockperf-tcp"), "--tcp", "ping-pong -t 1 --mps 5000000 -m 64", 5_000);
    sockperf::talk(Case::rsockets("rsockets-sockperf-udp"), "", "ping-pong -t 1 --mps 5000000 -m 64", 5_000);
}

#[test]
fn sockperf_data_integrity() {
    sockperf::talk(Case::rsockets("rsockets-integrity-tcp"), "--tcp", "ping-pong -t 1 -m 1400 --data-integrity", 2_000);
}

#[test]
fn iperf3_streams() {
    iperf3::streams(Case::rsockets("rsockets-iperf3"), "-P 4 --bidir");
}

#[test]
fn redis_benchmark() {
    redis::benchmark_in(Case::rsockets("rsockets-redis-benchmark"));
}

#[test]
fn redis_pipe() {
    redis::pipe_in(Case::rsockets("rsockets-redis-pipe"));
}

#[test]
fn memcached_by_hand() {
    memcached::by_hand_in(Case::rsockets("rsockets-memcached-by-hand"));
}

#[test]
fn memcached_many_clients() {
    memcached::many_clients_in(Case::rsockets("rsockets-memcached-many"));
}

#[test]
fn nginx_without_a_master() {
    nginx::load_in(Case::rsockets("rsockets-nginx-no-master"), "master_process off;", 1);
}

#[test]
fn nginx_with_a_worker() {
    nginx::load_in(Case::rsockets("rsockets-nginx-one"), "worker_processes 1;", 1);
}

#[test]
fn socat_relay() {
    socat::relay_in(Case::rsockets("rsockets-socat-relay"));
}

#[test]
fn socat_fork() {
    socat::fork_in(Case::rsockets_across_forks("rsockets-socat-fork"));
}

#[test]
fn ssh_commands() {
    let case = Case::rsockets_across_forks("rsockets-ssh");
    ssh::stop(ssh::commands(&case));
    case.on_the_kernel(300);
}
