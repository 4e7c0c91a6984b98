//! `ringway run` as a program: what it hands on, and how it ends where there is nothing to run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of a test's own, with something in it that may stand for the library: the loader says that it cannot preload it, and goes on.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("libvma.so"), "").expect("a file");
    folder
}

/// Runs `ringway run` with these words, in an environment with or without RINGWAY_DEVICE.
fn run(folder: &Path, device: Option<&str>, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.arg("run").args(words).env("RINGWAY_LIBVMA", folder.join("libvma.so")).env_remove("RINGWAY_DEVICE");
    command.envs(device.map(|device| ("RINGWAY_DEVICE", device)));
    command.output().expect("ringway")
}

#[test]
fn the_environments_device_stays_unless_another_is_named() {
    let folder = folder("run-device");
    let told = |device: Option<&str>, options: &[&str]| {
        let words = [options, &["sh", "-c", "echo ${RINGWAY_DEVICE-unset}"]].concat();
        String::from_utf8(run(&folder, device, &words).stdout).expect("text")
    };
    assert_eq!(told(Some("off"), &[]), "off\n");
    assert_eq!(told(Some("off"), &["--device", "shm"]), "shm\n");
    assert_eq!(told(None, &["--device", "off"]), "off\n");
    assert_eq!(told(None, &[]), "unset\n");
}

#[test]
fn rsockets_have_a_library_of_their_own() {
    let folder = folder("run-rsocket");
    let library = folder.join("librspreload.so");
    fs::write(&library, "").expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.args(["run", "--rsocket", "sh", "-c", "echo $LD_PRELOAD"]).env("RINGWAY_LIBRSPRELOAD", &library).env_remove("LD_PRELOAD");
    let told = String::from_utf8(command.output().expect("ringway").stdout).expect("text");
    assert_eq!(told.trim(), library.canonicalize().expect("it is there").to_string_lossy());
    let output = run(&folder, None, &["--rsocket", "--device", "shm", "true"]);
    assert_eq!(output.status.code(), Some(2), "rsockets have no such choice: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_cannot_be_executed_ends_as_in_a_shell() {
    let folder = folder("run-status");
    let text = folder.join("text");
    fs::write(&text, "no program\n").expect("a file");
    fs::set_permissions(&text, fs::Permissions::from_mode(0o644)).expect("its mode");
    for program in ["ringway-no-such-program", "/nowhere/at/all", &*text.to_string_lossy(), "/"] {
        let ours = run(&folder, None, &[program]);
        let env = Command::new("env").arg(program).output().expect("env");
        let said = String::from_utf8_lossy(&ours.stderr);
        assert_eq!(ours.status.code(), env.status.code(), "{program}: {said}");
        assert!(said.contains("cannot run") && said.contains(program), "{said}");
    }
    // (What is not known is refused before anything runs.)
    let output = run(&folder, None, &["--devic", "shm", "true"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_software_connectx_is_preloaded_in_place_of_the_library_or_before_it() {
    let folder = folder("run-connectx");
    let library = folder.join("libringway_connectx.so");
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.args(["run", "--software-connectx"]).args(words).env_remove("LD_PRELOAD");
        command.env("RINGWAY_CONNECTX_LIBRARY", &library).env("RINGWAY_LIBVMA", &library);
        command.output().expect("ringway")
    };
    let missing = run(&["true"]);
    let said = String::from_utf8_lossy(&missing.stderr);
    assert!(!missing.status.success() && said.contains("RINGWAY_CONNECTX_LIBRARY may name it"), "{said}");
    fs::write(&library, "").expect("a file");
    let told = String::from_utf8(run(&["sh", "-c", "echo $LD_PRELOAD"]).stdout).expect("text");
    assert_eq!(told.trim_end(), library.canonicalize().expect("it is there").to_string_lossy());
    let told = String::from_utf8(run(&["--device", "mlx5:mlx5_0", "sh", "-c", "echo $LD_PRELOAD $RINGWAY_DEVICE"]).stdout).expect("text");
    let path = library.canonicalize().expect("it is there");
    assert_eq!(told.trim_end(), format!("{0}:{0} shm,mlx5:mlx5_0", path.display()));
    fs::remove_file(&library).expect("it is there");
}
