//! Gathering: under the lock only what must be, a few sockets at a time; text is made of it outside.

use std::collections::BTreeMap;

use libc::c_int;
use ringway_devices::Ring;
use ringway_report::{Decision, DeviceReport, ProcessReport, RingReport, SocketReport, WaitReport};
use ringway_stack::Instant;
use ringway_stack::offload::Reason;

use super::kernels;
use super::sample::{DeviceNames, Sample};
use crate::fd_counters::{self, Count, Sums, Way};
use crate::fdtable::{self, Entry};
use crate::params;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::Socket;

/// Sockets that are looked at in one hold of the lock: some microseconds.
const AT_A_TIME: usize = 32;

/// Connections without an owner that are told of, of each ring: of the others, which wait out their TIME-WAIT, most likely, there is nothing else to say.
const WITHOUT_OWNER_MAX: usize = 4096;

/// The whole process, with `most` of its sockets.
pub(super) fn process(process: &Process, most: usize) -> ProcessReport {
    let began = std::time::Instant::now();
    let all = names();
    let sockets_total = all.len() as u64;
    let mut report = ProcessReport {
        pid: std::process::id(),
        program: params::program_name(),
        sockets: sockets(process, all.into_iter().take(most)),
        sockets_total,
        waits: waits(),
        ..overall(process)
    };
    report.gathering_ns = began.elapsed().as_nanos() as u64;
    report
}

/// The same, and the connections that no program has.
pub(super) fn process_and_rest(process: &Process) -> ProcessReport {
    ProcessReport { without_owner: without_owner(process), ..self::process(process, usize::MAX) }
}

/// What is not of one socket.
fn overall(process: &Process) -> ProcessReport {
    let peers = u32::try_from(process.rendezvous().peers().len()).unwrap_or(u32::MAX);
    let mut guard = process.lock();
    let ring = ring(process, &mut guard);
    let offload = &*guard;
    let device = &offload.rings.first().ring;
    let capabilities = device.capabilities();
    ProcessReport {
        device: Some(DeviceReport {
            kind: capabilities.kind.name().to_owned(),
            mac: device.mac().to_string(),
            peers,
            mtu: u32::try_from(capabilities.mtu).unwrap_or(u32::MAX),
        }),
        interfaces: offload.interfaces.as_deref().map(|interfaces| interfaces.report(&offload.rings)).unwrap_or_default(),
        ring,
        closed_sockets: offload.closed,
        decisions: offload.decisions.iter().map(|d| decision(d.what, d.reason, d.count)).collect(),
        ..ProcessReport::default()
    }
}

/// The rings' totals.
pub(super) fn ring(process: &Process, offload: &mut Offload) -> RingReport {
    let of_all = RingReport {
        polls: offload.mux.calls,
        sleeps: offload.mux.sleeps,
        lock_contended: process.state().contended(),
        migrations: offload.migrations.done,
        to_kernel: offload.to_kernel,
        core_claims: offload.mux.core_claims,
        core_claims_refused: offload.mux.core_claims_refused,
        ..RingReport::default()
    };
    offload.rings.iter_mut().fold(of_all, |sum, own| add(sum, &mut own.ring))
}

/// A ring's own totals, on top of others'.
fn add(sum: RingReport, ring: &mut Ring) -> RingReport {
    let (counters, batches, usage) = (ring.counters(), ring.batches(), ring.usage());
    let (buffers, in_use) = ring.tx_buffers();
    RingReport {
        rx_packets: sum.rx_packets + counters.rx_packets,
        rx_bytes: sum.rx_bytes + counters.rx_bytes,
        rx_drops: sum.rx_drops + counters.rx_drops,
        tx_packets: sum.tx_packets + counters.tx_packets,
        tx_bytes: sum.tx_bytes + counters.tx_bytes,
        tx_drops: sum.tx_drops + counters.tx_drops,
        retransmissions: sum.retransmissions + counters.retransmissions,
        copied_bytes: sum.copied_bytes + ring.copied_bytes(),
        batches: sum.batches + batches.count,
        batch_max: sum.batch_max.max(batches.max as u64),
        sockets: sum.sockets + usage.flows as u64,
        flows: sum.flows + usage.addresses as u64,
        tx_buffers: sum.tx_buffers + buffers as u64,
        tx_buffers_used: sum.tx_buffers_used + in_use as u64,
        ..sum
    }
}

fn decision(what: &str, reason: Option<Reason>, count: u64) -> Decision {
    Decision {
        what: what.to_owned(),
        device: "shm".to_owned(),
        reason: reason.map_or_else(String::new, |r| r.name().to_owned()),
        advice: reason.map_or_else(String::new, |r| r.advice().to_owned()),
        count,
    }
}

/// poll, select, and the epoll instances, as far as they were used.
fn waits() -> Vec<WaitReport> {
    let wait = |kind: &str, fd, sums: Sums| {
        let [ready, timeouts, errors] = sums.waited();
        let (poll_hits, poll_misses) = (sums.count(Count::PollHits), sums.count(Count::PollMisses));
        WaitReport { kind: kind.to_owned(), fd, ready, timeouts, errors, poll_hits, poll_misses }
    };
    let epolls = fdtable::entries().filter(|(_, entry)| matches!(entry, Entry::Epoll(_)));
    let used = |wait: &WaitReport| wait.ready + wait.timeouts + wait.errors + wait.poll_hits + wait.poll_misses > 0;
    [("poll", fd_counters::POLL.sums()), ("select", fd_counters::SELECT.sums())]
        .into_iter()
        .map(|(kind, sums)| wait(kind, -1, sums))
        .chain(epolls.map(|(fd, _)| wait("epoll", fd, fd_counters::of(fd))))
        .filter(used)
        .collect()
}

/// A socket, by the lowest of its descriptors; and what was counted of all of them.
struct Named {
    key: Key,
    fd: c_int,
    sums: Sums,
    kernel: (u64, u64),
}

impl Named {
    fn new(key: Key, fd: c_int) -> Self {
        Self { key, fd, sums: fd_counters::of(fd), kernel: fdtable::kernel_counts(fd) }
    }

    /// Another descriptor of the same socket.
    fn add(&mut self, fd: c_int) {
        self.sums.add(&fd_counters::of(fd));
        let (rx, tx) = fdtable::kernel_counts(fd);
        self.kernel = (self.kernel.0 + rx, self.kernel.1 + tx);
    }
}

/// Every socket, in the order of their descriptors. Needs no lock.
fn names() -> Vec<Named> {
    let mut names: Vec<Named> = Vec::new();
    // A socket's slot -> its place among the names.
    let mut places: Vec<usize> = Vec::new();
    for (fd, entry) in fdtable::entries() {
        let Some(key) = entry.socket() else { continue };
        let slot = key.index as usize;
        if let Some(named) = places.get(slot).and_then(|&place| names.get_mut(place)).filter(|named| named.key == key) {
            named.add(fd);
            continue;
        }
        if places.len() <= slot {
            places.resize(slot + 1, usize::MAX);
        }
        places[slot] = names.len();
        names.push(Named::new(key, fd));
    }
    names
}

/// One descriptor's socket alone. `None`: it has none.
pub(crate) fn one(process: &Process, fd: c_int) -> Option<SocketReport> {
    let key = fdtable::peek(fd).socket()?;
    let mut named = Named::new(key, fd);
    if process.lock().sockets.find(key)?.fds > 1 {
        let others = fdtable::entries().filter(|&(other, entry)| other != fd && entry.socket() == Some(key));
        others.for_each(|(other, _)| named.add(other));
    }
    sockets(process, [named].into_iter()).pop()
}

/// Every socket of the process.
pub(crate) fn all(process: &Process) -> Vec<SocketReport> {
    sockets(process, names().into_iter())
}

fn sockets(process: &Process, mut names: impl Iterator<Item = Named>) -> Vec<SocketReport> {
    let now = process.now();
    let mut reports = Vec::new();
    let devices = DeviceNames::of(&process.lock());
    let (mut few, mut samples) = (Vec::with_capacity(AT_A_TIME), Vec::with_capacity(AT_A_TIME));
    let mut held: Option<BTreeMap<u32, u64>> = None;
    loop {
        few.extend(names.by_ref().take(AT_A_TIME));
        if few.is_empty() {
            return reports;
        }
        {
            let offload = process.lock();
            let held = held.get_or_insert_with(|| {
                let mut held = BTreeMap::new();
                offload.loans.holders().for_each(|key| *held.entry(key.index).or_default() += 1);
                held
            });
            for named in few.drain(..) {
                if let Some(socket) = offload.sockets.find(named.key) {
                    let held = held.get(&named.key.index).copied().unwrap_or(0);
                    samples.push((Sample::of(&offload, now, socket, named.fd), named, held));
                }
            }
        }
        for (sample, named, held_packets) in samples.drain(..) {
            let told = sample.is_kernels().then(|| kernels::ask(named.fd, sample.protocol));
            let queues = sample.is_kernels_too().then(|| kernels::ask_more(named.fd, sample.protocol));
            // (Asked without the lock: the number may have come to mean another socket meanwhile.)
            let is_still = fdtable::peek(named.fd).socket() == Some(named.key);
            let mut report = SocketReport { held_packets, ..sample.into_report(told.filter(|_| is_still), &devices) };
            if let Some(queues) = queues.filter(|_| is_still) {
                queues.add_to(&mut report);
            }
            add_counts(&mut report, &named);
            reports.push(report);
        }
    }
}

/// The connections that are on a ring, and that no program has: it has closed them, or not accepted them yet.
fn without_owner(process: &Process) -> Vec<SocketReport> {
    let now = process.now();
    let (devices, rings) = {
        let offload = process.lock();
        (DeviceNames::of(&offload), offload.rings.len())
    };
    let mut reports = Vec::new();
    for ring in 0..rings as u16 {
        let flows = process.lock().rings.at(ring).ring.streams_without_owner(WITHOUT_OWNER_MAX);
        for few in flows.chunks(AT_A_TIME) {
            let samples: Vec<_> = {
                let offload = process.lock();
                few.iter().filter_map(|&flow| Sample::without_owner(&offload, now, flow)).collect()
            };
            reports.extend(samples.into_iter().map(|sample| sample.into_report(None, &devices)));
        }
    }
    reports
}

fn add_counts(report: &mut SocketReport, named: &Named) {
    let count = |what| named.sums.count(what);
    (report.kernel_rx_packets, report.kernel_tx_packets) = named.kernel;
    (report.kernel_rx_bytes, report.kernel_tx_bytes) = (count(Count::KernelRxBytes), count(Count::KernelTxBytes));
    (report.kernel_rx_eagains, report.kernel_rx_errors) = (count(Count::KernelRxEagain), count(Count::KernelRxError));
    (report.kernel_tx_eagains, report.kernel_tx_errors) = (count(Count::KernelTxEagain), count(Count::KernelTxError));
    (report.rx_eagains, report.rx_errors) = (count(Count::RxEagain), count(Count::RxError));
    (report.tx_eagains, report.tx_errors) = (count(Count::TxEagain), count(Count::TxError));
    report.tx_dummies = count(Count::TxDummies);
    (report.rx_poll_hits, report.rx_poll_misses) = (count(Count::PollHits), count(Count::PollMisses));
    (report.rx_thread, report.tx_thread) = (named.sums.thread(Way::Rx), named.sums.thread(Way::Tx));
}

/// A socket that is closed for good, and was known as `fd`, which may be open still.
pub(super) fn closed(offload: &Offload, socket: &Socket, (fd, is_open): (c_int, bool), now: Instant) -> SocketReport {
    let sample = Sample::of(offload, now, socket, fd);
    let told = (is_open && sample.is_kernels()).then(|| kernels::ask(fd, sample.protocol));
    let mut report = sample.into_report(told, &DeviceNames::of(offload));
    // (The descriptor's own counts of the kernel's calls went with its last name.)
    add_counts(
        &mut report,
        &Named { key: Key { index: 0, generation: 0 }, fd, sums: fd_counters::of(fd), kernel: fdtable::kernel_counts(fd) },
    );
    report
}
