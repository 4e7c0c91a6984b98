//! SIGKILL under load: a survivor exchanges verified bytes, over TCP and UDP, with processes that are killed at random moments: clients,
//! and the server whose name everybody looks up, many of them in the middle of a greeting. New ones begin at the same ports at once.
//!
//! `RINGWAY_KILLS=500` kills so many, `RINGWAY_KILLS_SEED=…` the same ones again (as far as the scheduler lets it).

mod roles;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use self::roles::{ROLE, SAID};
use crate::harness::{Case, World, free_port, library};

/// Kills, if the environment does not say.
const KILLS: u32 = 200;
/// Every connection to a dead process has ended by then.
const RESET_WITHIN: Duration = Duration::from_secs(1);
/// Between two counts of what the survivor has; each begins with nobody else alive.
const KILLS_PER_COUNT: u32 = 50;
/// Processes beside the survivor: the first serves.
const VICTIMS: usize = 4;
/// What caches may add to the survivor's memory between its first count and its last.
const GROWTH_MAX_KIB: u64 = 16 << 10;

/// The ports: the survivor's, and the serving victim's, each for TCP and UDP.
#[derive(Clone, Copy)]
struct Ports {
    survivor: u16,
    server: u16,
}

/// A process of the case; killed when this is dropped.
struct Process(Child);

impl Process {
    fn start(case: &Case, role: &str, ports: Ports, seed: u64, stdout: Stdio) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "kills::one_of_the_processes", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, format!("{role} {} {} {seed}", ports.survivor, ports.server)).env("RUST_BACKTRACE", "0");
        if case.world() == World::Ringway {
            command.env("LD_PRELOAD", library());
        }
        let log = fs::OpenOptions::new().create(true).append(true).open(case.path("stderr")).expect("a log");
        Self(command.stdin(Stdio::null()).stdout(stdout).stderr(log).spawn().expect("this program, again"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended_before = self.0.kill();
        let _status = self.0.wait();
    }
}

/// What the survivor has, when nobody else lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    descriptors: usize,
    /// Of others: who made a segment has it writable, and its peers only read it.
    segments: usize,
    resident_kib: u64,
}

impl Count {
    fn of(pid: u32) -> Self {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a living process");
        let resident = read("status").lines().find_map(|l| l.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
        Self {
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).expect("a living process").count(),
            segments: segments_of_others(&read("maps")),
            resident_kib: resident.expect("its resident set"),
        }
    }
}

/// Counts the segments that a process has mapped and did not make, by its /proc/self/maps.
fn segments_of_others(maps: &str) -> usize {
    let segments = maps.lines().filter(|line| line.contains("memfd:ringway"));
    let mapped: Vec<(bool, &str)> = segments
        .map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (access, inode) = (words.next().expect("its access"), words.nth(2).expect("its inode"));
            (access.contains('w'), inode)
        })
        .collect();
    let own: BTreeSet<&str> = mapped.iter().filter(|(is_own, _)| *is_own).map(|(_, inode)| *inode).collect();
    mapped.iter().map(|(_, inode)| *inode).filter(|inode| !own.contains(inode)).collect::<BTreeSet<_>>().len()
}

/// What the survivor has said of its connections, by the process at the other end.
#[derive(Default)]
struct Book {
    open: BTreeMap<u32, u32>,
    /// How connections ended: how often, and in all.
    ends: BTreeMap<String, u32>,
    bytes: u64,
    datagrams: u64,
    /// The longest that an end was late, and that a connect took.
    latest: Duration,
    slowest: Duration,
}

impl Book {
    /// Notes one line; `killed` is when a process was.
    fn note(&mut self, line: &str, killed: &BTreeMap<u32, Duration>) {
        let Some((_, said)) = line.split_once(SAID) else { return };
        let words: Vec<&str> = said.split_whitespace().collect();
        let number = |i: usize| -> u64 { words[i].parse().unwrap_or_else(|_| panic!("not a line of the survivor's: {line}")) };
        match words[0] {
            "open" => *self.open.entry(number(1) as u32).or_default() += 1,
            "end" => {
                let (pid, at) = (number(1) as u32, Duration::from_micros(number(2)));
                *self.ends.entry(words[3].to_owned()).or_default() += 1;
                self.bytes += number(4);
                let open = self.open.get_mut(&pid).unwrap_or_else(|| panic!("not open: {line}"));
                *open -= 1;
                // Who is killed holds its descriptors until the kernel has torn it down.
                let late = killed.get(&pid).map(|&death| at.saturating_sub(death));
                let late = late.unwrap_or_else(|| panic!("a connection to a living process ended: {line}"));
                self.latest = self.latest.max(late);
                if late > RESET_WITHIN / 4 {
                    println!("{late:?} after the death of {pid}: {line}");
                }
                assert!(late < RESET_WITHIN, "{late:?} after the death of {pid}: {line}");
            }
            "connected" => {
                self.slowest = self.slowest.max(Duration::from_micros(number(1)));
            }
            "datagrams" => self.datagrams += number(1),
            _ => panic!("the survivor says: {line}"),
        }
    }

    fn is_open(&self, pid: u32) -> bool {
        self.open.get(&pid).is_some_and(|&count| count > 0)
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970")
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")))
}

#[test]
fn killed_processes_hurt_nobody() {
    let case = Case::new("kills");
    let kills = from_environment("RINGWAY_KILLS").map_or(KILLS, |kills| kills as u32);
    let seed = from_environment("RINGWAY_KILLS_SEED").unwrap_or_else(|| since_epoch().as_micros() as u64);
    println!("RINGWAY_KILLS={kills} RINGWAY_KILLS_SEED={seed}");
    let ports = Ports { survivor: free_port(), server: free_port() };
    let mut survivor = Process::start(&case, "survivor", ports, seed, Stdio::piped());
    let lines = lines(&mut survivor);
    let mut scenario = Scenario {
        case: &case,
        ports,
        rng: ChaCha8Rng::seed_from_u64(seed),
        survivor,
        lines,
        book: Book::default(),
        killed: BTreeMap::new(),
        victims: (0..VICTIMS).map(|_| None).collect(),
    };
    scenario.run(kills);
    drop(scenario);
    let said = fs::read_to_string(case.path("stderr")).unwrap_or_default();
    assert!(!said.contains("panicked"), "{said}");
    case.done();
}

fn lines(survivor: &mut Process) -> Receiver<String> {
    let (sender, receiver) = channel();
    let out = survivor.0.stdout.take().expect("its output");
    std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    receiver
}

struct Scenario<'c> {
    case: &'c Case,
    ports: Ports,
    rng: ChaCha8Rng,
    survivor: Process,
    lines: Receiver<String>,
    book: Book,
    /// When each was killed.
    killed: BTreeMap<u32, Duration>,
    /// The first serves.
    victims: Vec<Option<Process>>,
}

impl Scenario<'_> {
    fn run(&mut self, kills: u32) {
        let begin = Instant::now();
        let mut least: Option<Count> = None;
        for round in 1..=kills {
            for at in 0..VICTIMS {
                self.start(at);
            }
            // Half of them before they are through with their greetings, or even with their loading.
            let longest = if self.rng.next_u32().is_multiple_of(2) { 30_000 } else { 120_000 };
            let delay = Duration::from_micros(u64::from(self.rng.next_u32() % longest));
            self.listen_for(delay);
            // The server more often than each client.
            let at = (self.rng.next_u32() as usize % (VICTIMS + 1)).saturating_sub(1);
            self.kill(at);
            if round.is_multiple_of(KILLS_PER_COUNT) {
                let count = self.count(least.map(|least| least.descriptors));
                println!("after {round:4} kills: {count:?}, resets at most {:?} late", self.book.latest);
                assert!(count.segments == 0, "a dead process's memory is still mapped: {count:?}");
                let before = *least.get_or_insert(count);
                let is_more = count.descriptors > before.descriptors || count.segments > before.segments;
                assert!(!is_more, "something is left of the dead: {before:?}, {count:?}");
                // (What had not ended by itself when it was first counted has now.)
                least = Some(Count { descriptors: count.descriptors, ..before });
                assert!(count.resident_kib < before.resident_kib + GROWTH_MAX_KIB, "{before:?}, {count:?}");
            }
        }
        let book = &self.book;
        println!(
            "{kills} kills in {:.1?}: {:?}, {} bytes of streams and {} datagrams verified, latest reset {:?}, slowest connect {:?}",
            begin.elapsed(),
            book.ends,
            book.bytes,
            book.datagrams,
            book.latest,
            book.slowest
        );
        assert!(book.bytes > u64::from(kills) * 1000 && book.datagrams > u64::from(kills), "there was no load");
    }

    fn start(&mut self, at: usize) {
        if self.victims[at].is_none() {
            let role = if at == 0 { "server" } else { "client" };
            self.victims[at] = Some(Process::start(self.case, role, self.ports, self.rng.next_u64(), Stdio::null()));
        }
    }

    /// Kills one, and waits until the survivor has seen it in all its connections.
    fn kill(&mut self, at: usize) {
        let Some(mut victim) = self.victims[at].take() else { return };
        let pid = victim.pid();
        if let Ok(Some(status)) = victim.0.try_wait() {
            panic!("process {pid} ended by itself ({status}): {}", fs::read_to_string(self.case.path("stderr")).unwrap_or_default());
        }
        self.killed.insert(pid, since_epoch());
        drop(victim);
        let deadline = Instant::now() + RESET_WITHIN * 2;
        while self.book.is_open(pid) {
            self.listen_for(Duration::from_millis(1));
            assert!(Instant::now() < deadline, "process {pid} is dead, and its connections are not");
        }
    }

    /// Takes down what the survivor says, for so long.
    fn listen_for(&mut self, duration: Duration) {
        let deadline = Instant::now() + duration;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.book.note(&line, &self.killed),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("the survivor has not survived: {}", fs::read_to_string(self.case.path("stderr")).unwrap_or_default())
                }
            }
        }
    }

    /// Kills everybody else, and counts what is left when the survivor has let go of it.
    /// `least`: descriptors that were enough before. Of more than those, some may yet end.
    fn count(&mut self, least: Option<usize>) -> Count {
        for at in 0..VICTIMS {
            self.kill(at);
        }
        let pid = self.survivor.pid();
        let deadline = Instant::now() + RESET_WITHIN * 2;
        let mut count = Count::of(pid);
        loop {
            // Received bytes that a reset has made unreadable, and a connect that is under way, end by themselves.
            self.listen_for(Duration::from_millis(100));
            let now = Count::of(pid);
            // One segment is its own.
            let is_alone = now.segments <= 1 && now.descriptors == count.descriptors && least.is_none_or(|least| now.descriptors <= least);
            if is_alone || Instant::now() > deadline {
                return now;
            }
            count = now;
        }
    }
}

#[test]
#[ignore = "one of the processes of the case above"]
fn one_of_the_processes() {
    roles::play();
}
