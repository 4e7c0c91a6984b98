//! Connections that somebody ends who is neither end of them, as tcpkill and `ss -K` do: who is on the ring sees what it would see of a kernel's socket, and so does
//! who is at the other end. Each case runs with the kernel at our end as well, which proves what is expected.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ringway_stack::wire::{ethernet, ipv4, ipv6, tcp};

use crate::cable::{Cable, ENDS, PORT, Running, eventually, on_cable};
use crate::programs::compile;

/// Whether our end is on Ringway.
const BOTH: [bool; 2] = [false, true];

/// Starts a program at our end.
fn start(cable: &Cable, program: &Path, is_on_ringway: bool, arguments: &[&str]) -> Running {
    if is_on_ringway {
        return cable.here_of(program, arguments);
    }
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).args(arguments);
    Running::start(command)
}

#[test]
fn a_forged_reset_of_a_connection_that_we_opened_ends_it() {
    on_cable(|cable| {
        let program = compile("tests/c/leaves.c");
        for ([_, there], is_on_ringway) in ENDS.into_iter().flat_map(|ends| BOTH.map(|is_on| (ends, is_on))) {
            let wire = cable.within_there(|| Wire::of("b0"));
            let mut theirs = cable.start_there(&program, &["answers-and-sends-on", there, PORT]);
            cable.await_listener(false);
            let mut ours = start(cable, &program, is_on_ringway, &["asks-and-is-reset", there, PORT]);
            theirs.await_ready();
            ours.await_ready();
            let [to_ours, _] = wire.both().map(|frame| reset_after(&frame));
            wire.send(&to_ours);
            ours.await_ready();
            // (While our program has its socket still, it is our kernel that tells the other end.)
            theirs.close_input();
            theirs.ends_well();
            ours.close_input();
            ours.ends_well();
        }
    });
}

#[test]
fn forged_resets_end_a_connection_that_we_accepted_at_both_ends() {
    on_cable(|cable| {
        let program = compile("tests/c/leaves.c");
        for ([here, _], is_on_ringway) in ENDS.into_iter().flat_map(|ends| BOTH.map(|is_on| (ends, is_on))) {
            let (wire, near) = (cable.within_there(|| Wire::of("b0")), Wire::of("a0"));
            let mut ours = start(cable, &program, is_on_ringway, &["answers-and-is-reset", here, PORT]);
            cable.await_listener(true);
            let mut theirs = cable.start_there(&program, &["asks-and-is-reset", here, PORT]);
            theirs.await_ready();
            ours.await_ready();
            let [to_ours, to_theirs] = wire.both().map(|frame| reset_after(&frame));
            wire.send(&to_ours);
            near.send(&to_theirs);
            for mut end in [ours, theirs] {
                end.await_ready();
                end.close_input();
                end.ends_well();
            }
        }
    });
}

/// The kernel knows nothing of a ring's connection, and ends none; one that has left for the kernel it ends as any other.
#[test]
fn the_kernel_ends_a_connection_that_has_left_for_it() {
    on_cable(|cable| {
        let program = compile("tests/c/leaves.c");
        for ([_, there], is_on_ringway) in ENDS.into_iter().flat_map(|ends| BOTH.map(|is_on| (ends, is_on))) {
            let mut theirs = cable.start_there(&program, &["answers-and-is-reset", there, PORT]);
            cable.await_listener(false);
            let mut ours = start(cable, &program, is_on_ringway, &["urges-and-is-aborted", there, PORT]);
            theirs.await_ready();
            ours.await_ready();
            assert_eq!(killed(&format!("dport = {PORT}")), 1);
            for mut end in [ours, theirs] {
                end.await_ready();
                end.close_input();
                end.ends_well();
            }
        }
    });
}

#[test]
fn the_kernel_ends_none_that_is_on_a_ring() {
    on_cable(|cable| {
        let program = compile("tests/c/leaves.c");
        for [_, there] in ENDS {
            let wire = cable.within_there(|| Wire::of("b0"));
            let mut theirs = cable.start_there(&program, &["answers-and-sends-on", there, PORT]);
            cable.await_listener(false);
            let mut ours = start(cable, &program, true, &["asks-and-is-reset", there, PORT]);
            theirs.await_ready();
            ours.await_ready();
            assert_eq!(killed(&format!("dport = {PORT}")), 0);
            // (It has an error of its own to tell, or it would not say so.)
            let [to_ours, _] = wire.both().map(|frame| reset_after(&frame));
            wire.send(&to_ours);
            ours.await_ready();
            theirs.close_input();
            theirs.ends_well();
            ours.close_input();
            ours.ends_well();
        }
    });
}

#[test]
fn who_waits_at_a_listener_that_the_kernel_ends_waits_no_longer() {
    on_cable(|cable| {
        let program = compile("tests/c/leaves.c");
        for ([here, _], is_on_ringway) in ENDS.into_iter().flat_map(|ends| BOTH.map(|is_on| (ends, is_on))) {
            let mut ours = start(cable, &program, is_on_ringway, &["listens-and-is-aborted", here, PORT]);
            ours.await_ready();
            // (It is about to wait.)
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(killed(&format!("state listening sport = {PORT}")), 1);
            ours.await_ready();
            cable.there_of(&program, &["is-refused", here, PORT]).join().expect("the kernel's program");
            ours.close_input();
            ours.ends_well();
        }
    });
}

/// How many sockets of our kernel's ss(8) has ended.
fn killed(filter: &str) -> usize {
    let done = Command::new("ss").args(["-K", "-H", "-n", "-t"]).args(filter.split(' ')).output().expect("ss(8) is part of iproute2");
    let (said, log) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && log.is_empty(), "a kernel without CONFIG_INET_DIAG_DESTROY ends nobody's sockets: {said}{log}");
    said.lines().count()
}

/// All frames that go by an interface, and one more.
struct Wire(OwnedFd);

impl Wire {
    fn of(interface: &str) -> Self {
        let protocol = u16::to_be(libc::ETH_P_ALL as u16);
        // SAFETY: plain integers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, i32::from(protocol)) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the kernel has just made it, for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let name = CString::new(interface).expect("a name");
        // SAFETY: a C string.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) } as i32;
        // SAFETY: all zeroes is a valid address.
        let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
        (address.sll_family, address.sll_protocol, address.sll_ifindex) = (libc::AF_PACKET as u16, protocol, index);
        // SAFETY: the address is readable for its length.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as u32) };
        assert_eq!(bound, 0, "{}", io::Error::last_os_error());
        Self(fd)
    }

    /// The last segments of both directions, among those that have gone by since this was asked last: from the other end, and to it.
    fn both(&self) -> [Vec<u8>; 2] {
        let mut last = [None, None];
        eventually("segments of both directions", || {
            let mut frame = [0; 4096];
            loop {
                // SAFETY: the buffer is writable for its length.
                let len = unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
                let Ok(len) = usize::try_from(len) else { break };
                if let Some((ip, ..)) = parsed(&frame[..len]) {
                    let is_theirs = ENDS.iter().any(|[_, there]| there.parse() == Ok(ip.source()));
                    last[usize::from(!is_theirs)] = Some(frame[..len].to_vec());
                }
            }
            last.iter().all(Option::is_some)
        });
        last.map(|frame| frame.expect("both are there"))
    }

    fn send(&self, frame: &[u8]) {
        // SAFETY: the frame is readable for its length.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }
}

enum Ip {
    V4(ipv4::Header),
    V6(ipv6::Header),
}

impl Ip {
    fn source(&self) -> IpAddr {
        match self {
            Self::V4(header) => header.src.into(),
            Self::V6(header) => header.src.into(),
        }
    }
}

/// A segment's headers, where TCP's begins in its frame, and how much it carries.
fn parsed(frame: &[u8]) -> Option<(Ip, usize, tcp::Header, usize)> {
    let (link, begin) = ethernet::Header::parse(frame).ok()?;
    let (ip, at, end) = match link.ethertype {
        ethernet::ETHERTYPE_IPV4 => {
            let (ip, len) = ipv4::Header::parse(&frame[begin..]).ok()?;
            let end = begin + usize::from(ip.total_len);
            (ip.protocol == ipv4::PROTOCOL_TCP).then_some((Ip::V4(ip), begin + len, end))?
        }
        ethernet::ETHERTYPE_IPV6 => {
            let (ip, len) = ipv6::Header::parse(&frame[begin..]).ok()?;
            let end = begin + len + usize::from(ip.payload_len);
            (ip.next_header == ipv4::PROTOCOL_TCP).then_some((Ip::V6(ip), begin + len, end))?
        }
        _ => return None,
    };
    let (header, len) = tcp::Header::parse(frame.get(at..)?).ok()?;
    Some((ip, at, header, end - at - len))
}

/// The reset that whoever sent this segment would send next (RFC 9293 s3.10.7.4: with just the number that is expected).
fn reset_after(frame: &[u8]) -> Vec<u8> {
    let (ip, at, header, carried) = parsed(frame).expect("a segment");
    let seq = tcp::SeqNumber(header.seq.0.wrapping_add(carried as u32));
    let reset = tcp::Header { src_port: header.src_port, dst_port: header.dst_port, seq, flags: tcp::Flags::RST, ..Default::default() };
    let mut out = frame[..at].to_vec();
    out.resize(at + tcp::LEN, 0);
    reset.emit(&mut out[at..]);
    let mut sum = match ip {
        Ip::V4(ip) => {
            let ip = ipv4::Header { total_len: (out.len() - ethernet::LEN) as u16, ..ip };
            ip.emit(&mut out[ethernet::LEN..], true);
            ip.pseudo_header(tcp::LEN)
        }
        Ip::V6(ip) => {
            let ip = ipv6::Header { payload_len: tcp::LEN as u16, ..ip };
            ip.emit(&mut out[ethernet::LEN..]);
            ip.pseudo_header(ipv4::PROTOCOL_TCP, tcp::LEN)
        }
    };
    sum.add(&out[at..]);
    out[at + tcp::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.finish().to_be_bytes());
    out
}
