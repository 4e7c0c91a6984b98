//! Memory that a peer writes to by itself: who writes there dies in the middle of it, or who lets it.

use core::sync::atomic::{AtomicU8, Ordering};

use super::frames::{Member, linked};
use super::stage::{Board, Endpoint as _, Operation, Part, Places};
use crate::{AreaPart, PublishedRegion, RegionWrite, WriteError};

const QP: u32 = 0x101;
const ADDRESS: u64 = 0x1000_0000_0000;
/// Bytes of a region, and of the memory around it that is nobody's to write to.
const LEN: usize = 64;
const GUARD: usize = 16;
/// What is written in turn.
const WRITES: u8 = 5;
/// Writes after the one at which the owner is asked to revoke the region.
const MORE: u8 = 8;

/// Keys of different places.
const KEYS: [u32; 3] = [0x100, 0x200, 0x300];

/// A part's memory, and how far it is with it.
pub(super) struct Memory {
    bytes: Box<[AtomicU8; LEN + 2 * GUARD]>,
    /// What it shares with the other part instead.
    shared: Option<AreaPart>,
    is_published: bool,
    /// Nobody writes there any more.
    is_closed: bool,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self { bytes: Box::new([const { AtomicU8::new(0) }; LEN + 2 * GUARD]), shared: None, is_published: false, is_closed: false }
    }

    pub(super) fn begin(&mut self) {
        self.fill(0);
        self.shared = None;
        (self.is_published, self.is_closed) = (false, false);
    }

    fn fill(&self, value: u8) {
        self.bytes.iter().for_each(|byte| byte.store(value, Ordering::SeqCst));
    }

    fn region(&self) -> Vec<u8> {
        self.bytes[GUARD..GUARD + LEN].iter().map(|byte| byte.load(Ordering::SeqCst)).collect()
    }

    /// What was written lies within bounds, and is of one write or of two that follow each other.
    fn check(&self) -> Result<(), String> {
        let is_zero = |byte: &AtomicU8| byte.load(Ordering::SeqCst) == 0;
        if !self.bytes[..GUARD].iter().chain(&self.bytes[GUARD + LEN..]).all(is_zero) {
            return Err("a byte beside the region was written".to_owned());
        }
        is_of_writes_in_order(&self.region())
    }
}

/// Of one write, or of two that follow each other.
fn is_of_writes_in_order(region: &[u8]) -> Result<(), String> {
    let (least, most) = (region.iter().min().copied().unwrap_or(0), region.iter().max().copied().unwrap_or(0));
    if most - least > 1 || !region.is_sorted_by(|one, next| one >= next) {
        return Err(format!("no writes leave this behind: {region:?}"));
    }
    Ok(())
}

pub(super) fn operations() -> [Operation<Member>; 5] {
    [
        Operation { name: "write to a region", prepare: let_in, act: write_some, survivor: publish_once, judge: is_written },
        Operation { name: "write while a region is revoked", prepare: let_in, act: write_on, survivor: revoke_meanwhile, judge: is_closed },
        Operation {
            name: "publish and revoke regions",
            prepare: linked,
            act: publish_and_revoke,
            survivor: write_there,
            judge: is_refused,
        },
        Operation { name: "write to shared memory", prepare: let_in, act: write_shared, survivor: share_once, judge: is_shared },
        Operation {
            name: "share memory and let go of it",
            prepare: linked,
            act: share_and_let_go,
            survivor: write_shared_there,
            judge: is_shared_no_more,
        },
    ]
}

/// The other of the operation, if the two know each other.
fn other(member: &Member) -> Option<u64> {
    let witness = member.witness_mac();
    member.rendezvous().peers().into_iter().find(|peer| Some(peer.mac) != witness).map(|peer| peer.id)
}

fn publish(member: &Member, key: u32, peer: u64) -> bool {
    // (Where Yama asks who may write to a process: anybody of its user.)
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
    let start = member.memory.bytes[GUARD..].as_ptr().expose_provenance();
    // SAFETY: the member's memory, which is read and written as atomics alone, and lives until it has been revoked (or as long as its process, which dies in the middle).
    unsafe { member.rendezvous().publish_region(&PublishedRegion { key, peer, qp: QP, address: ADDRESS, len: LEN as u64, start }) }
}

fn write(member: &Member, owner: u64, key: u32, value: u8) -> Result<(), WriteError> {
    member.rendezvous().write_region(&RegionWrite { owner, qp: QP, key, address: ADDRESS, bytes: &[value; LEN] })
}

// --- the victim's part ---

/// The survivor has published its region.
fn let_in(part: &mut Part<Member>) {
    linked(part);
    let board = part.board;
    part.until(|_| board.cue.load(Ordering::SeqCst) == 1);
}

fn write_some(part: &mut Part<Member>) {
    let member = part.endpoint();
    let owner = other(member).expect("it is linked");
    for value in 1..=WRITES {
        write(member, owner, KEYS[0], value).expect("it is published");
    }
}

fn write_on(part: &mut Part<Member>) {
    write_some(part);
    let board = part.board;
    let member = part.endpoint();
    let owner = other(member).expect("it is linked");
    board.cue.store(2, Ordering::SeqCst);
    for value in WRITES + 1..=WRITES + MORE {
        if write(member, owner, KEYS[0], value).is_err() {
            return;
        }
        std::thread::yield_now();
    }
}

fn publish_and_revoke(part: &mut Part<Member>) {
    let board = part.board;
    for key in KEYS {
        let member = part.endpoint();
        let peer = other(member).expect("it is linked");
        assert!(publish(member, key, peer));
        board.cue.store(key, Ordering::SeqCst);
        part.until(|member| member.memory.region().iter().all(|byte| *byte != 0));
        let member = part.endpoint();
        member.rendezvous().revoke_region(key);
        while member.rendezvous().is_region_written(key) {
            std::thread::yield_now();
        }
        member.memory.check().expect("whole writes");
        member.memory.fill(0);
        for _ in 0..20 {
            std::thread::yield_now();
        }
        assert!(member.memory.region().iter().all(|byte| *byte == 0), "somebody wrote after the end");
    }
}

// --- the survivor's part ---

fn publish_once(member: &mut Member, _: &Places, board: &Board) {
    if !member.memory.is_published
        && let Some(peer) = other(member)
    {
        assert!(publish(member, KEYS[0], peer), "the last run's region was revoked");
        member.memory.is_published = true;
        board.cue.store(1, Ordering::SeqCst);
    }
}

fn revoke_meanwhile(member: &mut Member, places: &Places, board: &Board) {
    publish_once(member, places, board);
    if board.cue.load(Ordering::SeqCst) == 2 {
        close(member);
    }
}

/// Revokes the region; once nobody writes there any more, the memory is its owner's alone.
fn close(member: &mut Member) {
    member.rendezvous().revoke_region(KEYS[0]);
    if !member.memory.is_closed && !member.rendezvous().is_region_written(KEYS[0]) {
        member.memory.fill(0);
        member.memory.is_closed = true;
    }
}

fn write_there(member: &mut Member, _: &Places, board: &Board) {
    let key = board.cue.load(Ordering::SeqCst);
    if let Some(owner) = other(member).filter(|_| KEYS.contains(&key)) {
        // (It may be revoked again, or its owner be dead.)
        let _ = write(member, owner, key, 1);
        member.owner = owner;
    }
}

// --- what must be true ---

fn is_written(member: &mut Member, _: &Places, done: bool) -> Result<bool, String> {
    if !member.memory.is_closed {
        member.memory.check()?;
        if done && member.memory.region() != [WRITES; LEN] {
            return Err("a write that was done is not there".to_owned());
        }
    }
    // A writer that is dead is waited for no longer.
    close(member);
    Ok(member.memory.is_closed)
}

fn is_closed(member: &mut Member, _: &Places, _: bool) -> Result<bool, String> {
    let was_closed = member.memory.is_closed;
    close(member);
    if was_closed && member.memory.region() != [0; LEN] {
        return Err("somebody wrote after the end".to_owned());
    }
    Ok(was_closed)
}

fn is_refused(member: &mut Member, _: &Places, _: bool) -> Result<bool, String> {
    Ok(KEYS.iter().all(|key| write(member, member.owner, *key, 1) == Err(WriteError::Refused)))
}

// --- memory that both map ---

fn try_to_write_shared(member: &Member, owner: u64, key: u32, value: u8) -> bool {
    member.rendezvous().write_shared(&RegionWrite { owner, qp: QP, key, address: ADDRESS, bytes: &[value; LEN] })
}

fn share(member: &Member, peer: u64, key: u32) -> AreaPart {
    let part = member.rendezvous().share(peer, key, QP, ADDRESS, LEN).expect("it has an area");
    part.write(0, &[0; LEN]);
    part
}

fn shared_bytes(part: &AreaPart) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    part.read(0, &mut bytes);
    bytes
}

fn write_shared(part: &mut Part<Member>) {
    let member = part.endpoint();
    let owner = other(member).expect("it is linked");
    for value in 1..=WRITES {
        assert!(try_to_write_shared(member, owner, KEYS[0], value), "it is shared");
    }
}

fn share_once(member: &mut Member, _: &Places, board: &Board) {
    if member.memory.shared.is_none()
        && !member.memory.is_closed
        && let Some(peer) = other(member)
    {
        member.memory.shared = Some(share(member, peer, KEYS[0]));
        board.cue.store(1, Ordering::SeqCst);
    }
}

fn is_shared(member: &mut Member, _: &Places, done: bool) -> Result<bool, String> {
    if let Some(part) = member.memory.shared.take() {
        let bytes = shared_bytes(&part);
        is_of_writes_in_order(&bytes)?;
        if done && bytes != [WRITES; LEN] {
            return Err("a write that was done is not there".to_owned());
        }
    }
    member.memory.is_closed = true;
    Ok(true)
}

fn share_and_let_go(part: &mut Part<Member>) {
    let board = part.board;
    for key in KEYS {
        let member = part.endpoint();
        let peer = other(member).expect("it is linked");
        let shared = share(member, peer, key);
        board.cue.store(key, Ordering::SeqCst);
        part.until(|_| shared_bytes(&shared) == [1; LEN]);
    }
}

fn write_shared_there(member: &mut Member, _: &Places, board: &Board) {
    let key = board.cue.load(Ordering::SeqCst);
    if let Some(owner) = other(member).filter(|_| KEYS.contains(&key)) {
        // (It may be let go of again, or its owner be dead.)
        let _ = try_to_write_shared(member, owner, key, 1);
        member.owner = owner;
    }
}

fn is_shared_no_more(member: &mut Member, _: &Places, _: bool) -> Result<bool, String> {
    Ok(KEYS.iter().all(|key| !try_to_write_shared(member, member.owner, *key, 1)))
}
