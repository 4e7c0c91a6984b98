//! All frames that pass the bridge, for tshark(1) and for our own reader.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use ringway_stack::roce::packet::datagram::DatagramError;
use ringway_stack::roce::packet::frame::Frame;
use ringway_stack::wire::{ethernet, udp};

use crate::world::{Host, World};

/// Room for frames that the test has not read yet, in bytes.
const ROOM: libc::c_int = 256 << 20;
const FRAME_MAX: usize = 1 << 16;

pub(crate) struct Capture {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Vec<u8>>>,
}

impl Capture {
    /// Of the client's port of the bridge.
    pub(crate) fn start(world: &World) -> Self {
        let socket = world.within(Host::Bridge, || open("pa")).expect("a packet socket");
        let stops = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stops);
        let thread = std::thread::spawn(move || {
            let (mut frames, mut bytes) = (Vec::new(), vec![0; FRAME_MAX]);
            loop {
                // SAFETY: as many bytes as are said can be written.
                let got = unsafe { libc::recv(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0) };
                match usize::try_from(got) {
                    Ok(len) => frames.push(bytes[..len].to_vec()),
                    // (Nothing came for a while.)
                    Err(_) if is_over.load(Ordering::Relaxed) => return frames,
                    Err(_) => {}
                }
            }
        });
        Self { stops, thread }
    }

    /// Ends it: all RoCE frames, each of which is whole, with its CRC.
    pub(crate) fn check(self, file: &Path) -> Vec<Vec<u8>> {
        self.stops.store(true, Ordering::Relaxed);
        let mut frames = self.thread.join().expect("as it should be");
        frames.retain(|frame| is_roce(frame));
        for frame in &frames {
            let parsed: Result<Frame<'_>, DatagramError> = Frame::parse(frame);
            assert!(parsed.is_ok(), "{parsed:?}: {frame:02x?}");
        }
        std::fs::write(file, pcap(&frames)).expect("a file");
        let shown = |filter: &str| {
            let output = Command::new("tshark").args(["-n", "-r"]).arg(file).args(["-Y", filter]).output();
            let output = output.expect("tshark must be installed");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        // (RoCE has no checksum of UDP's own, which over IPv6 is an error to tshark: annex A17.3.1.4.)
        let malformed = shown("_ws.malformed or (_ws.expert.severity == error and not udp.checksum.zero)");
        assert!(malformed.is_empty(), "{}: {malformed}", file.display());
        assert_eq!(shown("infiniband").lines().count(), frames.len(), "{}", file.display());
        let _ = std::fs::remove_file(file);
        frames
    }
}

fn is_roce(frame: &[u8]) -> bool {
    let Ok((ethernet, at)) = ethernet::Header::parse(frame) else { return false };
    let (protocol_at, udp_at) = match ethernet.ethertype {
        ethernet::ETHERTYPE_IPV4 => (at + 9, at + 20),
        ethernet::ETHERTYPE_IPV6 => (at + 6, at + 40),
        _ => return false,
    };
    let is_udp = frame.get(protocol_at) == Some(&17);
    is_udp && frame.get(udp_at..).and_then(|bytes| udp::Header::parse(bytes).ok()).is_some_and(|(udp, _)| udp.dst_port == 4791)
}

/// A file of frames (pcap-savefile(5)).
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    const ETHERNET: u32 = 1;
    let header: [u32; 6] = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, FRAME_MAX as u32, ETHERNET];
    let mut file: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
    for (at, frame) in (0u32..).zip(frames) {
        let (len, at) = (frame.len() as u32, at);
        for word in [at / 1000, at % 1000 * 1000, len, len] {
            file.extend(word.to_ne_bytes());
        }
        file.extend(frame);
    }
    file
}

/// packet(7): all frames of an interface, both ways.
fn open(interface: &str) -> io::Result<OwnedFd> {
    let all = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: no memory is involved.
    let raw = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, for us.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    let (room, soon) = (ROOM, libc::timeval { tv_sec: 0, tv_usec: 200_000 });
    let name = std::ffi::CString::new(interface).expect("a name");
    // SAFETY: all zeroes is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = all;
    // SAFETY: the name ends with a zero; the values are readable, as long as they are.
    unsafe {
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()).cast_signed();
        let set = |option, value: *const libc::c_void, len: usize| {
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, len as libc::socklen_t)
        };
        set(libc::SO_RCVBUFFORCE, (&raw const room).cast(), size_of_val(&room));
        set(libc::SO_RCVTIMEO, (&raw const soon).cast(), size_of_val(&soon));
        let bound = libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t);
        if bound != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(socket)
}
