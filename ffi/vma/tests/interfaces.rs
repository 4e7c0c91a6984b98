//! A program on an interface (RINGWAY_DEVICE=shm,xdp:IF) and one of the kernel's at the other end of a cable: two network namespaces and a veth pair, which are
//! the test's own. They take root; where CI is set they must be had.

#[path = "extra/programs.rs"]
mod programs;

#[path = "../../../backends/host/tests/leave/namespaces.rs"]
#[allow(dead_code, reason = "each test has its own needs")]
mod namespaces;

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use namespaces::{enter, ip, new_namespace};
use programs::{compile, library};

const DEVICE: &str = "shm,xdp:a0";
const PORT: &str = "7100";

/// Our end of the cable is the calling thread's, and its children's.
struct Cable {
    there: File,
    program: PathBuf,
}

/// Addresses of both ends.
const ENDS: [[&str; 2]; 2] = [["10.78.0.1", "10.78.0.2"], ["fd78::1", "fd78::2"]];

/// Runs a test at our end, in a thread of its own.
fn on_cable(test: impl FnOnce(&Cable) + Send + 'static) {
    let is_made = std::thread::spawn(|| Cable::lay().map(|cable| test(&cable)).is_some()).join();
    if !is_made.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
        assert!(std::env::var_os("CI").is_none(), "no network namespaces, or no ip(8), are to be had");
        eprintln!("left out: network namespaces need root, and ip(8)");
    }
}

impl Cable {
    fn lay() -> Option<Self> {
        let here = new_namespace()?;
        let there = new_namespace()?;
        Command::new("ip").arg("-V").output().ok()?;
        let (id, fd) = (std::process::id(), here.as_raw_fd());
        ip(&format!("link add b0 type veth peer name a0\nlink set a0 netns /proc/{id}/fd/{fd}\n"));
        let [addresses_here, addresses_there] = [0, 1].map(|end| {
            let [v4, v6] = ENDS.map(|ends| ends[end]);
            move |name| format!("link set lo up\nlink set {name} up\naddr add {v4}/24 dev {name}\naddr add {v6}/64 dev {name} nodad\n")
        });
        ip(&addresses_there("b0"));
        enter(&here);
        ip(&addresses_here("a0"));
        Some(Self { there, program: compile("tests/c/far.c") })
    }

    /// Starts the program at our end, on the interface.
    fn here(&self, arguments: &[&str]) -> Running {
        let mut command = Command::new("timeout");
        command.arg("60").arg(&self.program).args(arguments);
        command.env("LD_PRELOAD", library()).env("RINGWAY_DEVICE", DEVICE).env("VMA_CONFIG_FILE", "");
        Running::start(command)
    }

    /// Runs the program at the other end, on the kernel.
    fn there(&self, arguments: &[&str]) -> JoinHandle<()> {
        let (there, program) = (self.there.try_clone().expect("a descriptor"), self.program.clone());
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            enter(&there);
            let mut command = Command::new("timeout");
            command.arg("60").arg(program).args(arguments);
            let running = Running::start(command);
            tell.send(()).expect("somebody waits");
            running.ends_well();
        });
        told.recv().expect("it has started");
        thread
    }

    /// Waits until somebody listens there.
    fn await_listener(&self, is_here: bool) {
        let there = self.there.try_clone().expect("a descriptor");
        let look = move || {
            if !is_here {
                enter(&there);
            }
            let wanted = format!(":{:04X} ", PORT.parse::<u16>().expect("a port"));
            let listens = || {
                ["tcp", "tcp6"].iter().any(|table| {
                    let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
                    text.lines().any(|line| line.contains(&wanted) && line.contains(" 0A "))
                })
            };
            let end = Instant::now() + Duration::from_secs(20);
            while !listens() {
                assert!(Instant::now() < end, "nobody listens");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        // (Who has entered a namespace stays there.)
        if is_here { look() } else { std::thread::spawn(look).join().expect("somebody listens") }
    }
}

struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Self {
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("timeout(1) is part of coreutils"))
    }

    /// It ends well, and has nothing to say.
    fn ends_well(self) {
        let said = self.says();
        assert!(said.is_empty(), "{said}");
    }

    /// What it has to say to its log, in an end that is well.
    fn says(mut self) -> String {
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

/// Segments and datagrams that our end's kernel has received.
fn kernels() -> [u64; 2] {
    let snmp = fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
    let of = |kind: &str, field: usize| -> u64 {
        let line = snmp.lines().filter(|line| line.starts_with(kind)).nth(1).expect("its numbers");
        line.split_whitespace().nth(field).and_then(|number| number.parse().ok()).expect("a number")
    };
    let snmp6 = fs::read_to_string("/proc/thread-self/net/snmp6").expect("counters");
    let v6 = snmp6.lines().find_map(|line| line.strip_prefix("Udp6InDatagrams")).and_then(|rest| rest.trim().parse::<u64>().ok());
    [of("Tcp:", 10), of("Udp:", 1) + v6.unwrap_or(0)]
}

#[test]
fn a_program_talks_over_the_interface_and_the_kernel_sees_none_of_it() {
    on_cable(|cable| {
        for [_, there] in ENDS {
            let before = kernels();
            let server = cable.there(&["serve", there, PORT]);
            cable.await_listener(false);
            cable.here(&["talk", there, PORT]).ends_well();
            server.join().expect("the kernel's program");
            assert_eq!(kernels()[1], before[1], "datagrams came by the ring");
            // (A connection that nobody accepts is the kernel's to try once more; and what is left of one that is over, when its process is, is the kernel's to refuse.)
            assert!(kernels()[0] - before[0] < 8, "and so did streams: {:?} {before:?}", kernels());
        }
    });
}

#[test]
fn a_program_serves_those_who_come_by_the_interface() {
    on_cable(|cable| {
        for [here, _] in ENDS {
            for address in [here, if here.contains(':') { "::" } else { "0.0.0.0" }] {
                let before = kernels();
                let server = cable.here(&["serve", address, PORT]);
                cable.await_listener(true);
                cable.there(&["talk", here, PORT]).join().expect("the kernel's program");
                server.ends_well();
                assert_eq!(kernels()[1], before[1], "datagrams came by the ring ({address})");
                assert!(kernels()[0] - before[0] < 8, "and so did streams: {:?} {before:?} ({address})", kernels());
            }
        }
    });
}

#[test]
fn one_server_has_peers_of_all_kinds() {
    on_cable(|cable| {
        let [here, _] = ENDS[0];
        let server = cable.here(&["serve", "0.0.0.0", PORT]);
        cable.await_listener(true);
        // By shared memory, by the kernel's loopback, and by the interface.
        cable.here(&["exchange", "127.0.0.1", PORT]).says();
        let mut by_kernel = Command::new(&cable.program);
        by_kernel.args(["exchange", "127.0.0.1", PORT]);
        Running::start(by_kernel).ends_well();
        cable.there(&["exchange", here, PORT]).join().expect("the kernel's program");
        cable.there(&["talk", here, PORT]).join().expect("the kernel's program");
        server.ends_well();
    });
}

#[test]
fn a_connection_that_a_child_goes_on_with_is_the_kernels() {
    on_cable(|cable| {
        let [_, there] = ENDS[0];
        let server = cable.there(&["serve", there, PORT]);
        cable.await_listener(false);
        cable.here(&["fork", there, PORT]).ends_well();
        server.join().expect("the kernel's program");
    });
}

#[test]
fn a_server_forks_for_each_connection() {
    on_cable(|cable| {
        let [here, _] = ENDS[0];
        let server = cable.here(&["forking", here, PORT]);
        cable.await_listener(true);
        for _ in 0..2 {
            cable.there(&["exchange", here, PORT]).join().expect("the kernel's program");
        }
        server.ends_well();
    });
}

#[test]
fn nobody_is_unreachable() {
    on_cable(|cable| {
        for nobody in ["10.78.0.99", "fd78::99"] {
            cable.here(&["nobody", nobody, PORT]).ends_well();
        }
    });
}

#[test]
fn without_the_privileges_the_kernel_serves_and_one_line_says_what_is_missing() {
    on_cable(|cable| {
        let [_, there] = ENDS[0];
        let server = cable.there(&["serve", there, PORT]);
        cable.await_listener(false);
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-bpf,-sys_admin", "--inh-caps=-bpf,-sys_admin"]).arg(&cable.program).args(["talk", there, PORT]);
        command.env("LD_PRELOAD", library()).env("RINGWAY_DEVICE", DEVICE).env("VMA_CONFIG_FILE", "");
        let log = Running::start(command).says();
        server.join().expect("the kernel's program");
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("a0")).collect();
        let [line] = lines[..] else { panic!("{log}") };
        assert!(line.contains("the process lacks CAP_BPF"), "{line}");
    });
}
