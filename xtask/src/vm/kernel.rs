//! Debian's kernel, and those of its modules that a guest needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::install::Privilege;
use crate::workspace::run_command;

/// What a guest loads; what they depend on is found by modprobe. (Without crc32_generic no rxe device can be made.)
const MODULES: [&str; 14] = [
    "rdma_rxe",
    "rdma_ucm",
    "ib_uverbs",
    "veth",
    "dummy",
    "tun",
    "af_packet",
    "virtio_net",
    "virtio_pci",
    "9p",
    "9pnet_virtio",
    "overlay",
    "crc32_generic",
    "crc32c_generic",
];

/// A kernel, unpacked.
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    /// In the order in which they are loaded.
    pub(crate) modules: Vec<PathBuf>,
}

impl Kernel {
    /// Downloads it, unless an earlier run has.
    ///
    /// # Errors
    /// apt knows no such kernel, or cannot fetch it. (What it fetches it checks by the hashes of the distribution's signed lists.)
    pub(crate) fn obtain(folder: &Path, version: Option<&str>) -> Result<Self> {
        let package = match version {
            None => of_distribution()?,
            Some(version) => newest_of(version)?,
        };
        let home = folder.join(&package);
        if !home.join("modules").is_file() {
            println!("fetching {package}; this is done once");
            fetch(&package, &home)?;
        }
        let listed = fs::read_to_string(home.join("modules"))?;
        Ok(Self { image: home.join("vmlinuz"), modules: listed.lines().map(|name| home.join(name)).collect() })
    }
}

/// The package that the distribution's own kernel is in.
fn of_distribution() -> Result<String> {
    let depends = apt_cache(&["depends", "linux-image-amd64"])?;
    let names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
    let version = names.map(str::to_owned).next().context("this distribution has no package linux-image-amd64: give --kernel")?;
    Ok(format!("linux-image-{version}"))
}

/// Whether there is one whose version begins so.
///
/// # Errors
/// There is no apt.
pub(crate) fn is_known(version: &str) -> Result<bool> {
    Ok(newest_among(&apt_cache(&["pkgnames", &format!("linux-image-{version}")])?, version).is_some())
}

/// The newest one whose version begins so. (The cloud's kernels have no rxe; what is unsigned has the same modules as what is signed.)
fn newest_of(version: &str) -> Result<String> {
    let names = apt_cache(&["pkgnames", &format!("linux-image-{version}")])?;
    let newest = newest_among(&names, version);
    newest.map(str::to_owned).with_context(|| format!("apt knows no kernel {version} (apt-cache search linux-image-{version})"))
}

/// Of apt's names.
fn newest_among<'a>(names: &'a str, version: &str) -> Option<&'a str> {
    let is_plain = |name: &&str| {
        let name = name.strip_suffix("-unsigned").unwrap_or(name);
        let flavour = name.strip_prefix("linux-image-").and_then(|rest| rest.strip_suffix("-amd64"));
        flavour.is_some_and(|rest| !["cloud", "rt", "dbg"].iter().any(|other| rest.ends_with(other)) && follows(rest, version))
    };
    names.lines().filter(is_plain).max_by_key(|name| (numbers(name), !name.ends_with("-unsigned")))
}

/// 6.1 is 6.1 and 6.1.0-56, and not 6.12.
fn follows(name: &str, version: &str) -> bool {
    name.strip_prefix(version).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The numbers in a name, for comparing.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

fn apt_cache(arguments: &[&str]) -> Result<String> {
    let output = Command::new("apt-cache").args(arguments).output().context("apt-cache: guests run Debian's kernels")?;
    ensure!(output.status.success(), "apt-cache {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Downloads a package, and keeps of it what is needed.
fn fetch(package: &str, home: &Path) -> Result<()> {
    let scratch = home.join("unpacked");
    _ = fs::remove_dir_all(home);
    fs::create_dir_all(&scratch)?;
    let download = || run_command(Command::new("apt-get").current_dir(home).args(["-qq", "download", package]));
    if download().is_err() {
        // (The lists may be older than what the mirror has.)
        let mut update = Privilege::of_this_user().command("apt-get").context("apt-get update needs root")?;
        run_command(update.args(["-qq", "update"]))?;
        download()?;
    }
    let file = one_in(home, |name| name.ends_with(".deb"))?;
    run_command(Command::new("dpkg-deb").arg("-x").args([&file, &scratch]))?;
    fs::remove_file(file)?;
    // (Newer packages have them beneath usr.)
    let lib = ["lib/modules", "usr/lib/modules"].map(|path| scratch.join(path)).into_iter().find(|path| path.is_dir());
    let version = one_in(&lib.context("a kernel package without modules")?, |_| true)?;
    let version = version.file_name().and_then(|name| name.to_str()).context("a kernel's version")?.to_owned();
    fs::rename(scratch.join(format!("boot/vmlinuz-{version}")), home.join("vmlinuz"))?;
    let base = if scratch.join("lib/modules").is_dir() { scratch.clone() } else { scratch.join("usr") };
    let modules = keep_modules(&base, &version, home)?;
    fs::remove_dir_all(scratch)?;
    // (Last: it says that all is there.)
    fs::write(home.join("modules"), modules.join("\n"))?;
    Ok(())
}

/// Moves the modules, in the order of their dependencies, each uncompressed; their names.
fn keep_modules(base: &Path, version: &str, home: &Path) -> Result<Vec<String>> {
    run_command(tool("depmod").arg("-b").args([base, Path::new(version)]))?;
    let mut kept: Vec<String> = Vec::new();
    for module in MODULES {
        let output = tool("modprobe").arg("-d").arg(base).args(["-S", version, "--show-depends", module]).output()?;
        ensure!(output.status.success(), "{version} has no module {module}: {}", String::from_utf8_lossy(&output.stderr).trim());
        for path in String::from_utf8_lossy(&output.stdout).lines().filter_map(path_of) {
            let path = Path::new(path);
            let name = path.file_name().and_then(|name| name.to_str()).context("a module's name")?;
            let plain = name.strip_suffix(".xz").unwrap_or(name);
            if kept.iter().any(|kept| kept == plain) {
                continue;
            }
            fs::copy(path, home.join(name))?;
            if plain != name {
                run_command(Command::new("xz").arg("-d").arg(home.join(name)))?;
            }
            kept.push(plain.to_owned());
        }
    }
    Ok(kept)
}

/// The module of a line "insmod PATH", which options may follow; the other kind is "builtin NAME".
fn path_of(line: &str) -> Option<&str> {
    let line = line.strip_prefix("insmod ")?;
    let name_at = line.rfind(".ko")?;
    let len = line[name_at..].find(' ').unwrap_or(line.len() - name_at);
    Some(&line[..name_at + len])
}

/// One of kmod's, which PATH may lack.
fn tool(name: &str) -> Command {
    let installed = Path::new("/usr/sbin").join(name);
    Command::new(if installed.is_file() { installed } else { name.into() })
}

/// The one entry of a folder that is meant.
fn one_in(folder: &Path, is_meant: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let entries = fs::read_dir(folder)?.flatten().filter(|entry| entry.file_name().to_str().is_some_and(&is_meant));
    entries.map(|entry| entry.path()).next().with_context(|| format!("nothing of the kind in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::{follows, newest_among, numbers, path_of};

    #[test]
    fn a_modules_options_are_not_of_its_path() {
        assert_eq!(path_of("insmod /a b/dummy.ko numdummies=0"), Some("/a b/dummy.ko"));
        assert_eq!([path_of("insmod /a/tun.ko.xz"), path_of("builtin af_packet")], [Some("/a/tun.ko.xz"), None]);
    }

    #[test]
    fn a_version_is_followed_by_no_digit_and_numbers_are_compared_as_such() {
        assert!(follows("6.1.0-56", "6.1") && follows("6.12.115+deb12", "6.12"));
        assert!(!follows("6.12.115+deb12", "6.1"));
        assert!(numbers("linux-image-6.1.0-56-amd64") > numbers("linux-image-6.1.0-9-amd64"));
        let names = "linux-image-6.12.9+deb12-amd64\nlinux-image-6.12.10+deb12-amd64\nlinux-image-6.12.11+deb12-cloud-amd64\nlinux-image-6.1.0-9-amd64";
        assert_eq!(newest_among(names, "6.12"), Some("linux-image-6.12.10+deb12-amd64"));
        assert_eq!(newest_among(names, "6.13"), None);
    }
}
