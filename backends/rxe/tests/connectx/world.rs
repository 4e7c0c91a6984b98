//! Two processes that have the software ConnectX, on one bus, and a socket between them by which they tell each other of their queue pairs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What is waited for, at most.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// In the environment of a process that has the card: what it is to be.
const ROLE: &str = "RINGWAY_RXE_TEST_ROLE";
const BUS: &str = "RINGWAY_CONNECTX_BUS";

/// The library that was built with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let library = test.parent().expect("target/<profile>/deps/<test>").join("libringway_connectx.so");
    assert!(library.exists(), "ringway-uverbs is built with the package's tests");
    library
}

fn start(test: &str, role: &str, bus: &str) -> Child {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", "env"]).arg(format!("LD_PRELOAD={}", library().display()));
    command.arg(std::env::current_exe().expect("the test has a path")).args(["--exact", test, "--nocapture"]);
    command.env(ROLE, role).env(BUS, bus).env("RINGWAY_CONNECTX_LOG", "1").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("timeout(1) and env(1)")
}

/// Runs a test of this crate, by its name, in two processes, each with its part.
pub(crate) fn on_cards(test: &str, asks: fn(Other), serves: fn(Other)) {
    match std::env::var(ROLE).as_deref() {
        Ok("asks") => return asks(Other::find()),
        Ok("serves") => return serves(Other::await_it()),
        _ => {}
    }
    let bus = format!("rxe-{test}-{}", std::process::id());
    let children = ["serves", "asks"].map(|role| (role, start(test, role, &bus)));
    for (role, child) in children {
        let output = child.wait_with_output().expect("its output");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{test}, as {role} (Debian's ibverbs-providers is needed): {said}");
    }
}

/// The other process.
pub(crate) struct Other(BufReader<UnixStream>);

impl Other {
    fn address() -> UnixAddress {
        let bus = std::env::var(BUS).expect("the bus");
        UnixAddress::from_abstract_name(format!("ringway-{bus}")).expect("a name")
    }

    fn await_it() -> Self {
        let listener = UnixListener::bind_addr(&Self::address()).expect("nobody has the name");
        Self(BufReader::new(listener.accept().expect("the other one").0))
    }

    fn find() -> Self {
        let began = Instant::now();
        loop {
            match UnixStream::connect_addr(&Self::address()) {
                Ok(stream) => return Self(BufReader::new(stream)),
                Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Tells it these numbers, and gives what it tells.
    pub(crate) fn exchange<const N: usize>(&mut self, own: [u64; N]) -> [u64; N] {
        let line = own.map(|number| number.to_string()).join(" ");
        writeln!(self.0.get_mut(), "{line}").expect("it is there");
        let mut line = String::new();
        self.0.read_line(&mut line).expect("it is there");
        let all: Vec<u64> = line.split_ascii_whitespace().map(|word| word.parse().expect("a number")).collect();
        all.try_into().expect("as many as its own")
    }

    /// Both are here.
    pub(crate) fn meet(&mut self) {
        self.exchange([]);
    }
}
