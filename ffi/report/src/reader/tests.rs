use proptest::prelude::*;

use super::*;
use crate::SocketReport;

/// A directory of a test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringway-report-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Under this very process's name.
    fn file(&self) -> PathBuf {
        self.0.join(format!("{FILE_PREFIX}{}", std::process::id()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn report(fds: i32) -> ProcessReport {
    let sockets = (0..fds).map(|fd| SocketReport { fd, protocol: "udp\u{1b}[2J".into(), ..Default::default() }).collect();
    ProcessReport { pid: std::process::id(), program: "a\nb".into(), sockets, ..Default::default() }
}

fn bytes(report: &ProcessReport, version: u64) -> Vec<u8> {
    let body = serde_json::to_vec(report).unwrap();
    let header = Header {
        pid: std::process::id(),
        birth: Birth::default(),
        version,
        len: body.len() as u64,
        checksum: checksum(&body),
        answers: 7,
        taken_ns: 1,
        control: "x".into(),
    };
    let mut all = header.encode().to_vec();
    all.resize(BODY, 0);
    all.extend(body);
    all
}

#[test]
fn what_was_published_is_read_without_what_terminals_obey() {
    let folder = Folder::new("plain");
    fs::write(folder.file(), bytes(&report(2), 4)).unwrap();
    let published = Published::open(&folder.file()).unwrap();
    let snapshot = published.read(Duration::ZERO).unwrap();
    assert_eq!((snapshot.report.program.as_str(), snapshot.report.sockets[1].protocol.as_str()), ("ab", "udp[2J"));
    assert_eq!((snapshot.taken_ns, snapshot.is_answer, published.control()), (1, false, "x"));
}

#[test]
fn a_report_in_the_middle_of_which_the_process_died_is_none() {
    let folder = Folder::new("torn");
    fs::write(folder.file(), bytes(&report(1), 5)).unwrap();
    let torn = Published::open(&folder.file()).unwrap().read(Duration::ZERO);
    assert!(matches!(torn, Err(ReadError::Damaged(_))), "{torn:?}");
}

#[test]
fn what_others_put_there_is_refused() {
    let folder = Folder::new("foreign");
    let foreign = |what: &str| {
        let opened = Published::open(&folder.file());
        assert!(matches!(opened, Err(ReadError::Foreign(_) | ReadError::System { .. })), "{what}: {opened:?}");
        let _ = fs::remove_file(folder.file());
    };
    foreign("nothing");
    fs::write(folder.file(), b"RINGSTAT").unwrap();
    foreign("a part of a header");
    std::os::unix::fs::symlink("/etc/passwd", folder.file()).unwrap();
    foreign("a link");
    rustix::fs::mknodat(rustix::fs::CWD, folder.file(), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    foreign("a pipe");
    fs::create_dir(folder.file()).unwrap();
    let opened = Published::open(&folder.file());
    assert!(matches!(opened, Err(ReadError::Foreign(_) | ReadError::System { .. })), "a directory: {opened:?}");
}

#[test]
fn a_file_under_another_processs_name_is_refused() {
    let folder = Folder::new("name");
    let path = folder.0.join(format!("{FILE_PREFIX}1"));
    fs::write(&path, bytes(&report(1), 4)).unwrap();
    assert!(matches!(Published::open(&path), Err(ReadError::Foreign(_))));
}

#[test]
fn leftovers_are_removed_and_other_files_are_not() {
    let folder = Folder::new("left");
    fs::write(folder.file(), bytes(&report(1), 4)).unwrap();
    let other = folder.0.join(format!("{FILE_PREFIX}2"));
    fs::write(&other, b"somebody's notes").unwrap();
    assert_eq!(remove_leftovers(&folder.0).unwrap(), 1);
    assert!(!folder.file().exists() && other.exists());
}

/// A process that is killed between making its file and writing the header leaves an empty one.
#[test]
fn an_empty_file_goes_once_its_process_is_gone_and_it_is_no_new_one() {
    let folder = Folder::new("empty");
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    let (gone, alive) = (ended.id(), std::process::id());
    ended.wait().unwrap();
    let long_ago = std::time::SystemTime::now() - 2 * EMPTY_FOR;
    let empty = |pid: u32, modified: Option<std::time::SystemTime>| {
        let path = folder.0.join(format!("{FILE_PREFIX}{pid}"));
        let file = File::create(&path).unwrap();
        modified.into_iter().for_each(|time| file.set_modified(time).unwrap());
        path
    };
    empty(gone, None);
    empty(alive, Some(long_ago));
    assert_eq!(remove_leftovers(&folder.0).unwrap(), 0, "one is new, the other one's process lives");
    let path = empty(gone, Some(long_ago));
    assert_eq!(remove_leftovers(&folder.0).unwrap(), 1);
    assert!(!path.exists());
}

#[test]
fn who_can_only_read_holds_nothing() {
    let folder = Folder::new("lock");
    fs::write(folder.file(), bytes(&report(1), 4)).unwrap();
    let reader = File::open(folder.file()).unwrap();
    reader.lock().unwrap();
    assert!(!Published::open(&folder.file()).unwrap().is_held());
    assert_eq!(remove_leftovers(&folder.0).unwrap(), 1);
}

#[test]
fn a_process_is_told_from_others_with_its_number() {
    let pid = std::process::id();
    let started = Birth::started_by_stat(&fs::read("/proc/self/stat").unwrap()).unwrap();
    let of = |started| Birth { namespace: namespace(), started };
    assert!(lives(pid, of(started)) && !lives(pid, of(started + 1)));
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    let number = ended.id();
    ended.wait().unwrap();
    assert!(!lives(number, of(started)));
    assert!(namespace() != 0 && of(1).is_beside(namespace()) && !of(1).is_beside(namespace() + 1) && !Birth::default().is_beside(0));
}

#[test]
fn a_question_has_a_number_and_is_for_the_process_to_read() {
    let folder = Folder::new("ask");
    fs::write(folder.file(), bytes(&report(1), 4)).unwrap();
    let mut published = Published::open(&folder.file()).unwrap();
    published.ask(Request { dump: Some((5, 3)), ..Default::default() }).unwrap();
    let all = fs::read(folder.file()).unwrap();
    let request = Request::decode(&all[REQUEST].try_into().unwrap()).unwrap();
    assert_eq!((request.number, request.dump), (published.asked, Some((5, 3))));
    assert!(!published.read(Duration::from_millis(5)).unwrap().is_answer, "the old report is better than none");
}

proptest! {
    /// Whatever a file holds, reading it ends, and with a report or an error.
    #[test]
    fn damaged_files_are_read_safely(at in 0_usize..2000, with in any::<[u8; 8]>(), cut in 0_usize..3000) {
        let folder = Folder::new("fuzz");
        let mut all = bytes(&report(3), 4);
        let cut = cut.min(all.len());
        let at = at.min(all.len() - 8);
        all[at..at + 8].copy_from_slice(&with);
        all.truncate(cut);
        fs::write(folder.file(), &all).unwrap();
        if let Ok(published) = Published::open(&folder.file())
            && let Ok(header) = published.header()
        {
            let _ = published.body(&header);
        }
    }
}
