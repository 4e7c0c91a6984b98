//! Processes that wait on one core: at most one of them spins there. They tell so by their counters.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ringway_report::{ProcessReport, RingReport};

/// Waits of one process. Each may by itself fail to spin for long enough, where the machine is busy.
const WAITS: u32 = 5;

/// For what takes microseconds unless the machine is busy.
const TIMEOUT: Duration = Duration::from_secs(30);

fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let library = profile.join("deps/libvma.so");
    assert!(library.exists(), "libvma.so is built with its tests");
    library
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("core_claims");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/core_claims.c");
        let made = Command::new("gcc").args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"]).arg(&program).arg(source).output();
        let made = made.expect("gcc must be installed");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        program
    })
}

/// The processors that this process may use.
fn processors() -> Vec<usize> {
    // SAFETY: all zeros is an empty set; the call fills it in, and the macros only read it.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(begin.elapsed() < TIMEOUT, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A preloaded process.
struct Waiter {
    child: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    port: u16,
}

impl Waiter {
    fn start(processor: usize, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program());
        command.arg(processor.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env_remove("VMA_SELECT_POLL").env_remove("VMA_RX_POLL").env("LD_PRELOAD", library()).envs(environment.iter().copied());
        let mut child = command.spawn().expect("the program starts");
        let (commands, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut waiter = Self { child, commands, answers: BufReader::new(output).lines(), port: 0 };
        waiter.port = waiter.answer().parse().expect("a port");
        waiter
    }

    fn tell(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("the program reads");
    }

    fn answer(&mut self) -> String {
        self.answers.next().expect("the program lives").expect("the program answers")
    }

    #[track_caller]
    fn done(&mut self) {
        assert_eq!(self.answer(), "done");
    }

    fn report(&self) -> ProcessReport {
        // SAFETY: no preconditions.
        let members = ringway_host::members::members(unsafe { libc::geteuid() }).expect("/proc/net/unix can be read");
        let pid = i32::try_from(self.child.id()).unwrap();
        let name = members.into_iter().find(|member| member.pid == pid).expect("it is a member").name;
        let reply = ringway_host::members::query(&name, "stats", TIMEOUT).expect("a reply");
        serde_json::from_str(&reply).expect("the report is JSON")
    }

    /// Claims of cores that it made, and those that were refused.
    fn core_claims(&self) -> (u64, u64) {
        let RingReport { core_claims, core_claims_refused, .. } = self.report().ring;
        (core_claims, core_claims_refused)
    }

    fn peers(&self) -> u32 {
        self.report().device.expect("it is offloaded").peers
    }

    /// Begins a wait that spins for ever, and returns once it has claimed its core.
    fn spin(&mut self) {
        let before = self.core_claims();
        self.tell("spin");
        until("the claim", || (self.core_claims() == (before.0 + 1, before.1)).then_some(()));
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process on each of these, with a connection between every two.
fn connected(processors: &[usize]) -> Vec<Waiter> {
    // The first spins for as long as it waits: what the user sets is kept to the letter.
    let environment = |i| if i == 0 { &[("VMA_SELECT_POLL", "-1")][..] } else { &[] };
    let mut waiters: Vec<_> = processors.iter().enumerate().map(|(i, &cpu)| Waiter::start(cpu, environment(i))).collect();
    for i in 0..waiters.len() {
        for j in 0..i {
            let port = waiters[j].port;
            waiters[j].tell("accept");
            waiters[i].tell(&format!("connect {port}"));
            waiters[j].done();
            waiters[i].done();
        }
    }
    for waiter in &waiters {
        assert_eq!(waiter.peers() as usize, waiters.len() - 1, "everyone has a link to everyone");
    }
    waiters
}

/// Lets all of them wait at once: how many claims each took, and was refused.
fn wait_all(waiters: &mut [Waiter]) -> Vec<(u64, u64)> {
    let before: Vec<_> = waiters.iter().map(Waiter::core_claims).collect();
    waiters.iter_mut().for_each(|waiter| waiter.tell(&format!("wait {WAITS}")));
    waiters.iter_mut().for_each(Waiter::done);
    let after = waiters.iter().map(Waiter::core_claims);
    before.iter().zip(after).map(|(before, after)| (after.0 - before.0, after.1 - before.1)).collect()
}

#[test]
fn processes_on_one_core_have_one_spinner() {
    let core = processors()[0];
    let mut waiters = connected(&[core; 4]);
    let (spinner, others) = waiters.split_first_mut().unwrap();
    spinner.spin();
    for (taken, refused) in wait_all(others) {
        assert_eq!(taken, 0, "a second process spun on the core");
        assert!(refused > 0, "no wait went as far as to ask for the claim");
    }
    spinner.child.kill().unwrap();
    spinner.child.wait().unwrap();
    others[0].tell("forget");
    others[0].done();
    let (taken, refused) = wait_all(&mut others[..1])[0];
    assert!(taken > 0, "a dead process still has the claim");
    assert_eq!(refused, 0);
}

#[test]
fn a_spinner_that_is_moved_takes_its_new_core_and_frees_the_old_one() {
    let &[from, to, ..] = &processors()[..] else {
        eprintln!("not run: it takes two processors");
        return;
    };
    let mut waiters = connected(&[from, from, to]);
    let (spinner, others) = waiters.split_first_mut().unwrap();
    spinner.spin();
    let [here, there] = wait_all(others)[..] else { unreachable!("two others") };
    assert!(here.0 == 0 && here.1 > 0, "it sits there: {here:?}");
    assert!(there.0 > 0 && there.1 == 0, "nobody sits there: {there:?}");
    let before = spinner.core_claims();
    // SAFETY: all zeros is an empty set; `to` is below its size, as a processor of such a set.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(to, &mut set);
        assert_eq!(libc::sched_setaffinity(spinner.child.id() as i32, size_of_val(&set), &raw const set), 0);
    }
    until("the new claim", || (spinner.core_claims() == (before.0 + 1, before.1)).then_some(()));
    let [here, there] = wait_all(others)[..] else { unreachable!("two others") };
    assert!(here.0 > 0 && here.1 == 0, "it has left: {here:?}");
    assert!(there.0 == 0 && there.1 > 0, "it sits there now: {there:?}");
}
