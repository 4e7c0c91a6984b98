//! `ringway broker` as a program, in a network namespace of the test's own: how it begins and ends, with the privileges that its unit leaves it, and what the doctor
//! says of it. (What programs do with it is tried in `ffi/vma/tests/interfaces/broker.rs`.)

#[path = "../../../backends/host/tests/leave/namespaces.rs"]
#[allow(dead_code, reason = "each test has its own needs")]
mod namespaces;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use namespaces::{ip, new_namespace};

const PATIENCE: Duration = Duration::from_secs(30);

/// What the unit's CapabilityBoundingSet leaves; and CAP_IPC_LOCK in place of its LimitMEMLOCK, which not every test may set.
const BOUNDS: &str = "--bounding-set=-all,+net_admin,+net_raw,+bpf,+ipc_lock";
/// The same without the latter.
const AND_A_LIMIT: &str = "--bounding-set=-all,+net_admin,+net_raw,+bpf";

/// A namespace with an interface, and a folder where everybody may read; both are the thread's.
struct Place {
    folder: PathBuf,
    command: PathBuf,
}

/// Runs a test there. It fails where CI is set and there are none to be had; elsewhere it says so.
fn in_place(test: impl FnOnce(&Place) + Send + 'static) {
    let is_made = std::thread::spawn(|| {
        new_namespace()?;
        Command::new("ip").arg("-V").output().ok()?;
        ip("link add a0 type veth peer name b0\nlink set a0 up\nlink set b0 up\naddr add 10.79.0.1/24 dev a0\n");
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let name = format!("ringway-cli-broker-{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).expect("a folder");
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("its mode");
        let command = folder.join("ringway");
        // (By another process: one that another test's thread starts meanwhile would have the file open to be written, and it could not be run.)
        let is_copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_ringway")).arg(&command).status();
        assert!(is_copied.expect("cp(1)").success());
        test(&Place { folder, command });
        Some(())
    });
    if is_made.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).is_none() {
        assert!(std::env::var_os("CI").is_none(), "no network namespaces, or no ip(8), are to be had");
        eprintln!("left out: network namespaces need root, and ip(8)");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Place {
    fn socket(&self) -> PathBuf {
        self.folder.join("run/broker")
    }

    /// The command, as setpriv(1) is told to run it.
    fn setpriv(&self, how: &[&str], words: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(how).arg(&self.command).args(words).env("RINGWAY_BROKER", self.socket()).env_remove("RINGWAY_DEVICE");
        command
    }

    fn broker(&self, how: &[&str], users: &str) -> Command {
        let mut command = self.setpriv(how, &["broker", "--device", "xdp:a0", "--users", users, "--socket"]);
        command.arg(self.socket()).stderr(Stdio::piped());
        command
    }

    /// One that has begun to serve.
    fn serving(&self, users: &str) -> Child {
        let mut child = self.broker(&[BOUNDS], users).spawn().expect("setpriv(1)");
        let began = Instant::now();
        while !self.socket().exists() {
            assert!(child.try_wait().expect("a child").is_none(), "{}", text(&child.wait_with_output().expect("its words").stderr));
            assert!(began.elapsed() < PATIENCE, "no broker listens");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }

    /// What it ends by at once, and says.
    fn refuses(&self, how: &[&str], users: &str) -> String {
        let broker = self.broker(how, users);
        let mut command = Command::new("timeout");
        command.arg("20").arg(broker.get_program()).args(broker.get_args()).stdin(Stdio::null());
        let output = command.output().expect("timeout(1) is part of coreutils");
        let said = text(&output.stderr);
        assert!(!output.status.success() && output.status.code() != Some(124), "{how:?} {users}: {:?} {said}", output.status);
        said
    }

    /// What the doctor says of interfaces to a user.
    fn doctor(&self, uid: &str) -> String {
        let how = ["--reuid", uid, "--regid", uid, "--clear-groups"];
        let Output { stdout, .. } = self.setpriv(&how, &["doctor"]).output().expect("setpriv(1)");
        let said = text(&stdout);
        said.lines().find(|line| line.trim_start().starts_with("xdp")).expect("the device's line").to_owned()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn it_serves_with_what_the_unit_leaves_it_until_it_is_told_to_end() {
    in_place(|place| {
        let child = place.serving("nobody");
        assert_eq!(fs::metadata(place.socket()).expect("the socket").permissions().mode() & 0o777, 0o666);
        let said = place.doctor("65534");
        assert!(said.contains("yes") && said.contains(&format!("by the broker at {}: a0", place.socket().display())), "{said}");
        let said = place.doctor("65533");
        assert!(said.contains("no") && said.contains("user 65533 is not one of its users (ringway broker --users)"), "{said}");
        let said = place.refuses(&[BOUNDS], "");
        assert!(said.contains("a broker listens at") && said.contains("already"), "{said}");
        // SAFETY: plain integers.
        assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
        let output = child.wait_with_output().expect("it ends");
        let said = text(&output.stderr);
        assert!(output.status.success() && said.contains("serves a0 of root and 65534"), "{:?} {said}", output.status);
        assert!(!place.socket().exists());
        let said = place.doctor("65534");
        assert!(said.contains(&format!("CAP_BPF, and no broker listens at {}", place.socket().display())), "{said}");
    });
}

#[test]
fn one_that_was_killed_is_in_nobodys_way() {
    in_place(|place| {
        let mut child = place.serving("");
        child.kill().expect("it lives");
        child.wait().expect("it ends");
        assert!(place.socket().exists());
        let mut child = place.broker(&[BOUNDS], "nobody").spawn().expect("setpriv(1)");
        let began = Instant::now();
        while !place.doctor("65534").contains("by the broker") {
            assert!(began.elapsed() < PATIENCE, "nobody is served");
        }
        child.kill().expect("it lives");
        child.wait().expect("it ends");
    });
}

#[test]
fn what_is_in_its_way_it_says() {
    in_place(|place| {
        for without in ["net_admin", "net_raw", "bpf"] {
            // (CAP_SYS_ADMIN does for CAP_BPF.)
            let bounds = format!("--bounding-set=-sys_admin,-{without}");
            let said = place.refuses(&[&bounds], "");
            let name = format!("CAP_{}", without.to_uppercase());
            assert!(said.contains("a0: ") && said.contains(&name), "{without}: {said}");
        }
        if rustix::process::getrlimit(rustix::process::Resource::Memlock).current.is_some_and(|most| most < 12 << 20) {
            let said = place.refuses(&[AND_A_LIMIT], "");
            assert!(said.contains("RLIMIT_MEMLOCK is too low"), "{said}");
        }
        let said = place.refuses(&[BOUNDS], "no such user");
        assert!(said.contains("no user is called \"no such user\""), "{said}");
        fs::create_dir_all(place.socket().parent().expect("a folder")).expect("a folder");
        fs::write(place.socket(), "not a socket").expect("a file");
        let said = place.refuses(&[BOUNDS], "");
        assert!(said.contains("run/broker"), "{said}");
        ip("link del a0\n");
        let said = place.refuses(&[BOUNDS], "");
        assert!(said.contains("no interface is called a0"), "{said}");
    });
}
