use std::os::fd::{AsFd as _, BorrowedFd};

use super::*;

fn pair(bytes: usize, snaplen: usize) -> (Writer, Reader) {
    let (writer, fd) = Writer::new(bytes, snaplen, Clock::system()).unwrap();
    // SAFETY: it is open as long as `fd` is.
    let copy = unsafe { BorrowedFd::borrow_raw(fd.raw()) }.try_clone_to_owned().unwrap();
    (writer, Reader::new(&copy).unwrap())
}

fn write(writer: &mut Writer, is_sent: bool, vlan: Option<u16>, head: &[u8], rest: &[u8]) {
    let fill = |out: &mut [u8]| out.copy_from_slice(&rest[..out.len()]);
    writer.frame(&Seen { is_sent, head, len: head.len() + rest.len(), vlan, checksums_left: is_sent, rest: &fill });
}

#[test]
fn what_is_written_is_read() {
    let (mut writer, mut reader) = pair(BYTES_MIN, 100);
    assert_eq!(reader.next_frame(), None);
    write(&mut writer, true, None, b"head", b"and the rest");
    write(&mut writer, false, Some(0x2007), b"tagged", b"");
    write(&mut writer, true, None, &[7; 60], &[8; 1000]);
    let frames: Vec<Frame> = std::iter::from_fn(|| reader.next_frame()).collect();
    let [first, second, third] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!(
        (&*first.bytes, first.len, first.is_sent, first.checksums_left, first.vlan),
        (&b"headand the rest"[..], 16, true, true, None)
    );
    assert_eq!((&*second.bytes, second.is_sent, second.checksums_left, second.vlan), (&b"tagged"[..], false, false, Some(0x2007)));
    assert_eq!((third.bytes.len(), third.len, third.bytes[60], third.lost), (100, 1060, 8, 0));
    assert!(first.time_ns > 0 && first.time_ns <= second.time_ns && second.time_ns <= third.time_ns);
    assert_eq!((reader.next_frame(), reader.seen()), (None, 3));
}

#[test]
fn the_longest_frames_go_round_and_round() {
    let (mut writer, mut reader) = pair(BYTES_MIN, SNAPLEN_MAX);
    for n in 0..100_u8 {
        let rest: Vec<u8> = (0..SNAPLEN_MAX - 54 - usize::from(n)).map(|at| (at as u8).wrapping_add(n)).collect();
        write(&mut writer, true, None, &[n; 54], &rest);
        let frame = reader.next_frame().expect("a frame");
        assert_eq!((&frame.bytes[..54], &frame.bytes[54..], frame.lost), (&[n; 54][..], &*rest, 0));
    }
}

#[test]
fn a_reader_that_was_overtaken_counts_what_it_lost() {
    let (mut writer, mut reader) = pair(BYTES_MIN, SNAPLEN_MAX);
    let mut read = 0;
    let mut lost = 0;
    for round in 0..10_u32 {
        for n in 0..1000 * round {
            write(&mut writer, n % 2 == 0, None, &n.to_le_bytes(), &[0; 56]);
        }
        // (The first look finds that it was overtaken, if it was.)
        for frame in std::iter::from_fn(|| reader.next_frame()).collect::<Vec<_>>() {
            read += 1;
            lost += frame.lost;
        }
        write(&mut writer, true, None, b"last", b"");
        let frame = reader.next_frame().expect("a frame");
        assert_eq!(frame.bytes, b"last");
        read += 1;
        lost += frame.lost;
    }
    assert_eq!(read + lost, reader.seen());
    assert!(lost > 5000 && read > 1000, "{read} read, {lost} lost");
}

#[test]
fn a_reader_beside_a_writer_reads_whole_frames_alone() {
    let (mut writer, mut reader) = pair(BYTES_MIN, SNAPLEN_MAX);
    let writing = std::thread::spawn(move || {
        for n in 0..200_000_u64 {
            let word = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            let rest: Vec<u8> = word.iter().copied().cycle().take(n as usize % 300).collect();
            write(&mut writer, true, None, &word, &rest);
        }
        writer
    });
    let (mut read, mut lost) = (0, 0);
    let mut take = |reader: &mut Reader| {
        while let Some(frame) = reader.next_frame() {
            let word: Vec<u8> = frame.bytes[..8].to_vec();
            assert!(frame.bytes.iter().zip(word.iter().cycle()).all(|(a, b)| a == b), "a frame is of two");
            read += 1;
            lost += frame.lost;
        }
    };
    while !writing.is_finished() {
        take(&mut reader);
    }
    let mut writer = writing.join().unwrap();
    take(&mut reader);
    write(&mut writer, true, None, &[0; 8], &[]);
    take(&mut reader);
    assert_eq!(read + lost, 200_001);
}

#[test]
fn nothing_in_the_memory_is_trusted() {
    let (mut writer, mut reader) = pair(BYTES_MIN, SNAPLEN_MAX);
    let mut state = 1_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..20_000 {
        write(&mut writer, true, None, &[1; 40], &[2; 40]);
        match random() % 4 {
            0 => writer.memory.word(WRITTEN_AT).store(random(), Ordering::Relaxed),
            1 => writer.memory.word(WRITING_AT).store(random() % (4 * BYTES_MIN as u64), Ordering::Relaxed),
            2 => writer.memory.word(WRITTEN_AT).store(random() % (4 * BYTES_MIN as u64), Ordering::Relaxed),
            _ => writer.memory.data((random() as usize % (BYTES_MIN / 8)) * 8).store(random() >> (random() % 64), Ordering::Relaxed),
        }
        for _ in 0..3 {
            if let Some(frame) = reader.next_frame() {
                assert!(frame.bytes.len() <= SNAPLEN_MAX);
            }
        }
    }
}

#[test]
fn other_memory_is_refused_and_this_is_written_by_its_maker_alone() {
    assert!(Writer::new(BYTES_MIN - 1, 64, Clock::system()).is_err() && Writer::new(BYTES_MAX * 2, 64, Clock::system()).is_err());
    let plain = rustix::fs::memfd_create("plain", rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&plain, (PAGE + BYTES_MIN) as u64).unwrap();
    assert_eq!(Reader::new(&plain).unwrap_err().kind(), io::ErrorKind::InvalidData, "it may become shorter");
    rustix::fs::fcntl_add_seals(&plain, rustix::fs::SealFlags::SHRINK).unwrap();
    assert_eq!(Reader::new(&plain).unwrap_err().kind(), io::ErrorKind::InvalidData, "it has no frames");
    rustix::fs::ftruncate(&plain, 2 * BYTES_MIN as u64).unwrap();
    assert_eq!(Reader::new(&plain).unwrap_err().kind(), io::ErrorKind::InvalidData, "it may be of huge pages");
    let (_writer, fd) = Writer::new(BYTES_MIN, 64, Clock::system()).unwrap();
    // SAFETY: it is open as long as `fd` is.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd.raw()) };
    assert!(rustix::fs::ftruncate(borrowed.as_fd(), 0).is_err() && rustix::io::write(borrowed, b"x").is_err());
}
