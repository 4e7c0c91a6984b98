//! The step `install`: what `cargo xtask install` installs works where the checkout is not.
//!
//! Everything is installed below a fresh directory outside of the checkout. There each example is compiled and run as the lines under
//! "Try it:" at its top say, by a shell whose PATH and PKG_CONFIG_PATH name the installation alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::deb;
use crate::deploy;
use crate::install::{self, Package};
use crate::workspace::{Workspace, run_command};

/// How long an example may take, in seconds.
const PATIENCE_S: &str = "60";

/// An example that cannot do its work with this version of the library, and says so, ends with this (as automake's tests do).
const NOT_SERVED: i32 = 77;

/// Builds as `cargo test` does, installs, and tries.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    install::packages(&[Package::CC, Package::PKG_CONFIG])?;
    workspace.build_debug()?;
    let built = workspace.target.join("debug");
    let folder = std::env::temp_dir().join(format!("ringway-install-{}", std::process::id()));
    let result = try_in(workspace, &built, &folder);
    fs::remove_dir_all(&folder)?;
    result
}

fn try_in(workspace: &Workspace, built: &Path, folder: &Path) -> Result<()> {
    staged(workspace, built, &folder.join("stage"))?;
    let prefix = folder.join("usr");
    deploy::install(workspace, built, &deploy::Options::at(&prefix, Path::new("/")))?;
    let mut results = Vec::new();
    for example in deploy::examples(workspace)? {
        let name = example.file_name().context("a file without a name")?.to_string_lossy().into_owned();
        let text = fs::read_to_string(prefix.join("share/doc/ringway/examples").join(&name))?;
        let script = trial(&text);
        if script.is_empty() {
            ensure!(name == "sender.c", "{name} does not say how to try it");
            continue;
        }
        let scratch = folder.join("try").join(&name);
        fs::create_dir_all(&scratch)?;
        let verdict = try_one(&prefix, &scratch, &script).with_context(|| name.clone())?;
        println!("  {name:20} {verdict}");
        results.push(verdict);
    }
    ensure!(results.contains(&Verdict::Works), "no example works");
    preloaded(&prefix, folder).context("ringway run --rsocket")?;
    watched(&prefix, &folder.join("try/zcopy_udp.c")).context("statistics")
}

/// A program that is watched by both commands, in each view, and then killed.
const WATCHED: &str = "
ringway run -- ./zcopy_udp 7209 &
program=$!
trap 'kill -9 $program 2>/dev/null' EXIT
tries=0
until vma_stats -p $program -c 1 -v 5 2>/dev/null | grep -q 0.0.0.0:7209; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { echo 'nothing is published'; exit 1; }
    sleep 0.1
done
for view in 1 2 3 4 5; do echo \"view $view\"; vma_stats -n zcopy_udp -c 1 -v $view || exit; done
vma_stats -p $program -i 1 -c 1 -d 2 -v 3 || exit
ringway stats --once --sort rx --filter 7209 $program || exit
ringway stats --once --json $program || exit
kill -9 $program
wait $program 2>/dev/null
trap - EXIT
ls vmastat.$program || exit
vma_stats -p $program -c 1 2>/dev/null && { echo 'a dead process is shown'; exit 1; }
[ ! -e vmastat.$program ] || { echo 'it is still there'; exit 1; }
";

fn watched(prefix: &Path, scratch: &Path) -> Result<()> {
    let output = shell(prefix, scratch, WATCHED)?.output()?;
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{}\n{said}{complained}", output.status);
    for expected in [
        "view 1\n",
        "poll%",
        "queue",
        "\tFd=[",
        "- UDP, Blocked, MC Loop Enabled\n- Local Address   = [0.0.0.0:7209]\n",
        "VMA Group Memberships Information",
        "PID/Program name",
        "[packets/s]",
        "\"program\":\"zcopy_udp\"",
    ] {
        ensure!(said.contains(expected), "{expected:?} is not in\n{said}{complained}");
    }
    println!("  {:20} works", "statistics");
    Ok(())
}

/// Which library a program is started with whose sockets are to become rsockets.
fn preloaded(prefix: &Path, scratch: &Path) -> Result<()> {
    let library = prefix.join("lib/ringway/librspreload.so").canonicalize()?;
    let output = shell(prefix, scratch, "ringway run --rsocket -- cat /proc/self/maps")?.env_remove("RINGWAY_LIBRSPRELOAD").output()?;
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success() && said.contains(&*library.to_string_lossy()), "{}\n{said}{complained}", output.status);
    println!("  {:20} works", "ringway run --rsocket");
    Ok(())
}

/// A shell for which only the installation is there.
fn shell(prefix: &Path, scratch: &Path, script: &str) -> Result<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(prefix.join("bin")).chain(std::env::split_paths(&path));
    let mut shell = Command::new("timeout");
    shell.args([PATIENCE_S, "sh", "-c", script]).current_dir(scratch);
    shell.env("PATH", std::env::join_paths(all)?).env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    shell.env("VMA_STATS_SHMEM_DIR", scratch).env_remove("LD_PRELOAD").env_remove("RINGWAY_LIBVMA");
    Ok(shell)
}

/// As a package is made: nothing outside of the directory, and nothing in it that names it.
fn staged(workspace: &Workspace, built: &Path, stage: &Path) -> Result<()> {
    let options = deploy::Options::at(Path::new("/usr"), stage);
    deploy::install(workspace, built, &options)?;
    for file in [
        "usr/lib/libvma.so",
        "usr/lib/libvma.so.9",
        "usr/lib/librsocket.so",
        "usr/lib/librsocket.so.1",
        "usr/lib/ringway/librspreload.so",
        "usr/include/mellanox/vma_extra.h",
        "usr/include/ringway/rdma/rsocket.h",
        "usr/bin/ringway",
        "usr/bin/vma_stats",
        "usr/share/man/man1/ringway.1",
        "usr/share/man/man1/ringway-run.1",
        "usr/share/man/man1/ringway-sim.1",
        "usr/share/bash-completion/completions/ringway",
        "usr/share/zsh/site-functions/_ringway",
        "usr/share/fish/vendor_completions.d/ringway.fish",
        "usr/share/doc/ringway/examples/systemd/ringway.conf",
        "usr/lib/systemd/system/ringway-broker.service",
        "usr/share/man/man1/ringway-broker.1",
        "usr/share/man/man7/ringway-params.7",
        "usr/share/man/man8/vma_stats.8",
        "etc/libvma.conf",
    ] {
        ensure!(stage.join(file).is_file(), "{file} is not installed");
    }
    for name in ["libvma.pc", "librsocket.pc"] {
        let text = fs::read_to_string(stage.join("usr/lib/pkgconfig").join(name))?;
        ensure!(text.starts_with("prefix=/usr\n") && !text.contains(&*stage.to_string_lossy()), "{name} names the stage");
    }
    for file in ["usr/lib/libvma.so", "usr/lib/librsocket.so", "usr/lib/ringway/librspreload.so", "usr/bin/ringway"] {
        let sections = deb::told(Command::new("readelf").arg("--section-headers").arg(stage.join(file)))?;
        ensure!(sections.contains(".dynsym") && !sections.contains(".debug_info"), "{file} is not stripped");
    }
    // Again, over it: rules that somebody has written stay.
    let rules = stage.join("etc/libvma.conf");
    fs::write(&rules, "# mine\n")?;
    deploy::install(workspace, built, &options)?;
    ensure!(fs::read_to_string(&rules)? == "# mine\n", "libvma.conf was written over");
    // And away with it, but for those rules.
    deploy::remove(&options)?;
    let left = deb::told(Command::new("find").arg(stage).args(["-not", "-type", "d"]))?;
    ensure!(left == rules.to_string_lossy(), "left behind: {left}");
    for folder in ["usr/share/doc/ringway", "usr/include/ringway", "usr/lib/ringway"] {
        ensure!(!stage.join(folder).exists(), "an empty folder is left: {folder}");
    }
    packed(workspace, built, stage)
}

/// A package has the same files, and its commands find the library where that is.
fn packed(workspace: &Workspace, built: &Path, stage: &Path) -> Result<()> {
    let package = deb::pack(workspace, built, stage)?;
    let unpacked = stage.join("unpacked");
    run_command(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&unpacked))?;
    let mut doctor = Command::new(unpacked.join("usr/bin/ringway"));
    // (Whether this machine can offload is another question.)
    let output = doctor.args(["doctor", "--json"]).env_remove("RINGWAY_LIBVMA").env_remove("LD_PRELOAD").output()?;
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).context("ringway doctor --json")?;
    let library = found["machine"]["checks"].as_array().into_iter().flatten().find(|check| check["what"] == "library").cloned();
    let is_its =
        library.as_ref().is_some_and(|check| check["ok"] == true && check["detail"].as_str().is_some_and(|d| d.contains("unpacked")));
    ensure!(is_its, "the package's command does not find the package's library: {library:?}");
    let mut run = Command::new(unpacked.join("usr/bin/ringway"));
    run.args(["run", "--rsocket", "--", "sh", "-c", "echo $LD_PRELOAD"]).env_remove("RINGWAY_LIBRSPRELOAD").env_remove("LD_PRELOAD");
    let found = deb::told(&mut run)?;
    ensure!(found.contains("unpacked") && found.ends_with("/ringway/librspreload.so"), "rsockets by another library: {found}");
    // Packages of librdmacm's may be there beside it: nothing of theirs is in it.
    for theirs in ["usr/include/rdma", &format!("usr/lib/{}-linux-gnu/rsocket", std::env::consts::ARCH)] {
        ensure!(!unpacked.join(theirs).exists(), "{theirs} is librdmacm's");
    }
    println!("  {:20} works", "the package");
    Ok(())
}

/// How an example went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Works,
    NotServed,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Works => "works",
            Self::NotServed => "is not served by this version of the library (it says so itself)",
        })
    }
}

/// The commands under "Try it:" in a file's first comment.
fn trial(text: &str) -> Vec<String> {
    let after = text.lines().skip_while(|line| !line.trim_end().ends_with("Try it:")).skip(1);
    let command = |line: &str| line.strip_prefix(" *\t").or_else(|| line.strip_prefix("//!     ")).map(str::to_owned);
    after.map_while(command).collect()
}

fn try_one(prefix: &Path, scratch: &Path, script: &[String]) -> Result<Verdict> {
    let examples = prefix.join("share/doc/ringway/examples");
    let bindings = scratch.join(deploy::BINDINGS);
    fs::create_dir_all(bindings.parent().context("a file without a folder")?)?;
    fs::copy(examples.join(deploy::BINDINGS), &bindings)?;
    for entry in fs::read_dir(&examples)? {
        let path = entry?.path();
        if path.is_file() {
            fs::copy(&path, scratch.join(path.file_name().context("a file without a name")?))?;
        }
    }
    let output = shell(prefix, scratch, &script_of(script))?.output()?;
    let said = || format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0) => {
            left_behind(scratch)?;
            Ok(Verdict::Works)
        }
        Some(NOT_SERVED) => Ok(Verdict::NotServed),
        _ => bail!("{}\n{}", output.status, said()),
    }
}

/// The script ends with the first command that fails. Where one runs in the background (a receiver), its end is the script's, and what is tried with it
/// does not outlive it: a receiver that is not served is gone before its sender has found it.
fn script_of(lines: &[String]) -> String {
    let mut script = String::from("trap 'kill $! 2>/dev/null' EXIT\n");
    let mut background = false;
    for line in lines {
        script += line;
        script += if line.ends_with('&') || line.starts_with("wait") {
            "\n"
        } else if background {
            " & other=$!\n"
        } else {
            " || exit\n"
        };
        if line.ends_with('&') {
            background = true;
            script += "receiver=$!\n";
        }
    }
    if background {
        script += "wait $receiver; result=$?\n[ $result = 0 ] && wait $other || kill $other 2>/dev/null\ntrap - EXIT\nexit $result\n";
    }
    script.replace("wait $!\n", "")
}

/// Statistics go with their process.
fn left_behind(scratch: &Path) -> Result<()> {
    let left: Vec<PathBuf> = fs::read_dir(scratch)?.flatten().map(|entry| entry.path()).filter(|path| is_statistics(path)).collect();
    ensure!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}

fn is_statistics(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmastat."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_try_is_read_from_the_top() {
        let text = "/*\n * What.\n *\n * Try it:\n *\tcc x.c\n *\t./x &\n *\t./y\n *\twait $!\n */\nint main;\n *\tnot this\n";
        assert_eq!(trial(text), ["cc x.c", "./x &", "./y", "wait $!"]);
        assert_eq!(trial("//! What.\n//!\n//! Try it:\n//!     rustc x.rs\n\nfn main() {}\n"), ["rustc x.rs"]);
        assert!(trial("/* nothing */").is_empty());
    }

    #[test]
    fn a_receivers_end_is_the_scripts() {
        let script = |receiver: &str| script_of(&[format!("sh -c '{receiver}' &"), "sleep 1".to_owned(), "wait $!".to_owned()]);
        let run = |script: String| Command::new("sh").args(["-c", &script]).status().unwrap().code();
        assert_eq!(run(script("exit 77")), Some(77));
        assert_eq!(run(script("exit 0")), Some(0));
        assert_eq!(run(script_of(&["false".to_owned(), "true".to_owned()])), Some(1));
    }
}
