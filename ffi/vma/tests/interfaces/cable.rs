//! Two ends of a cable, and programs at them.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::namespaces::{enter, ip, new_namespace};
use crate::programs::{compile, library};

pub(crate) const DEVICE: &str = "shm,xdp:a0";
pub(crate) const PORT: &str = "7100";

/// How long what is done by others may take, on a machine that has much to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// Our end of the cable is the calling thread's, and its children's.
pub(crate) struct Cable {
    there: File,
    pub(crate) program: PathBuf,
    several: PathBuf,
}

/// Addresses of both ends.
pub(crate) const ENDS: [[&str; 2]; 2] = [["10.78.0.1", "10.78.0.2"], ["fd78::1", "fd78::2"]];

/// Runs a test at our end, in a thread of its own.
pub(crate) fn on_cable(test: impl FnOnce(&Cable) + Send + 'static) {
    on_cable_of(1, test);
}

/// The same of a cable between interfaces with so many queues.
pub(crate) fn on_cable_of(queues: u32, test: impl FnOnce(&Cable) + Send + 'static) {
    let is_made = std::thread::spawn(move || Cable::lay(queues).map(|cable| test(&cable)).is_some()).join();
    if !is_made.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
        assert!(std::env::var_os("CI").is_none(), "no network namespaces, or no ip(8), are to be had");
        eprintln!("left out: network namespaces need root, and ip(8)");
    }
}

impl Cable {
    fn lay(queues: u32) -> Option<Self> {
        let here = new_namespace()?;
        let there = new_namespace()?;
        Command::new("ip").arg("-V").output().ok()?;
        let (id, fd) = (std::process::id(), here.as_raw_fd());
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        ip(&format!("link add b0 {queues} type veth peer name a0 {queues}\nlink set a0 netns /proc/{id}/fd/{fd}\n"));
        let [addresses_here, addresses_there] = [0, 1].map(|end| {
            let [v4, v6] = ENDS.map(|ends| ends[end]);
            move |name| format!("link set lo up\nlink set {name} up\naddr add {v4}/24 dev {name}\naddr add {v6}/64 dev {name} nodad\n")
        });
        ip(&addresses_there("b0"));
        enter(&here);
        ip(&addresses_here("a0"));
        Some(Self { there, program: compile("tests/c/far.c"), several: compile("tests/c/several.c") })
    }

    /// Starts the program at our end, on the interface.
    pub(crate) fn here(&self, arguments: &[&str]) -> Running {
        self.here_of(&self.program, arguments)
    }

    /// Starts another one there.
    pub(crate) fn here_of(&self, program: &Path, arguments: &[&str]) -> Running {
        Self::preloaded(program, arguments, &[])
    }

    /// The same of the program for sockets with several flows.
    pub(crate) fn several(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Running {
        Self::preloaded(&self.several, arguments, environment)
    }

    /// The same at our end, on the kernel.
    pub(crate) fn kernels(&self, arguments: &[&str]) -> Running {
        Self::kernels_of(&self.several, arguments)
    }

    /// The same of another one.
    pub(crate) fn kernels_of(program: &Path, arguments: &[&str]) -> Running {
        let mut command = Command::new("timeout");
        command.arg("60").arg(program).args(arguments);
        Running::start(command)
    }

    /// Starts a program at our end, with more in its environment.
    pub(crate) fn preloaded(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Running {
        let mut command = Command::new("timeout");
        command.arg("60").arg(program).args(arguments).env("VMA_CONFIG_FILE", "");
        command.env("LD_PRELOAD", library()).env("RINGWAY_DEVICE", DEVICE).envs(environment.iter().copied());
        Running::start(command)
    }

    /// Has a program that talks to a server at the other end do so, and returns how many datagrams our kernel has sent and received meanwhile.
    pub(crate) fn with_server(&self, there: &str, talk: impl FnOnce()) -> [u64; 2] {
        let (mut before, mut after) = ([0; 2], [0; 2]);
        self.while_served(&self.program, &["serve", there, PORT], || {
            before = datagrams();
            talk();
            after = datagrams();
            self.here(&["quit", there, PORT]).ends_well();
        });
        [after[0] - before[0], after[1] - before[1]]
    }

    /// Does something while a server of the kernel's listens there, which ends well afterwards.
    pub(crate) fn while_served(&self, program: &Path, arguments: &[&str], work: impl FnOnce()) {
        let server = self.there_of(program, arguments);
        self.await_listener(false);
        work();
        server.join().expect("the kernel's program");
    }

    /// Runs the program at the other end, on the kernel.
    pub(crate) fn there(&self, arguments: &[&str]) -> JoinHandle<()> {
        self.there_of(&self.program, arguments)
    }

    /// Runs another one there.
    pub(crate) fn there_of(&self, program: &Path, arguments: &[&str]) -> JoinHandle<()> {
        let running = self.start_there(program, arguments);
        std::thread::spawn(|| running.ends_well())
    }

    /// Starts a program there, on the kernel.
    pub(crate) fn start_there(&self, program: &Path, arguments: &[&str]) -> Running {
        let mut command = Command::new("timeout");
        command.arg("60").arg(program).args(arguments);
        self.within_there(|| Running::start(command))
    }

    /// Does something there.
    pub(crate) fn within_there<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let there = self.there.try_clone().expect("a descriptor");
        // (Who has entered a namespace stays there.)
        let thread = std::thread::spawn(move || {
            enter(&there);
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Waits until somebody listens there.
    pub(crate) fn await_listener(&self, is_here: bool) {
        self.await_sockets(is_here, "tcp", " 0A ", 1);
    }

    /// Waits until so many sockets of a protocol have the port, in that state.
    pub(crate) fn await_sockets(&self, is_here: bool, protocol: &'static str, state: &'static str, count: usize) {
        let look = move || {
            let wanted = format!(":{:04X} ", PORT.parse::<u16>().expect("a port"));
            let of = |table| fs::read_to_string(format!("/proc/thread-self/net/{protocol}{table}")).unwrap_or_default();
            eventually("sockets have the port", || {
                let all = [of(""), of("6")].concat();
                all.lines().filter(|line| line.contains(&wanted) && line.contains(state)).count() == count
            });
        };
        if is_here { look() } else { self.within_there(look) }
    }
}

/// Waits until something holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether there is a program in front of our interface.
pub(crate) fn has_program() -> bool {
    let shown = Command::new("ip").args(["-details", "link", "show", "a0"]).output().expect("ip(8)");
    String::from_utf8_lossy(&shown.stdout).contains("prog/xdp")
}

/// Waits until nothing of ours is left in front of the interface. (The kernel ends a link a little later than its last descriptor.)
pub(crate) fn await_nothing_left() {
    eventually("no program is in front of the interface", || !has_program());
}

pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("timeout(1) is part of coreutils"))
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_some()
    }

    /// Ends its standard input.
    pub(crate) fn close_input(&mut self) {
        drop(self.0.stdin.take());
    }

    /// Gives it a byte to read.
    pub(crate) fn ask(&mut self) {
        self.0.stdin.as_mut().expect("piped").write_all(b"?").expect("it reads");
    }

    /// The line that it says next.
    pub(crate) fn line(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while self.0.stdout.as_mut().expect("piped").read(&mut byte).expect("a pipe") == 1 && byte != *b"\n" {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).into_owned()
    }

    /// The program itself, which timeout(1) has started.
    pub(crate) fn pid(&self) -> i32 {
        let children = format!("/proc/{0}/task/{0}/children", self.0.id());
        let mut pid = None;
        eventually("timeout(1) has a child", || {
            let text = fs::read_to_string(&children).unwrap_or_default();
            pid = text.split_whitespace().next().and_then(|pid| pid.parse().ok());
            pid.is_some()
        });
        pid.expect("it has one")
    }

    /// Waits until it says so.
    pub(crate) fn await_ready(&mut self) {
        let mut said = [0; 6];
        let found = self.0.stdout.as_mut().expect("piped").read_exact(&mut said);
        assert!(found.is_ok() && said == *b"ready\n", "{found:?}: {}", String::from_utf8_lossy(&said));
    }

    /// Kills it.
    pub(crate) fn kill(self) {
        // SAFETY: plain integers.
        assert_eq!(unsafe { libc::kill(self.pid(), libc::SIGKILL) }, 0);
        let output = self.0.wait_with_output().expect("it ends");
        // (timeout(1) ends by the same signal.)
        let is_killed = output.status.signal() == Some(libc::SIGKILL) || output.status.code() == Some(128 + libc::SIGKILL);
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        assert!(is_killed && said.iter().all(String::is_empty), "{:?}\n{}", output.status, said.concat());
    }

    /// Ends it, whatever it says.
    pub(crate) fn end(mut self) {
        // SAFETY: plain integers.
        unsafe { libc::kill(self.pid(), libc::SIGKILL) };
        self.0.wait().expect("it ends");
    }

    /// It ends well, and has nothing to say.
    pub(crate) fn ends_well(self) {
        let said = self.says();
        assert!(said.is_empty(), "{said}");
    }

    /// What it prints, in an end that is well.
    pub(crate) fn prints(self) -> String {
        let output = self.0.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What it has to say to its log, in an end that is well.
    pub(crate) fn says(mut self) -> String {
        let mut said = String::new();
        let mut log = self.0.stderr.take().expect("piped");
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            log.read_to_string(&mut text).expect("text");
            text
        });
        self.0.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
        let (status, log) = (self.0.wait().expect("it ends"), reader.join().expect("it ends"));
        assert!(status.success() && said.is_empty(), "{status:?}\n{said}{log}");
        log
    }
}

/// Datagrams that our end's kernel has sent and received.
fn datagrams() -> [u64; 2] {
    let snmp = fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
    let line = snmp.lines().filter(|line| line.starts_with("Udp:")).nth(1).expect("its numbers");
    let v4: Vec<u64> = line.split_whitespace().skip(1).map(|number| number.parse().expect("a number")).collect();
    let snmp6 = fs::read_to_string("/proc/thread-self/net/snmp6").expect("counters");
    let v6 = |name| -> u64 {
        let of = |line: &str| line.split_once(char::is_whitespace).filter(|(key, _)| *key == name)?.1.trim().parse().ok();
        snmp6.lines().find_map(of).unwrap_or(0)
    };
    [v4[3] + v6("Udp6OutDatagrams"), v4[0] + v6("Udp6InDatagrams")]
}
