use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram;

use super::*;
use crate::tso::set;

/// A frame for a queue pair.
fn frame(is_v4: bool, port: u16, qp: u32) -> Vec<u8> {
    let ip_len = if is_v4 { 20 } else { 40 };
    let mut frame = vec![0; 14 + ip_len + 8 + 12];
    let (ethertype, first, protocol_at) = if is_v4 { ([0x08, 0x00], 0x45, 14 + 9) } else { ([0x86, 0xdd], 0x60, 14 + 6) };
    frame[12..14].copy_from_slice(&ethertype);
    (frame[14], frame[protocol_at]) = (first, 17);
    frame[14 + ip_len + 2..14 + ip_len + 4].copy_from_slice(&port.to_be_bytes());
    // (The first byte is reserved, and may be anything.)
    frame[14 + ip_len + 12..14 + ip_len + 16].copy_from_slice(&(0xa500_0000 | qp).to_be_bytes());
    frame
}

/// What the kernel makes of frames by a filter: a Unix socket has one as a packet socket does.
fn passes(mark: u8, frames: &[Vec<u8>]) -> Vec<bool> {
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut code = filter::of(mark);
    let fd = ringway_host::Fd::of(|| ours.try_clone().map(Into::into)).unwrap();
    set(&fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() }).unwrap();
    assert_ne!(fd.as_raw_fd(), ours.as_raw_fd());
    let passes = |frame: &Vec<u8>| {
        let _ = theirs.send(frame);
        ours.recv(&mut [0; 256]).is_ok_and(|len| len == frame.len())
    };
    frames.iter().map(passes).collect()
}

#[test]
fn a_process_sees_what_is_for_its_queue_pairs_and_for_all() {
    let mark = 7 << 3;
    for is_v4 in [true, false] {
        let of = |qp| frame(is_v4, UDP_PORT, qp);
        let own = [of(7 << 19), of((8 << 19) - 1), of(1), of(0x00ff_ffff)];
        assert_eq!(passes(mark, &own), [true; 4]);
        let others = [of(6 << 19), of(8 << 19), of(0), of(2), of(0x00ff_fffe), frame(is_v4, UDP_PORT - 1, 7 << 19)];
        assert_eq!(passes(mark, &others), [false; 6]);
        let mut tcp = of(7 << 19);
        tcp[if is_v4 { 14 + 9 } else { 14 + 6 }] = 6;
        let mut tagged = of(7 << 19);
        tagged[12..14].copy_from_slice(&[0x81, 0x00]);
        let mut cut = of(7 << 19);
        cut.truncate(if is_v4 { 14 + 20 + 8 + 5 } else { 14 + 40 + 8 + 5 });
        assert_eq!(passes(mark, &[tcp, tagged, cut]), [false; 3]);
    }
    let mut fragment = frame(true, UDP_PORT, 7 << 19);
    fragment[14 + 6] = 0x20;
    let mut with_options = frame(true, UDP_PORT, 7 << 19);
    with_options[14] = 0x46;
    assert_eq!(passes(mark, &[fragment, with_options]), [false; 2]);
}

#[test]
fn ports_that_come_and_go_take_few_descriptors() {
    let ports = Seat::take_of(NO_INTERFACE * 3 + std::process::id(), 1).unwrap().ports();
    for port in 1..200 {
        ports.take(Protocol::Tcp, port).unwrap();
        ports.give_back(Protocol::Tcp, port);
    }
    assert_eq!(ports.closed(), (168..200).collect::<Vec<_>>(), "the last ones");
}

/// An interface's number that none has.
const NO_INTERFACE: u32 = 1 << 30;

#[test]
fn each_process_has_a_seat_of_its_own_until_it_ends() {
    let interface = NO_INTERFACE + std::process::id();
    let mut seats: Vec<Seat> = (0..Seat::COUNT).map(|_| Seat::take_of(interface, 12).unwrap()).collect();
    let mut marks: Vec<u8> = seats.iter().map(Seat::mark).collect();
    assert!(matches!(Seat::take_of(interface, 3), Err(AttachError::Taken { .. })));
    let freed = seats.swap_remove(4).mark();
    assert_eq!(Seat::take_of(interface, 0).unwrap().mark(), freed);
    marks.sort_unstable();
    marks.dedup();
    // Neither that of queue pair 1 nor that of groups.
    assert_eq!((marks.len(), marks[0], marks.last()), (30, 1 << 3, Some(&(30 << 3))));
    assert_eq!(seats[0].first_qp(), u16::from(seats[0].mark()) << 8);
}

#[test]
fn a_port_is_one_processes() {
    let interface = NO_INTERFACE * 2 + std::process::id();
    let [here, there] = [1, 2].map(|from| Seat::take_of(interface, from).unwrap().ports());
    assert!(here.take(Protocol::Tcp, 80).is_ok() && here.take(Protocol::Tcp, 80).is_ok());
    assert_eq!(there.take(Protocol::Tcp, 80).unwrap_err().raw_os_error(), Some(libc::EADDRINUSE));
    let known = |ports: &Ports| [Protocol::Tcp, Protocol::Udp].map(|protocol| ports.is_others(protocol, 80));
    assert_eq!((known(&here), known(&there)), ([false, false], [true, false]));
    here.give_back(Protocol::Tcp, 80);
    assert!(there.is_others(Protocol::Tcp, 80));
    here.give_back(Protocol::Tcp, 80);
    // (It may have connections, of which requests come again; of others, it says itself that nobody listens.)
    assert_eq!((known(&here), known(&there)), ([false; 2], [true, false]));
    assert!(there.take(Protocol::Tcp, 80).is_ok());
    assert_eq!(known(&here), [true, false]);
}
