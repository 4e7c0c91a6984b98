//! One run: a victim is forked, ends at its k-th point, and the survivor is held to what must be true then.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::net::SocketAddrV4;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use ringway_stack::device::{Device as _, Protocol, Queues, Wake};

use crate::store_hook::{self, End};
use crate::tests::{fresh_address, tcp};
use crate::{Rendezvous, ShmQueues};

/// What peers must see within.
pub(super) const RESET_WITHIN: Duration = Duration::from_secs(1);

/// What has not changed for so long is at rest.
const REST: Duration = Duration::from_millis(100);
/// A run that takes longer hangs. (Where processes wait for a processor, one may be taken for silent, and is not asked again at once.)
const PATIENCE: Duration = Duration::from_secs(60);
/// For how long a stopped victim's survivor is watched.
const WATCHED: Duration = Duration::from_millis(30);
/// Wake-ups in that time that are no spinning.
const WAKEUPS_MAX: u32 = 60;

/// A page that both processes write: how far the victim is, and what it counted.
#[derive(Debug, Default)]
pub(super) struct Board {
    phase: AtomicU32,
    stores: AtomicU64,
    calls: AtomicU64,
    /// For an operation's own use.
    pub(super) cue: AtomicU32,
    /// Bytes of streams that the victim's program has read, and that it has written.
    pub(super) read: AtomicU64,
    pub(super) written: AtomicU64,
}

const PREPARING: u32 = 0;
const ACTING: u32 = 1;
const DONE: u32 = 2;

impl Board {
    fn shared() -> &'static Self {
        // SAFETY: a fresh shared page, never unmapped, of zeroes, which is a valid board; all its fields are atomics.
        unsafe {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            let page = libc::mmap(core::ptr::null_mut(), 4096, protection, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            &*page.cast::<Self>()
        }
    }

    /// Whether the victim has begun what it is to die in.
    pub(super) fn is_acting(&self) -> bool {
        self.phase.load(Ordering::SeqCst) >= ACTING
    }

    fn is_done(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == DONE
    }
}

/// Who is where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) survivor: SocketAddrV4,
    pub(super) victim: SocketAddrV4,
    witness: SocketAddrV4,
}

/// A member that takes a part: of bare frames, or with a stack.
pub(super) trait Endpoint: Sized {
    fn join() -> Self;
    fn device(&mut self) -> &mut ShmQueues;
    fn rendezvous(&self) -> &Rendezvous;
    /// Serves the rendezvous, and polls once. How much there was to do.
    fn turn(&mut self) -> usize;
    /// How long it may sleep.
    fn may_sleep(&self) -> Option<Duration>;
    /// Sockets, and flows.
    fn usage(&self) -> (usize, usize);
    /// Takes its place, at which it answers the victim, or as the witness.
    fn settle(&mut self, at: SocketAddrV4);
    /// Answers whoever asks the witness. Once.
    fn answer(&mut self);
    /// Asks the witness, whose answer it has not had yet.
    fn ask(&mut self, witness: SocketAddrV4, question: u64);
    /// Whether the answer is there.
    fn has_answer(&mut self, question: u64) -> bool;
    /// Send buffers that it holds, even when nothing is under way, for the next bytes to the witness.
    fn keeps_at_most(&self) -> usize;
    /// Forgets the last run. What it reads and writes from now on is noted on the board, if it is the victim; else that is what it is held to.
    fn begin(&mut self, board: &'static Board, is_victim: bool);
}

/// What the victim does, and what the survivor does about it.
pub(super) struct Operation<S> {
    pub(super) name: &'static str,
    /// What comes before the points that count.
    pub(super) prepare: fn(&mut Part<S>),
    /// What counts.
    pub(super) act: fn(&mut Part<S>),
    /// The survivor's part, after each of its turns.
    pub(super) survivor: fn(&mut S, &Places, &Board),
    /// After the end (the flag: the victim came through): whether all is as it must be. An error is one that time does not heal.
    pub(super) judge: fn(&mut S, &Places, bool) -> Result<bool, String>,
}

/// The victim's process.
pub(super) struct Part<S> {
    pub(super) places: Places,
    pub(super) board: &'static Board,
    pub(super) endpoint: Option<S>,
}

impl<S: Endpoint> Part<S> {
    pub(super) fn join(&mut self) -> &mut S {
        let endpoint = self.endpoint.insert(S::join());
        endpoint.begin(self.board, true);
        endpoint
    }

    pub(super) fn endpoint(&mut self) -> &mut S {
        self.endpoint.as_mut().expect("it has joined")
    }

    /// Takes turns until `done`. (The survivor ends it when it takes too long.)
    pub(super) fn until(&mut self, mut done: impl FnMut(&mut S) -> bool) {
        let endpoint = self.endpoint();
        while !done(endpoint) {
            endpoint.turn();
        }
    }
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Killed,
    /// Stopped for a while, and killed then.
    StoppedAndKilled,
    /// Stopped for a while, and continued.
    Stopped,
}

/// What a run showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// It came through without meeting its end.
    pub(super) done: bool,
    pub(super) stores: u64,
    pub(super) calls: u64,
    /// From the death to the last thing's being in order.
    pub(super) healed_after: Duration,
}

/// What must be afterwards as it was before.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Possessions {
    /// Beyond those that may be kept.
    buffers: usize,
    descriptors: usize,
    mappings: usize,
    peers: usize,
    usage: (usize, usize),
}

/// The survivor, the witness, and what they share with each victim.
pub(super) struct Stage<S> {
    survivor: S,
    places: Places,
    board: &'static Board,
    witness: libc::pid_t,
    questions: u64,
}

impl<S: Endpoint> Stage<S> {
    pub(super) fn set() -> Self {
        let places = Places { survivor: fresh_address(), victim: fresh_address(), witness: fresh_address() };
        let board = Board::shared();
        let mut survivor = S::join();
        survivor.settle(places.survivor);
        let witness = fork(|| {
            survivor.rendezvous().after_fork_in_child();
            let mut witness = S::join();
            witness.settle(places.witness);
            loop {
                witness.answer();
                // It is asked rarely, and must not take the processor from those who are watched.
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        let mut stage = Self { survivor, places, board, witness, questions: 0 };
        let asked = Instant::now();
        // It may also be slow to answer.
        while crate::tests::find(stage.survivor.rendezvous(), Protocol::Tcp, places.witness).is_none() {
            assert!(asked.elapsed() < PATIENCE, "the witness does not appear");
        }
        stage.ask_the_witness().unwrap();
        stage.come_to_rest();
        stage
    }

    /// What the meeting with the witness took is given back by threads of its own: nothing changes any more.
    fn come_to_rest(&mut self) {
        let (begin, mut since, mut last) = (Instant::now(), Instant::now(), self.possessions());
        while since.elapsed() < REST {
            assert!(begin.elapsed() < PATIENCE, "it never comes to rest: {last:?}");
            std::thread::sleep(Duration::from_millis(5));
            self.survivor.turn();
            let now = self.possessions();
            if now != last {
                (since, last) = (Instant::now(), now);
            }
        }
    }

    /// Runs `operation`, whose victim meets `fate` at its point `at`.
    pub(super) fn run(&mut self, operation: &Operation<S>, at: u32, fate: Fate) -> Result<Shown, String> {
        self.survivor.begin(self.board, false);
        for word in [&self.board.read, &self.board.written] {
            word.store(0, Ordering::SeqCst);
        }
        for word in [&self.board.phase, &self.board.cue] {
            word.store(PREPARING, Ordering::SeqCst);
        }
        let before = self.at_rest()?;
        let victim = self.fork_victim(operation, at, fate);
        let died = match self.watch(operation, victim, fate) {
            Ok(died) => died,
            Err(error) => {
                end(victim);
                return Err(error);
            }
        };
        let done = self.board.is_done();
        let healed_after = self.heal(operation, &before, died, done)?;
        self.take_its_place()?;
        self.ask_the_witness()?;
        let (stores, calls) = (self.board.stores.load(Ordering::SeqCst), self.board.calls.load(Ordering::SeqCst));
        Ok(Shown { done, stores, calls, healed_after })
    }

    /// What there is when nothing is under way.
    fn at_rest(&mut self) -> Result<Possessions, String> {
        let begin = Instant::now();
        loop {
            let now = self.possessions();
            if now.buffers == 0 {
                return Ok(now);
            }
            if begin.elapsed() > RESET_WITHIN {
                return Err(format!("before it begins: {now:?}"));
            }
            self.survivor.turn();
        }
    }

    fn fork_victim(&mut self, operation: &Operation<S>, at: u32, fate: Fate) -> libc::pid_t {
        fork(|| {
            self.survivor.rendezvous().after_fork_in_child();
            let mut part = Part { places: self.places, board: self.board, endpoint: None };
            (operation.prepare)(&mut part);
            store_hook::end_at(at, if fate == Fate::Killed { End::Killed } else { End::Stopped });
            self.board.phase.store(ACTING, Ordering::SeqCst);
            (operation.act)(&mut part);
            let (stores, calls) = store_hook::finish();
            self.board.stores.store(stores, Ordering::SeqCst);
            self.board.calls.store(calls, Ordering::SeqCst);
            self.board.phase.store(DONE, Ordering::SeqCst);
            // SAFETY: no memory is involved. What it still has, it leaves as one that was killed.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        })
    }

    /// Plays the survivor until the victim has died. When that was seen.
    fn watch(&mut self, operation: &Operation<S>, victim: libc::pid_t, fate: Fate) -> Result<Instant, String> {
        let begin = Instant::now();
        loop {
            self.survivor.turn();
            (operation.survivor)(&mut self.survivor, &self.places, self.board);
            match state(victim) {
                State::Runs => {}
                State::Stopped => {
                    self.watch_stopped()?;
                    let signal = if fate == Fate::Stopped { libc::SIGCONT } else { libc::SIGKILL };
                    // SAFETY: our own child, which was not waited for yet.
                    unsafe { libc::kill(victim, signal) };
                }
                State::Killed => return Ok(Instant::now()),
                State::Exited(status) => return Err(format!("the victim ended by itself, with status {status}")),
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!("it hangs: {} is not over", if self.board.is_acting() { "the act" } else { "its preparation" }));
            }
            std::thread::yield_now();
        }
    }

    /// One that is stopped hinders nobody: the survivor goes on, and can sleep.
    fn watch_stopped(&mut self) -> Result<(), String> {
        self.ask_the_witness()?;
        let begin = Instant::now();
        let mut wakeups = 0;
        while begin.elapsed() < WATCHED {
            wakeups += 1;
            while self.survivor.turn() > 0 {}
            let left = WATCHED.saturating_sub(begin.elapsed());
            let left = self.survivor.may_sleep().map_or(left, |soon| soon.min(left));
            if self.survivor.device().arm(Wake::Any) {
                sleep_on(&mut self.survivor, left);
            }
            self.survivor.device().disarm();
        }
        if wakeups > WAKEUPS_MAX { Err(format!("{wakeups} wake-ups in {WATCHED:?} beside a stopped peer")) } else { Ok(()) }
    }

    /// Waits until everything is as it was. How long that took.
    fn heal(&mut self, operation: &Operation<S>, before: &Possessions, died: Instant, done: bool) -> Result<Duration, String> {
        loop {
            self.survivor.turn();
            let is_right = (operation.judge)(&mut self.survivor, &self.places, done)?;
            let now = self.possessions();
            let healed_after = died.elapsed();
            if is_right && now == *before {
                return Ok(healed_after);
            }
            if healed_after > RESET_WITHIN {
                return Err(format!("not within {RESET_WITHIN:?}: right {is_right}, before {before:?}, now {now:?}"));
            }
        }
    }

    /// The victim's address is free: the survivor can have it, and gives it up. (The next victim, a new process, has it next.)
    fn take_its_place(&mut self) -> Result<(), String> {
        let device = self.survivor.device();
        let rule = device.steer(&tcp(self.places.victim)).map_err(|e| format!("the victim's address: {e}"))?;
        device.device().detach(rule.rule);
        Ok(())
    }

    fn ask_the_witness(&mut self) -> Result<(), String> {
        self.questions += 1;
        let asked = Instant::now();
        self.survivor.ask(self.places.witness, self.questions);
        while !self.survivor.has_answer(self.questions) {
            self.survivor.turn();
            if asked.elapsed() > RESET_WITHIN {
                return Err(format!("the witness's answer is not there after {RESET_WITHIN:?}"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn possessions(&mut self) -> Possessions {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        Possessions {
            buffers: self.survivor.device().buffers_in_use().saturating_sub(self.survivor.keeps_at_most()),
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            mappings: maps.lines().filter(|line| line.contains("memfd:ringway")).count(),
            peers: self.survivor.rendezvous().peers().len(),
            usage: self.survivor.usage(),
        }
    }
}

impl<S> Drop for Stage<S> {
    fn drop(&mut self) {
        end(self.witness);
    }
}

pub(super) enum State {
    Runs,
    Stopped,
    Killed,
    Exited(i32),
}

pub(super) fn state(child: libc::pid_t) -> State {
    let mut status = 0;
    // SAFETY: `status` is writable.
    let changed = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG | libc::WUNTRACED) };
    match changed {
        0 => State::Runs,
        _ if changed == child && libc::WIFSTOPPED(status) => State::Stopped,
        _ if changed == child && libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL => State::Killed,
        _ => State::Exited(status),
    }
}

/// Sleeps as a program would: on the ring, the rendezvous, and for no longer than the next timer.
pub(super) fn sleep_on(endpoint: &mut impl Endpoint, longest: Duration) {
    let ring = endpoint.device().wait_fd().unwrap_or(-1);
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut entries = [entry(ring), entry(endpoint.rendezvous().epoll_fd())];
    let longest = i32::try_from(longest.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    // SAFETY: two entries.
    unsafe { libc::poll(entries.as_mut_ptr(), 2, longest) };
}

/// Runs `child` in a child of this process, which has one thread that matters. It dies with this process.
pub(super) fn fork(child: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the other thread of this process is libtest's, which only waits; glibc makes its allocator usable in the child.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: no memory is involved.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let _panic_is_printed = catch_unwind(AssertUnwindSafe(child));
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(101) };
    }
    pid
}

/// Kills a child, and waits for its end.
pub(super) fn end(child: libc::pid_t) {
    // SAFETY: our own child; if it was waited for already, both calls fail.
    unsafe {
        if libc::waitpid(child, core::ptr::null_mut(), libc::WNOHANG) == 0 {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, core::ptr::null_mut(), 0);
        }
    }
}
