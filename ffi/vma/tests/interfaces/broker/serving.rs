//! A broker as a process of its own, and programs of a user whom it may serve.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use ringway_devices::broker::{Broker, BrokerSettings, Settings, Users};

use crate::cable::{Cable, DEVICE, Running, eventually, on_cable};
use crate::programs::library;

/// A user who may do nothing.
pub(crate) const NOBODY: &str = "65534";

/// Runs a test at our end of a cable, where a broker serves these users.
pub(crate) fn with_broker(users: &'static str, test: impl FnOnce(&Cable, &Serving) + Send + 'static) {
    on_cable(move |cable| test(cable, &Serving::begin(Folder::new(), users)));
}

/// A broker at the calling thread's end, with a folder where anybody may read.
pub(crate) struct Serving {
    folder: std::sync::Arc<Folder>,
    pid: i32,
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> std::sync::Arc<Self> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let name = format!("ringway-broker-{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let folder = Self(std::env::temp_dir().join(name));
        fs::create_dir(&folder.0).expect("a folder");
        fs::set_permissions(&folder.0, Permissions::from_mode(0o755)).expect("its mode");
        // (Where the build is, others may not look.)
        copy(&library(), &folder.0.join("libvma.so"));
        folder.into()
    }
}

/// (By another process: one that another test's thread starts meanwhile would have the file open to be written, and it could not be run.)
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().expect("cp(1)").success());
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Serving {
    fn begin(folder: std::sync::Arc<Folder>, users: &str) -> Self {
        let pid = fork(&folder, "socket", users, "log");
        let serving = Self { folder, pid };
        eventually("the broker serves", || serving.said("serves") == 1);
        serving
    }

    /// What another one says that listens there, or does not.
    pub(super) fn beside(&self, socket: &str) -> String {
        let other = Self { folder: self.folder.clone(), pid: fork(&self.folder, socket, NOBODY, "other") };
        other.first_line("other")
    }

    /// What so many say that begin at once.
    pub(super) fn at_once(count: usize) -> Vec<String> {
        let folder = Folder::new();
        let logs: Vec<String> = (0..count).map(|index| format!("log{index}")).collect();
        let all: Vec<_> = logs.iter().map(|log| Self { folder: folder.clone(), pid: fork(&folder, "socket", NOBODY, log) }).collect();
        all.iter().zip(&logs).map(|(serving, log)| serving.first_line(log)).collect()
    }

    fn first_line(&self, log: &str) -> String {
        let mut said = String::new();
        eventually("it says something", || {
            said = fs::read_to_string(self.folder.0.join(log)).expect("its log");
            said.ends_with('\n')
        });
        said
    }

    /// Another one, in its place.
    pub(crate) fn again(&self, users: &str) -> Self {
        Self::begin(self.folder.clone(), users)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.0.join("socket")
    }

    /// How often it has said that.
    pub(crate) fn said(&self, what: &str) -> usize {
        let text = fs::read_to_string(self.folder.0.join("log")).expect("its log");
        text.lines().filter(|line| line.contains(what)).count()
    }

    /// Starts a program as nobody, without any privilege.
    pub(crate) fn start(&self, program: &Path, arguments: &[&str]) -> Running {
        let own = self.folder.0.join(program.file_name().expect("a file"));
        if !own.exists() {
            copy(program, &own);
        }
        let mut command = Command::new("timeout");
        command.args(["60", "setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "env"]);
        command.arg(format!("LD_PRELOAD={}", self.folder.0.join("libvma.so").display())).arg(own).args(arguments);
        command.env("VMA_CONFIG_FILE", "").env("RINGWAY_DEVICE", DEVICE).env("RINGWAY_BROKER", self.socket());
        Running::start(command)
    }

    pub(crate) fn signal(&self, which: i32) {
        // SAFETY: plain integers; it is our child, and was not waited for yet.
        assert_eq!(unsafe { libc::kill(self.pid, which) }, 0);
    }

    /// Ends it as no process can help.
    pub(crate) fn kill(&self) {
        // SAFETY: plain integers; it is our child, and was not waited for yet, or this fails.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, core::ptr::null_mut(), 0);
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Begins a broker, as a process.
fn fork(folder: &Folder, socket: &str, users: &str, log: &str) -> i32 {
    let log = File::options().create(true).append(true).open(folder.0.join(log)).expect("a file");
    log.set_len(0).expect("it is ours");
    let users = Users::parse(users).expect("numbers");
    let settings = BrokerSettings { interfaces: vec![Settings::new("a0")], users, socket: folder.0.join(socket) };
    // SAFETY: the child does what a process of one thread may, and ends without a look back. What other threads of this one have open it closes.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        serve(settings, log);
    }
    pid
}

/// The broker's process.
fn serve(settings: BrokerSettings, mut log: File) -> ! {
    let served = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        let own = std::os::fd::AsRawFd::as_raw_fd(&log) as u32;
        // SAFETY: plain integers. (It ends with the thread that has begun it. What it closes is the parent's, but its log.)
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::syscall(libc::SYS_close_range, 3, own - 1, 0);
            libc::syscall(libc::SYS_close_range, own + 1, u32::MAX, 0);
        }
        let (stop, _never) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let mut out = log.try_clone().expect("a copy");
        let mut tell = move |event| writeln!(out, "{event}").expect("a file");
        match Broker::start(settings, &mut tell) {
            Ok(mut broker) => {
                writeln!(log, "serves").expect("a file");
                let result = broker.run(stop.as_fd(), &mut tell);
                writeln!(log, "has ended: {result:?}").expect("a file");
            }
            Err(error) => writeln!(log, "does not begin: {error}").expect("a file"),
        }
    }));
    // SAFETY: nothing of the parent's is to run here.
    unsafe { libc::_exit(i32::from(served.is_err())) }
}
