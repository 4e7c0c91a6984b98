//! Programs that no library can be preloaded into, or that would not call it: what their files tell.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::getxattr;
use rustix::process::{getegid, geteuid};

/// Scripts whose interpreters are scripts (the kernel's limit is 4).
const SCRIPTS_MAX: u32 = 4;

/// Longer files are not searched for what Go leaves in them.
const SEARCHED_MAX: u64 = 256 << 20;

/// What Go's linker leaves in every program (debug/buildinfo).
const GO_MARK: &[u8] = b"\xff Go buildinf:";

/// Why a program, named as a shell would name it, would run past the library. `None`: nothing speaks against it.
pub(crate) fn obstacle(program: &OsStr) -> Option<String> {
    obstacle_of(&find(program)?, SCRIPTS_MAX)
}

/// The file of a program.
fn find(program: &OsStr) -> Option<PathBuf> {
    let runs = |path: &Path| fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|path| runs(path));
    }
    env::split_paths(&env::var_os("PATH")?).map(|directory| directory.join(program)).find(|path| runs(path))
}

/// The same, of a file.
pub(crate) fn obstacle_of(path: &Path, scripts: u32) -> Option<String> {
    let file = File::open(path).ok()?;
    let mut head = [0u8; 256];
    let len = read_up_to(&file, &mut head)?;
    if let Some(line) = head[..len].strip_prefix(b"#!") {
        return interpreter(line).filter(|_| scripts > 0).and_then(|path| obstacle_of(&path, scripts - 1));
    }
    let name = path.display();
    if changes_user(path) {
        return Some(format!("{name} changes its user, its group or its capabilities when it starts: the loader preloads nothing then"));
    }
    match Elf::parse(&file, &head[..len])? {
        Elf::Foreign => Some(format!("{name} is for another machine, or for 32 bits: the library does not fit")),
        Elf::Static => Some(format!("{name} is a static program: nothing can be preloaded into it")),
        Elf::Dynamic if is_go(&file) => Some(format!("{name} was made by Go, whose programs make system calls by themselves")),
        Elf::Dynamic => None,
    }
}

fn read_up_to(mut file: &File, into: &mut [u8]) -> Option<usize> {
    let mut len = 0;
    while len < into.len() {
        match file.read(&mut into[len..]).ok()? {
            0 => break,
            count => len += count,
        }
    }
    Some(len)
}

/// A script's interpreter; where that is env(1), the program that it looks for.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|&b| b == b'\n').next()?;
    let mut words = line.split(|b| b.is_ascii_whitespace()).filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let first = Path::new(words.next()?);
    if first.file_name() == Some(OsStr::new("env")) {
        return find(words.find(|word| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'='))?);
    }
    Some(first.to_owned())
}

/// Whether the loader runs the program in its secure mode (ld.so(8)), which ignores LD_PRELOAD.
fn changes_user(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    let mode = metadata.permissions().mode();
    let user = mode & 0o4000 != 0 && metadata.uid() != geteuid().as_raw();
    let group = mode & 0o2010 == 0o2010 && metadata.gid() != getegid().as_raw();
    let capabilities = !geteuid().is_root() && getxattr(path, "security.capability", &mut [0u8; 64]).is_ok_and(|len| len > 0);
    user || group || capabilities
}

/// How a program is linked (elf(5)).
#[derive(Debug, PartialEq, Eq)]
enum Elf {
    /// It names a loader.
    Dynamic,
    Static,
    /// Of another class or machine than this one.
    Foreign,
}

impl Elf {
    /// `None`: no ELF file.
    fn parse(file: &File, head: &[u8]) -> Option<Self> {
        const CLASS_64: u8 = 2;
        const INTERPRETER: u32 = 3;
        const OWN: &[u8] = if cfg!(target_arch = "aarch64") { &183u16.to_ne_bytes() } else { &62u16.to_ne_bytes() };
        if !head.starts_with(b"\x7fELF") || head.len() < 64 {
            return None;
        }
        if head[4] != CLASS_64 || &head[18..20] != OWN {
            return Some(Self::Foreign);
        }
        let half = |at: usize| u64::from(u16::from_ne_bytes([head[at], head[at + 1]]));
        let table = u64::from_ne_bytes(head[32..40].try_into().ok()?);
        let (size, count) = (half(54), half(56));
        let mut entry = [0u8; 4];
        for place in 0..count {
            file.read_exact_at(&mut entry, table.checked_add(place * size)?).ok()?;
            if u32::from_ne_bytes(entry) == INTERPRETER {
                return Some(Self::Dynamic);
            }
        }
        Some(Self::Static)
    }
}

fn is_go(file: &File) -> bool {
    if file.metadata().map_or(u64::MAX, |m| m.len()) > SEARCHED_MAX {
        return false;
    }
    let mut chunk = vec![0u8; 1 << 20];
    let (mut at, keep) = (0u64, GO_MARK.len() as u64);
    while let Ok(len) = file.read_at(&mut chunk, at) {
        let found = chunk[..len].iter().enumerate().any(|(i, &b)| b == GO_MARK[0] && chunk[i..len].starts_with(GO_MARK));
        if found || len < GO_MARK.len() {
            return found;
        }
        // The mark may lie across the edge.
        at += len as u64 - (keep - 1);
    }
    false
}

/// What a process that runs does past the library: each a sentence.
pub(crate) fn unseen(pid: u32) -> Vec<String> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let rings = links.filter(|link| fs::read_link(link.path()).is_ok_and(|to| to == Path::new("anon_inode:[io_uring]"))).count();
    let exe: OsString = format!("/proc/{pid}/exe").into();
    let mut found: Vec<_> = obstacle_of(Path::new(&exe), 0).into_iter().collect();
    if rings > 0 {
        found.push(format!(
            "it has {rings} io_uring(s): what it does to sockets through them is the kernel's, and fails on offloaded connections"
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of this content, that may be run.
    fn program(name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = env::temp_dir().join(format!("ringway-binary-{}-{name}", std::process::id()));
        fs::write(&path, content).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
        path
    }

    /// What is said of such a file.
    fn verdict(name: &str, content: &[u8]) -> Option<String> {
        let path = program(name, content, 0o755);
        let said = obstacle_of(&path, SCRIPTS_MAX);
        fs::remove_file(path).expect("the file is still there");
        said
    }

    /// An ELF file with one program header of that kind.
    fn elf(class: u8, kind: u32, tail: &[u8]) -> Vec<u8> {
        let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
        let mut bytes = vec![0u8; 64 + 56];
        bytes[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', class]);
        bytes[18..20].copy_from_slice(&machine.to_ne_bytes());
        bytes[32..40].copy_from_slice(&64u64.to_ne_bytes());
        bytes[54..56].copy_from_slice(&56u16.to_ne_bytes());
        bytes[56..58].copy_from_slice(&1u16.to_ne_bytes());
        bytes[64..68].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(tail);
        bytes
    }

    #[test]
    fn what_can_be_preloaded_is_told_from_what_cannot() {
        assert_eq!(verdict("dynamic", &elf(2, 3, b"")), None);
        assert!(verdict("static", &elf(2, 1, b"")).expect("static").contains("static"));
        assert!(verdict("foreign", &elf(1, 3, b"")).expect("foreign").contains("32 bits"));
        let mut far = vec![0u8; (1 << 20) - 64 - 56 - 5];
        far.extend_from_slice(GO_MARK);
        assert!(verdict("go", &elf(2, 3, &far)).expect("Go").contains("Go"), "across the edge of a chunk");
        assert_eq!(verdict("text", b"nothing that runs"), None);
        assert_eq!(obstacle(OsStr::new("/no/such/program")), None);
        assert_eq!(obstacle(OsStr::new("true")), None, "coreutils are dynamic");
    }

    #[test]
    fn a_script_is_what_its_interpreter_is() {
        let target = program("interpreter", &elf(2, 1, b""), 0o755);
        let script = format!("#! {} -x\necho\n", target.display());
        assert!(verdict("script", script.as_bytes()).expect("by its interpreter").contains("static"));
        assert_eq!(verdict("env", b"#!/usr/bin/env -S A=b true\n"), None);
        fs::remove_file(target).expect("the file is still there");
    }

    #[test]
    fn another_users_set_user_id_program_is_not_preloaded() {
        let path = program("suid", &elf(2, 3, b""), 0o4755);
        // It is this user's own: nothing changes.
        assert_eq!(obstacle_of(&path, 0), None);
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12345), None).expect("root may");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).expect("its mode");
            assert!(obstacle_of(&path, 0).expect("another user's").contains("changes its user"));
        }
        fs::remove_file(path).expect("the file is still there");
    }

    #[test]
    fn this_process_has_nothing_to_hide() {
        assert_eq!(unseen(std::process::id()), Vec::<String>::new());
    }
}
