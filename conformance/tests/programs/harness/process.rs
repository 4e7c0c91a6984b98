//! Programs: started in a process group of their own, with a time limit, their output in files of the case's directory.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{Case, End, PATIENCE, eventually};

static SERIAL: AtomicU32 = AtomicU32::new(0);

/// A program about to be started.
pub(crate) struct Launch<'c> {
    case: &'c Case,
    command: Command,
    label: String,
    /// Where it runs, if not here.
    end: Option<&'c End>,
}

impl<'c> Launch<'c> {
    pub(super) fn new(case: &'c Case, program: &str) -> Self {
        let mut command = Command::new(program);
        command.current_dir(&case.scratch).stdin(Stdio::null()).process_group(0);
        // The harness's own environment must not decide what a program runs on.
        for name in [
            "LD_PRELOAD",
            "RINGWAY_DEVICE",
            "RINGWAY_LIBVMA",
            "RINGWAY_LIBRSPRELOAD",
            "RINGWAY_LIBCONNECTX",
            "RINGWAY_PROGRAMS",
            "RDMAV_FORK_SAFE",
        ] {
            command.env_remove(name);
        }
        let label = Path::new(program).file_name().map_or_else(|| program.to_owned(), |n| n.to_string_lossy().into_owned());
        Self { case, command, label, end: None }
    }

    /// At an end of a cable.
    pub(crate) fn at(mut self, end: &'c End) -> Self {
        self.end = Some(end);
        self
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Arguments, separated by blanks.
    pub(crate) fn args(mut self, args: &str) -> Self {
        self.command.args(args.split_whitespace());
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn stdin(mut self, path: &Path) -> Self {
        self.command.stdin(File::open(path).expect("standard input"));
        self
    }

    /// Starts it.
    pub(crate) fn spawn(mut self) -> Running {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let file = |kind: &str| self.case.path(&format!("{}.{serial}.{kind}", self.label));
        let (out, err) = (file("out"), file("err"));
        self.command.stdout(File::create(&out).expect("output file")).stderr(File::create(&err).expect("output file"));
        let spawned = match self.end {
            Some(end) => end.within(|| self.command.spawn()),
            None => self.command.spawn(),
        };
        let child = spawned.unwrap_or_else(|e| panic!("{}: {e}; cargo xtask test installs it", self.label));
        Running { child, label: self.label, out, err, ended: false }
    }

    /// Starts it, and waits until something listens on (TCP) or is bound to (UDP) `port`.
    pub(crate) fn serve(self, port: u16) -> Running {
        let is_preloaded = self.command.get_envs().any(|(name, value)| name == "LD_PRELOAD" && value.is_some());
        let (before, end) = (published(), self.end);
        let mut server = self.spawn();
        server.wait_bound(port, &end.map_or_else(|| PathBuf::from("/proc/net"), End::proc_net));
        // (Who is at the other end of a cable asks by the interface, where the port's rules are there as soon as it is bound.)
        if is_preloaded && end.is_none() {
            await_published(before);
        }
        server
    }

    /// Starts it, and waits for a clean end.
    pub(crate) fn run(self) -> Output {
        self.spawn().finish()
    }
}

/// A program that was started. If it still runs when this is dropped, it is killed with its group.
pub(crate) struct Running {
    child: Child,
    label: String,
    out: PathBuf,
    err: PathBuf,
    ended: bool,
}

/// What an ended program wrote, and how it ended.
pub(crate) struct Output {
    pub(crate) label: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) status: ExitStatus,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to standard output until now.
    pub(crate) fn stdout(&self) -> String {
        read(&self.out)
    }

    /// Waits for the line `text` on its standard output.
    pub(crate) fn wait_line(&mut self, text: &str) {
        self.wait_until(&format!("the line {text:?}"), |this| this.stdout().lines().any(|l| l == text));
    }

    /// Waits until `text` is part of what it has written to standard output.
    pub(crate) fn wait_said(&mut self, text: &str) {
        self.wait_until(&format!("{text:?}"), |this| this.stdout().contains(text));
    }

    fn wait_bound(&mut self, port: u16, proc_net: &Path) {
        self.wait_until(&format!("port {port} is bound"), |_| bound(port, proc_net));
    }

    fn wait_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        eventually(&format!("{}: {what}", self.label), PATIENCE, || {
            if let Some(status) = self.child.try_wait().expect("wait") {
                self.ended = true;
                assert!(condition(self), "{} ended ({status}) before {what}:\n{}{}", self.label, read(&self.out), read(&self.err));
            }
            condition(self)
        });
    }

    /// Waits for its end, whatever it is.
    pub(crate) fn wait(mut self) -> Output {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                break status;
            }
            assert!(Instant::now() < deadline, "{} did not end within {PATIENCE:?}:\n{}{}", self.label, read(&self.out), read(&self.err));
            std::thread::sleep(Duration::from_millis(2));
        };
        self.ended = true;
        Output { label: self.label.clone(), stdout: read(&self.out), stderr: read(&self.err), status }
    }

    /// Waits for its end, which must be clean.
    pub(crate) fn finish(self) -> Output {
        self.wait().expect_success()
    }

    /// Asks it to end as a person would (SIGTERM or SIGINT), and waits for a clean end.
    pub(crate) fn stop(self, signal: Signal) -> Output {
        self.signal(signal);
        self.finish()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("kill");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Not if it ended by itself: a daemon to be is in its parent's group until it has called setsid().
        if !self.ended {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Output {
    pub(crate) fn expect_success(self) -> Self {
        let Output { label, stdout, stderr, status } = &self;
        assert!(status.success(), "{label} ended badly ({status}, signal {:?}):\n{stdout}{stderr}", status.signal());
        self
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// How long a server that is preloaded may take from where its port is bound to where it is known to Ringway's peers. (One whose port is the kernel's alone never
/// is.) Between the two, whoever asks goes by the kernel, which is right, and would be counted.
const PUBLISHED_WITHIN: Duration = Duration::from_millis(500);

fn await_published(before: usize) {
    let deadline = Instant::now() + PUBLISHED_WITHIN;
    while published() <= before && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How many addresses and sockets Ringway's processes have published in this network namespace.
fn published() -> usize {
    let names = fs::read_to_string("/proc/net/unix").expect("/proc/net/unix");
    let is_published = |line: &&str| {
        line.contains("@ringway/") && ["/tcp/", "/udp/", "/socket/", "/rdma-tcp/", "/rdma-udp/"].iter().any(|kind| line.contains(kind))
    };
    names.lines().filter(is_published).count()
}

/// Whether `port` is bound in a network namespace: a TCP listener, or a UDP socket.
fn bound(port: u16, proc_net: &Path) -> bool {
    let table = |name: &str, state: &str| {
        let text = fs::read_to_string(proc_net.join(name)).unwrap_or_default();
        text.lines().skip(1).any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next().and_then(|l| l.rsplit_once(':')).and_then(|(_, p)| u16::from_str_radix(p, 16).ok());
            local == Some(port) && fields.nth(1) == Some(state)
        })
    };
    // TCP_LISTEN is 0A; an unconnected UDP socket shows 07 (TCP_CLOSE).
    table("tcp", "0A") || table("tcp6", "0A") || table("udp", "07") || table("udp6", "07")
}
