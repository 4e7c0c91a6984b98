//! Processes that answer as no library of ours does: whatever they say, the command goes on with the others, and does not grow.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use ringway_host::members::MemberName;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType, accept, bind, listen, recv,
    sendmsg, socket,
};

use super::*;

const BYTES: usize = BYTES_MIN;

/// Everything that there is, of any process.
fn options() -> Options {
    Options {
        interface: None,
        pids: Vec::new(),
        write: None,
        snapshot_length: SNAPLEN_MAX,
        buffer_size: BYTES >> 10,
        count: None,
        direction: None,
        filter: Vec::new(),
    }
}

/// A process that gives the same answer to every question, or none.
fn stranger(number: u32, answer: Option<&'static str>, memory: Option<OwnedFd>) -> MemberName {
    let (uid, id) = (geteuid().as_raw(), format!("{:08x}{number:08x}", std::process::id()));
    let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let name = SocketAddrUnix::new_abstract_name(format!("ringway/{uid}/dialogue/{id}").as_bytes()).unwrap();
    bind(&listener, &name).unwrap();
    listen(&listener, 4).unwrap();
    std::thread::spawn(move || {
        let Ok(dialogue) = accept(&listener) else { return };
        let mut question = [0; 256];
        while recv(&dialogue, &mut question[..], RecvFlags::empty()).is_ok_and(|(len, _)| len != 0) {
            let Some(answer) = answer else { continue };
            let passed: Vec<BorrowedFd<'_>> = memory.iter().map(|memory| memory.as_fd()).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(passed.is_empty() || control.push(SendAncillaryMessage::ScmRights(&passed)));
            if sendmsg(&dialogue, &[IoSlice::new(answer.as_bytes())], &mut control, SendFlags::NOSIGNAL).is_err() {
                return;
            }
        }
    });
    MemberName { pid: 1, name: format!("ringway/{uid}/member/1-{id}") }
}

/// Memory as a writer makes it, with one frame of four bytes, which was seen at that time.
fn memory(time_ns: u64) -> OwnedFd {
    let memory = memfd_create("stranger", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memory, (4096 + BYTES) as u64).unwrap();
    fcntl_add_seals(&memory, SealFlags::SHRINK).unwrap();
    let file = File::from(memory);
    let write = |words: &[u64], at| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, at).unwrap();
    };
    write(&[u64::from_le_bytes(*b"RINGCAP1"), BYTES as u64, 40, 40, u64::MAX], 0);
    write(&[40 << 32 | 4, 4 << 32, time_ns, 0, 7], 4096);
    file.into()
}

/// Looks as the command does, until that holds.
fn look(
    sources: &mut Sources<'_>,
    file: &mut CaptureFile<Vec<u8>>,
    members: &[MemberName],
    mut holds: impl FnMut(&CaptureFile<Vec<u8>>) -> bool,
) {
    let end = Instant::now() + Duration::from_secs(30);
    sources.search(members).unwrap();
    while !holds(file) {
        assert!(Instant::now() < end, "not in time");
        sources.hear(file).unwrap();
        sources.take_until(Clock::system().now().as_nanos() - HOLD_BACK.as_nanos() as u64, file).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn one_that_is_silent_holds_nobody_up_and_one_that_has_rings_without_end_is_asked_for_so_many() {
    let members = [stranger(1, None, None), stranger(2, Some("ring shm endless"), Some(memory(0)))];
    let options = options();
    let mut sources = Sources::new(&options, BYTES);
    let mut file = CaptureFile::new(Vec::new(), Clock::system(), Limits { snaplen: 65_536, ..Limits::default() }).unwrap();
    let most = u64::from(ringway_host::capture::RINGS_MAX);
    let begin = Instant::now();
    look(&mut sources, &mut file, &members, |file| file.written() >= most);
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    // (Some looks more.)
    let mut looks = 0;
    look(&mut sources, &mut file, &members, |_| {
        looks += 1;
        looks > 50
    });
    sources.tell_counts(&mut file).unwrap();
    assert_eq!((file.written(), file.lost()), (most, u64::MAX));
}

#[test]
fn a_frame_from_the_future_does_not_wait_for_it() {
    let members = [stranger(3, Some("ring xdp:eth0 early"), Some(memory(u64::MAX)))];
    let options = options();
    let mut sources = Sources::new(&options, BYTES);
    let mut file = CaptureFile::new(Vec::new(), Clock::system(), Limits { snaplen: 65_536, ..Limits::default() }).unwrap();
    look(&mut sources, &mut file, &members, |file| file.written() >= 1);
}
