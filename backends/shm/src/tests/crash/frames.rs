//! Operations of a member: bare frames, rules, links, claims.

use core::sync::atomic::Ordering;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ringway_host::HostQueues;
use ringway_stack::device::{
    Device as _, DeviceEvent, MacAddr, Protocol, Queues, RxBatch, SendError, TxBuffer, TxFrame, TxOffload, TxSlice, Wake,
};

use super::regions::Memory;
use super::stage::{Board, Endpoint, Operation, Part, Places, sleep_on};
use crate::layout::{LARGE_BYTES, SLOTS};
use crate::tests::{pattern, small, tcp};
use crate::{Rendezvous, Resolved, RxBuf, Settings, ShmQueues, attach};

/// Frames of the operations that exchange some.
const SOME: usize = 5;
/// Frames after which every counter in shared memory was stored at least once.
const MANY: usize = 150;
/// A frame that needs two of the largest buffers.
const LONGEST: usize = 60_000;

/// A member without a stack.
pub(super) struct Member {
    device: Option<ShmQueues>,
    rendezvous: Arc<Rendezvous>,
    batch: RxBatch<RxBuf>,
    /// The witness.
    witness: Option<Resolved>,
    answer: u64,
    /// The other of the operation.
    other: Option<Resolved>,
    /// Payloads that came from it.
    got: Vec<Vec<u8>>,
    /// Bodies that are kept.
    held: Vec<RxBuf>,
    holds: bool,
    /// Sent to it.
    sent: usize,
    gone: Vec<MacAddr>,
    /// What the other one may write to by itself, and whose memory this one has written to.
    pub(super) memory: Memory,
    pub(super) owner: u64,
}

impl Endpoint for Member {
    fn join() -> Self {
        let (device, rendezvous) = attach(&Settings { resolve_timeout: Duration::from_millis(200), ..small() }).unwrap();
        Self {
            device: Some(device),
            rendezvous,
            batch: RxBatch::new(64),
            witness: None,
            answer: 0,
            other: None,
            got: Vec::new(),
            held: Vec::new(),
            holds: false,
            sent: 0,
            gone: Vec::new(),
            memory: Memory::new(),
            owner: 0,
        }
    }

    fn device(&mut self) -> &mut ShmQueues {
        self.device.as_mut().expect("it has not left")
    }

    fn rendezvous(&self) -> &Rendezvous {
        &self.rendezvous
    }

    fn turn(&mut self) -> usize {
        self.rendezvous.service();
        self.batch.clear();
        let Some(device) = self.device.as_mut() else { return 0 };
        device.disarm();
        let count = device.poll_rx(ringway_stack::Instant::ZERO, &mut self.batch);
        let witness = self.witness.as_ref().map(|found| found.mac);
        for frame in self.batch.frames_mut() {
            let from = MacAddr(frame.head()[6..12].try_into().unwrap());
            let payload = frame.to_vec().split_off(14);
            if self.holds {
                self.held.extend(frame.take_buffer());
            }
            if Some(from) == witness {
                self.answer = u64::from_le_bytes(payload.try_into().unwrap());
            } else {
                self.got.push(payload);
            }
        }
        self.batch.clear();
        device.reap();
        while let Some(event) = device.poll_event() {
            if let DeviceEvent::PeerGone(mac) = event {
                self.gone.push(mac);
            }
        }
        count
    }

    fn may_sleep(&self) -> Option<Duration> {
        None
    }

    fn usage(&self) -> (usize, usize) {
        (0, 0)
    }

    fn settle(&mut self, at: SocketAddrV4) {
        self.device().steer(&tcp(at)).unwrap();
    }

    fn answer(&mut self) {
        // Who asks is not looked up: a frame goes back to where it came from.
        self.rendezvous.service();
        self.batch.clear();
        let Some(device) = self.device.as_mut() else { return };
        device.poll_rx(ringway_stack::Instant::ZERO, &mut self.batch);
        for frame in self.batch.frames_mut() {
            let head = [&frame.head()[6..12], &[0; 6], &frame.head()[12..]].concat();
            let _the_asker_may_be_gone = device.send(&TxFrame { head: &head, body: &[], offload: TxOffload::default() });
        }
        device.doorbell();
        while device.poll_event().is_some() {}
    }

    fn ask(&mut self, witness: SocketAddrV4, question: u64) {
        let to = match &self.witness {
            Some(found) => found.mac,
            None => self.witness.insert(self.rendezvous.resolve(Protocol::Tcp, witness).unwrap().expect("the witness")).mac,
        };
        self.send_to(to, &question.to_le_bytes()).unwrap();
        self.device().doorbell();
    }

    fn has_answer(&mut self, question: u64) -> bool {
        self.answer == question
    }

    fn keeps_at_most(&self) -> usize {
        0
    }

    fn begin(&mut self, _board: &'static super::stage::Board, _is_victim: bool) {
        (self.other, self.sent, self.holds) = (None, 0, false);
        self.got.clear();
        self.held.clear();
        self.gone.clear();
        self.memory.begin();
        self.owner = 0;
    }
}

impl Member {
    /// Of the witness, once it was asked.
    pub(super) fn witness_mac(&self) -> Option<MacAddr> {
        self.witness.as_ref().map(|found| found.mac)
    }

    fn look_for(&mut self, address: SocketAddrV4) -> bool {
        if self.other.as_ref().is_none_or(|found| !self.rendezvous.still_valid(found)) {
            self.other = crate::tests::find(&self.rendezvous, Protocol::Tcp, address);
        }
        self.other.is_some()
    }

    fn send_to(&mut self, to: MacAddr, payload: &[u8]) -> Result<(), SendError> {
        let device = self.device();
        let (headers, rest) = payload.split_at(payload.len().min(10));
        let head = [&to.0[..], &device.mac().0, &[8, 0], headers].concat();
        let mut buffers = Vec::new();
        for chunk in rest.chunks(LARGE_BYTES) {
            let mut buffer = device.tx_alloc(chunk.len()).ok_or(SendError::Full)?;
            buffer.write(0, chunk);
            buffers.push((buffer, chunk.len()));
        }
        let body: Vec<_> = buffers.iter().map(|(buffer, len)| TxSlice { buffer, offset: 0, len: *len }).collect();
        device.send(&TxFrame { head: &head, body: &body, offload: TxOffload::default() })
    }

    /// The next frame to the other one.
    fn send(&mut self, len: usize) -> Result<(), SendError> {
        let to = self.other.as_ref().expect("it was looked for").mac;
        self.send_to(to, &pattern(len, self.sent))?;
        self.sent += 1;
        Ok(())
    }

    /// What came is whole, in order, and nothing else.
    fn check_got(&self) -> Result<(), String> {
        for (i, payload) in self.got.iter().enumerate() {
            if *payload != pattern(payload.len(), i) {
                return Err(format!("frame {i} of {} bytes is not what was sent", payload.len()));
            }
        }
        Ok(())
    }
}

pub(super) fn operations() -> Vec<Operation<Member>> {
    let mut operations = vec![
        Operation { name: "join", prepare: |_| {}, act: joined, survivor: idle, judge: is_gone },
        Operation { name: "publish rules", prepare: linked, act: publish, survivor: look, judge: is_not_found },
        Operation { name: "withdraw rules", prepare: linked_with_rules, act: withdraw, survivor: look, judge: is_not_found },
        Operation { name: "link, as the one who looks", prepare: joined, act: link, survivor: idle, judge: is_gone },
        Operation { name: "link, as the one who is found", prepare: with_rule, act: be_found, survivor: look, judge: is_not_found },
        Operation { name: "link, both at once", prepare: with_rule, act: meet, survivor: meet_it, judge: is_not_found },
    ];
    operations.extend([
        Operation { name: "send inline", prepare: linked, act: |part| send(part, SOME, 200), survivor: idle, judge: got_some },
        Operation { name: "send to one who sleeps", prepare: linked, act: |part| send(part, SOME, 60), survivor: sleep, judge: got_some },
        Operation { name: "send from the pool", prepare: linked, act: |part| send(part, SOME, 1500), survivor: idle, judge: got_some },
        Operation { name: "send the longest", prepare: linked, act: |part| send(part, 1, LONGEST), survivor: hold, judge: got_whole },
        Operation { name: "send a batch", prepare: linked, act: batch, survivor: idle, judge: got_whole },
        Operation { name: "fill the ring, wait for room", prepare: linked, act: fill, survivor: receive_nothing, judge: got_whole },
        Operation { name: "receive and release", prepare: with_rule, act: receive, survivor: send_many, judge: is_gone },
        Operation { name: "receive the longest", prepare: with_rule, act: receive_longest, survivor: send_longest, judge: is_gone },
        Operation { name: "receive asleep", prepare: with_rule, act: receive_asleep, survivor: send_one_by_one, judge: is_gone },
        Operation { name: "exchange", prepare: with_rule, act: exchange, survivor: send_many, judge: got_whole },
        Operation { name: "claim and leave claims", prepare: linked, act: claims, survivor: idle, judge: has_no_claim },
        Operation { name: "leave", prepare: exchanged, act: leave, survivor: look, judge: is_not_found },
        Operation { name: "leave, then release", prepare: exchanged, act: leave_holding, survivor: send_many, judge: is_gone },
    ]);
    operations.extend(super::regions::operations());
    operations
}

// --- the victim's part ---

fn joined(part: &mut Part<Member>) {
    part.join();
}

pub(super) fn linked(part: &mut Part<Member>) {
    let at = part.places.survivor;
    let member = part.join();
    while !member.look_for(at) {}
}

fn with_rule(part: &mut Part<Member>) {
    let at = part.places.victim;
    part.join().settle(at);
}

/// The addresses that the victim publishes: its own, and others of the same host.
fn rules(places: &Places) -> [SocketAddrV4; 3] {
    [0, 20_000, 40_000].map(|further| SocketAddrV4::new(*places.victim.ip(), places.victim.port() + further))
}

fn linked_with_rules(part: &mut Part<Member>) {
    linked(part);
    publish(part);
}

fn publish(part: &mut Part<Member>) {
    for address in rules(&part.places) {
        part.endpoint().settle(address);
        part.endpoint().turn();
    }
}

fn withdraw(part: &mut Part<Member>) {
    // The first numbers that a rendezvous gives.
    for number in 1..=3 {
        part.endpoint().device().device().detach(ringway_stack::device::RuleId(number));
    }
}

fn link(part: &mut Part<Member>) {
    let at = part.places.survivor;
    while !part.endpoint().look_for(at) {}
}

fn be_found(part: &mut Part<Member>) {
    part.until(|member| !member.rendezvous.peers().is_empty());
}

/// Looks, while another thread lets itself be found.
fn meet_at(member: &mut Member, at: SocketAddrV4) {
    let met = AtomicBool::new(false);
    let rendezvous = member.rendezvous.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !met.load(Ordering::Relaxed) {
                rendezvous.service();
                std::thread::yield_now();
            }
        });
        member.look_for(at);
        met.store(true, Ordering::Relaxed);
    });
}

fn meet(part: &mut Part<Member>) {
    let at = part.places.survivor;
    while part.endpoint().other.is_none() {
        meet_at(part.endpoint(), at);
    }
}

fn send(part: &mut Part<Member>, count: usize, len: usize) {
    for i in 0..count {
        part.endpoint().send(len + i).unwrap();
        part.endpoint().device().doorbell();
    }
}

fn batch(part: &mut Part<Member>) {
    for i in 0..32 {
        part.endpoint().send(i * 23).unwrap();
    }
    part.endpoint().device().doorbell();
}

fn fill(part: &mut Part<Member>) {
    let board = part.board;
    let member = part.endpoint();
    while member.sent < SLOTS && member.send(40).is_ok() {}
    member.device().doorbell();
    assert!(member.send(40).is_err() || board.cue.load(Ordering::SeqCst) == 2);
    // Armed before the survivor begins to read, so that it must wake us.
    let must_wait = member.device().arm(Wake::Any);
    board.cue.store(1, Ordering::SeqCst);
    if must_wait {
        wait(member);
    }
    member.device().disarm();
    while member.send(40).is_err() {
        member.turn();
    }
    member.device().doorbell();
}

/// Until the ring, or the rendezvous, has something.
fn wait(member: &mut Member) {
    sleep_on(member, Duration::from_secs(60));
}

/// Holds every body for a while, and releases them in another order than they came in.
fn receive(part: &mut Part<Member>) {
    part.endpoint().holds = true;
    part.until(|member| {
        if member.held.len() >= 7 {
            member.held.swap_remove(3);
            member.held.remove(0);
        }
        member.got.len() == MANY
    });
    part.endpoint().held.clear();
}

fn receive_longest(part: &mut Part<Member>) {
    part.until(|member| member.got.len() == SOME);
}

fn receive_asleep(part: &mut Part<Member>) {
    for i in 1..=SOME {
        let member = part.endpoint();
        while member.got.len() < i {
            if member.device().arm(Wake::Any) {
                wait(member);
            }
            member.turn();
        }
    }
}

fn exchange(part: &mut Part<Member>) {
    let at = part.places.survivor;
    part.until(|member| member.got.len() >= 20);
    while !part.endpoint().look_for(at) {}
    send(part, 20, 300);
    part.until(|member| member.got.len() == MANY);
}

fn claims(part: &mut Part<Member>) {
    for core in [0, 1, 64, 0] {
        if part.endpoint().device().claim_core(core) {
            part.endpoint().device().release_core(core);
        }
    }
}

/// A link with frames both ways, some of them held.
fn exchanged(part: &mut Part<Member>) {
    linked(part);
    publish(part);
    send(part, SOME, 2000);
    part.endpoint().holds = true;
}

fn leave(part: &mut Part<Member>) {
    drop(part.endpoint.take());
}

fn leave_holding(part: &mut Part<Member>) {
    part.until(|member| member.held.len() >= 3);
    drop(part.endpoint().device.take());
    part.endpoint().held.clear();
}

// --- the survivor's part ---

fn idle(_: &mut Member, _: &Places, _: &Board) {}

fn look(member: &mut Member, places: &Places, board: &Board) {
    if board.is_acting() {
        member.look_for(places.victim);
    }
}

fn meet_it(member: &mut Member, places: &Places, board: &Board) {
    if board.is_acting() && member.other.is_none() {
        meet_at(member, places.victim);
    }
}

fn sleep(member: &mut Member, _: &Places, _: &Board) {
    member.device().arm(Wake::Any);
}

fn hold(member: &mut Member, _: &Places, _: &Board) {
    member.holds = true;
}

/// Does not read until it is told to, or for so long that the victim must have been stopped.
fn receive_nothing(member: &mut Member, _: &Places, board: &Board) {
    let begin = Instant::now();
    // Only the witness is there beside the victim, whose end shows here.
    while board.cue.load(Ordering::SeqCst) == 0 && member.rendezvous.peers().len() > 1 {
        member.rendezvous.service();
        if begin.elapsed() > Duration::from_millis(200) {
            board.cue.store(2, Ordering::SeqCst);
        }
        std::thread::yield_now();
    }
}

fn send_many(member: &mut Member, places: &Places, board: &Board) {
    send_up_to(member, places, board, MANY, 300);
}

fn send_longest(member: &mut Member, places: &Places, board: &Board) {
    send_up_to(member, places, board, SOME, LONGEST);
}

fn send_up_to(member: &mut Member, places: &Places, board: &Board, count: usize, len: usize) {
    if !board.is_acting() || member.sent == count || !member.look_for(places.victim) {
        return;
    }
    while member.sent < count && member.send(len).is_ok() {}
    member.device().doorbell();
}

fn send_one_by_one(member: &mut Member, places: &Places, board: &Board) {
    if board.is_acting() && member.sent < SOME && member.look_for(places.victim) && member.send(30).is_ok() {
        member.device().doorbell();
    }
}

// --- what must be true ---

/// Nothing of the victim is left but what it sent.
fn is_gone(member: &mut Member, _: &Places, _: bool) -> Result<bool, String> {
    member.check_got()?;
    member.held.clear();
    member.other = None;
    Ok(true)
}

fn is_not_found(member: &mut Member, places: &Places, done: bool) -> Result<bool, String> {
    for address in rules(places) {
        if crate::tests::find(&member.rendezvous, Protocol::Tcp, address).is_some() {
            return Ok(false);
        }
    }
    is_gone(member, places, done)
}

fn got_some(member: &mut Member, places: &Places, done: bool) -> Result<bool, String> {
    if done && member.got.len() < SOME {
        return Ok(false);
    }
    is_gone(member, places, done)
}

/// All that the victim says it sent.
fn got_whole(member: &mut Member, places: &Places, done: bool) -> Result<bool, String> {
    if done && member.got.is_empty() {
        return Ok(false);
    }
    is_gone(member, places, done)
}

fn has_no_claim(member: &mut Member, places: &Places, done: bool) -> Result<bool, String> {
    for core in [0, 1, 64] {
        if !member.device().claim_core(core) {
            return Ok(false);
        }
        member.device().release_core(core);
    }
    is_gone(member, places, done)
}
