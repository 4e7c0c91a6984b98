//! What the command `ringway` shows of a program on an interface, as a program of its own: `ringway capture`, whose file is read back, `ringway sockets` and `ringway doctor`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::cable::{ENDS, PORT, eventually, on_cable};
use crate::capture::{Packet, is_the_stream};
use crate::programs::{compile, library};

/// The command, which is built for another crate's tests; where they are built as well.
fn ringway() -> Command {
    let path = library().parent().and_then(Path::parent).expect("target/<profile>/deps").join("ringway");
    assert!(path.exists(), "{} is built with ringway-cli", path.display());
    let mut command = Command::new("timeout");
    command.arg("60").arg(path).stdin(Stdio::null()).env_remove("RINGWAY_DEVICE");
    command
}

fn shown(words: &[&str]) -> String {
    let Output { status, stdout, stderr } = ringway().args(words).output().expect("timeout(1) is part of coreutils");
    let [said, complaint] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(status.success(), "{words:?}: {status:?}\n{said}{complaint}");
    said
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A frame of a file, and whether it was sent.
type Seen = (bool, Vec<u8>);

/// What a pcapng file has (draft-ietf-opsawg-pcapng): the interfaces' names, and the frames.
fn read(file: &Path) -> (Vec<String>, Vec<Seen>) {
    let bytes = fs::read(file).expect("the file");
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("a word"));
    let (mut at, mut names, mut frames) = (0, Vec::new(), Vec::new());
    while at < bytes.len() {
        let (kind, len) = (word(at), word(at + 4) as usize);
        assert_eq!((len % 4, word(at + len - 4) as usize), (0, len), "a block says twice how long it is");
        // Options are a code, a length, and a value that is padded.
        let option = |from: usize, wanted: u16| {
            let (mut from, end) = (from, at + len - 4);
            while from + 4 <= end {
                let [code, long] = [from, from + 2].map(|at| u16::from_ne_bytes([bytes[at], bytes[at + 1]]));
                let value = &bytes[from + 4..from + 4 + usize::from(long)];
                if code == wanted {
                    return Some(value);
                }
                from += 4 + usize::from(long).next_multiple_of(4);
            }
            None
        };
        match kind {
            1 => names.push(String::from_utf8_lossy(option(at + 16, 2).expect("if_name")).into_owned()),
            6 => {
                let captured = word(at + 20) as usize;
                assert_eq!(captured, word(at + 24) as usize, "the frame is whole");
                let flags = option(at + 28 + captured.next_multiple_of(4), 2).expect("epb_flags");
                assert!(matches!(flags[0] & 3, 1 | 2), "it came or it left");
                frames.push((flags[0] & 3 == 2, bytes[at + 28..at + 28 + captured].to_vec()));
            }
            _ => {}
        }
        at += len;
    }
    (names, frames)
}

#[test]
fn a_capture_of_an_interface_has_all_that_came_and_left_by_it() {
    on_cable(|cable| {
        let folder = Folder(std::env::temp_dir().join(format!("ringway-commands-{}", std::process::id())));
        fs::create_dir(&folder.0).expect("a folder");
        for ([here, _], kind) in ENDS.into_iter().zip([0x0800, 0x86dd]) {
            let server = cable.here(&["serve", here, PORT]);
            cable.await_listener(true);
            // (What the other family's capture has left is not to be taken for this one's.)
            let file = folder.0.join(format!("{kind:04x}.pcapng"));
            let pid = server.pid().to_string();
            // (It ends with the process.)
            let mut capture = ringway();
            capture.args(["capture", "-i", "xdp:a0", "-p", &pid, "-B", "16384", "-w"]).arg(&file);
            let capture = capture.stderr(Stdio::piped()).spawn().expect("timeout(1) is part of coreutils");
            eventually("it sees frames", || {
                cable.there(&["exchange", here, PORT]).join().expect("the kernel's program");
                // (A few hundred bytes are there before any frame is.)
                fs::metadata(&file).is_ok_and(|file| file.len() > 4096)
            });
            cable.there(&["talk", here, PORT]).join().expect("the kernel's program");
            server.ends_well();
            let output = capture.wait_with_output().expect("it ends");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.contains(" captured, 0 lost"), "{said}");

            let (names, frames) = read(&file);
            assert!(names.iter().any(|name| name.contains("xdp:a0")) && !names.iter().any(|name| name.contains("shm")), "{names:?}");
            let packets: Vec<Packet<'_>> = frames.iter().filter_map(|(is_sent, bytes)| Packet::parse(bytes, *is_sent, kind)).collect();
            assert!(said.contains(&format!("{} frames captured", frames.len())), "{said}");
            for is_sent in [true, false] {
                let of = |protocol| packets.iter().filter(move |packet| packet.protocol == protocol && packet.is_sent == is_sent);
                assert!(of(17).any(|packet| packet.payload == b"hello"), "{here} {is_sent}");
                let whole = of(6).map(|packet| packet.other).find(|&other| is_the_stream(of(6).filter(|packet| packet.other == other)));
                assert!(whole.is_some(), "{here} {is_sent}: {} segments", of(6).count());
            }
        }
    });
}

#[test]
fn sockets_on_an_interface_are_listed_as_ss_lists_the_kernels() {
    on_cable(|cable| {
        let [here, there] = ENDS[0];
        let program = compile("tests/c/idle.c");
        cable.while_served(&cable.program, &["serve", there, PORT], || {
            let mut client = cable.here_of(&program, &["idle", there, PORT]);
            client.await_ready();
            let pid = client.pid().to_string();
            let shown_tcp = shown(&["sockets", "-t", "-n", "-i", "-p", &pid]);
            let line = shown_tcp.lines().find(|line| line.contains(&format!("{there}:{PORT}"))).unwrap_or_else(|| panic!("{shown_tcp}"));
            assert!(line.contains("ESTAB") && line.contains(&format!("{here}:")) && line.contains(&format!("pid={pid}")), "{shown_tcp}");
            // (The window scale, the round trip and the window are ss's words, too.)
            assert!(["wscale:", "rtt:", "cwnd:", "mss:"].iter().all(|word| shown_tcp.contains(word)), "{shown_tcp}");
            let all: serde_json::Value = serde_json::from_str(&shown(&["sockets", "-a", "--json", &pid])).expect("JSON");
            let remote = format!("{there}:{PORT}");
            let of = |protocol: &str| {
                all.as_array().expect("sockets").iter().find(|one| one["protocol"] == protocol && one["remote"] == *remote)
            };
            for protocol in ["tcp", "udp"] {
                let one = of(protocol).unwrap_or_else(|| panic!("{all:#}"));
                let is_by_it = one["device"].as_str().is_some_and(|device| device.split(',').any(|device| device == "xdp:a0"));
                assert!(is_by_it && one["offloaded"] == true, "{one:#}");
            }
            // The doctor sees whose the interface is. (Whether it finds the library is another matter.)
            let Output { stdout, .. } = ringway().arg("doctor").output().expect("timeout(1) is part of coreutils");
            let doctor = String::from_utf8_lossy(&stdout).into_owned();
            let line = doctor.lines().find(|line| line.trim_start().starts_with("xdp:a0")).unwrap_or_else(|| panic!("{doctor}"));
            let is_told = line.contains("in use: 0: ") && line.contains(&format!("({pid})")) || line.contains("CONFIG_XDP_SOCKETS_DIAG");
            let is_in_front = line.contains(&format!(" ({pid}) is in front of it"));
            assert!(line.contains("veth") && line.contains("; 1 queue; ") && is_told && is_in_front, "{line}");
            client.close_input();
            client.ends_well();
        });
    });
}
