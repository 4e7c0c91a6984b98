//! The VMA Extra API on an interface: the programs that show it on shared memory, each of which talks to itself by way of a mirror at the other end of the cable. That one is
//! a packet socket (packet(7)), which sends back what comes for its address; the kernel there has no address, and says nothing.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::cable::{Cable, DEVICE, ENDS, Running, on_cable};
use crate::kernels;
use crate::mirror::{MTU, turned};
use crate::mirrored::{BY_LOGIC, Way, XTREME};
use crate::namespaces::{ip, offloads_off};
use crate::programs::{compile, library};

/// A mirror at the other end of the cable, until it is dropped.
struct Reflected {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reflected {
    fn new(cable: &Cable) -> Self {
        let (socket, mac) = cable.within_there(|| {
            ip(&format!("addr flush dev b0\nlink set b0 mtu {MTU}\n"));
            (packet_socket("b0"), address_of("b0"))
        });
        let [_, mirror] = ENDS[0];
        ip(&format!("link set a0 mtu {MTU}\nneigh replace {mirror} lladdr {mac} dev a0 nud permanent\n"));
        offloads_off("a0");
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let own: Vec<u8> = mac.split(':').map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect();
        let thread = std::thread::spawn(move || reflect(socket, &own, &ends));
        Self { is_over, thread: Some(thread) }
    }

    /// Runs a program on the interface, which reaches itself by way of the mirror. What it says to its log; it says nothing else.
    fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> String {
        let [own, mirror] = ENDS[0];
        let mut command = Command::new("timeout");
        command
            .arg("100")
            .arg(program)
            .args(arguments)
            .env("VMA_CONFIG_FILE", "")
            .env("LD_PRELOAD", library())
            .env("RINGWAY_DEVICE", DEVICE);
        command.env("RINGWAY_TEST_OWN", own).env("RINGWAY_TEST_MIRROR", mirror).envs(environment.iter().copied());
        Running::start(command).says()
    }
}

impl Drop for Reflected {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn address_of(name: &str) -> String {
    let shown = Command::new("ip").args(["-brief", "link", "show", name]).output().expect("ip(8)");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    shown.split_whitespace().nth(2).expect("its address is in the third column").to_owned()
}

/// A socket for all that comes to an interface.
fn packet_socket(name: &str) -> File {
    let (every, patience) = ((libc::ETH_P_ALL as u16).to_be(), libc::timeval { tv_sec: 0, tv_usec: 50_000 });
    let name = std::ffi::CString::new(name).expect("a name");
    // SAFETY: the kernel's own numbers, and what is pointed to is as long as it says; the descriptor is the kernel's, for us.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(every));
        assert!(fd >= 0, "socket: {}", Error::last_os_error());
        let mut address: libc::sockaddr_ll = core::mem::zeroed();
        (address.sll_family, address.sll_protocol) = (libc::AF_PACKET as u16, every);
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()).cast_signed();
        let len = size_of_val(&address) as u32;
        assert_eq!(libc::bind(fd, (&raw const address).cast(), len), 0, "bind: {}", Error::last_os_error());
        let (bytes, len) = (8i32 << 20, size_of::<libc::timeval>() as u32);
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, (&raw const bytes).cast(), 4);
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, (&raw const bytes).cast(), 4);
        assert_eq!(libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const patience).cast(), len), 0);
        File::from_raw_fd(fd)
    }
}

/// Sends back what comes for that address.
fn reflect(mut socket: File, own: &[u8], is_over: &AtomicBool) {
    let mut frame = vec![0; 1 << 16];
    while !is_over.load(Ordering::Relaxed) {
        match socket.read(&mut frame) {
            Ok(len) if frame[..len].starts_with(own) && turned(&mut frame[..len]) => {
                // (What there is no room for is lost, as by a wire.)
                let _ = socket.write(&frame[..len]);
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => panic!("{}: {error}", socket.as_raw_fd()),
        }
    }
}

/// Runs a program of `tests/extra` once in each of these ways. It finds nothing wrong, and no datagram comes by the kernel.
fn finds_nothing_wrong(name: &'static str, ways: &'static [Way]) {
    on_cable(move |cable| {
        let (_reflected, program, before) = (Reflected::new(cable), compile(&format!("tests/extra/{name}.c")), kernels());
        for (arguments, environment) in ways {
            Reflected::run(&program, arguments, environment);
        }
        let [segments, datagrams] = kernels();
        assert_eq!(datagrams, before[1], "datagrams came by the ring");
        // (What is left of a connection that is over, when its process is, is the kernel's to refuse.)
        assert!(segments - before[0] < 8 * ways.len() as u64, "and so did streams: {segments} {before:?}");
    });
}

#[test]
fn completions_buffers_and_their_bad_inputs() {
    finds_nothing_wrong("xtreme", &[(&[], &[XTREME])]);
}

#[test]
fn without_the_parameter_there_are_rings_and_nothing_to_poll() {
    on_cable(|cable| {
        let _reflected = Reflected::new(cable);
        let log = Reflected::run(&compile("tests/extra/xtreme.c"), &["off"], &[]);
        assert_eq!(log.matches("VMA_SOCKETXTREME=1").count(), 1, "{log}");
    });
}

#[test]
fn rings_are_slept_on_and_shared_by_threads() {
    finds_nothing_wrong("xtreme_sleep", &[(&[], &[XTREME]), (&[], &[XTREME, ("VMA_SELECT_POLL", "0")])]);
}

#[test]
fn sockets_share_rings_by_the_allocation_logic() {
    finds_nothing_wrong("xtreme_rings", BY_LOGIC);
}

#[test]
fn programs_of_8_4_have_their_own_structures() {
    finds_nothing_wrong("xtreme_84", &[(&[], &[XTREME, ("VMA_API_LAYOUT", "8.4")])]);
}

#[test]
fn receive_callbacks() {
    finds_nothing_wrong("callback", &[(&[], &[])]);
}

#[test]
fn zero_copy() {
    finds_nothing_wrong("zcopy", &[(&[], &[])]);
}

/// (What its rules leave to the kernel the mirror sends back as well.)
#[test]
fn rules_and_statistics() {
    on_cable(|cable| {
        let (_reflected, program) = (Reflected::new(cable), compile("tests/extra/control.c"));
        for environment in [&[][..], &[("VMA_OFFLOADED_SOCKETS", "0")]] {
            Reflected::run(&program, &[], environment);
        }
    });
}
