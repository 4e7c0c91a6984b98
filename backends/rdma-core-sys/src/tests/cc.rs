//! The C compiler and the installed headers.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Headers that the tables are held against, and Debian's packages of them.
pub(super) const HEADERS: [(&str, &str); 6] = [
    ("infiniband/verbs.h", "libibverbs-dev"),
    ("infiniband/mlx5dv.h", "libibverbs-dev"),
    ("infiniband/sa.h", "libibverbs-dev"),
    ("rdma/rdma_cma.h", "librdmacm-dev"),
    ("rdma/rdma_verbs.h", "librdmacm-dev"),
    ("infiniband/ib.h", "librdmacm-dev"),
];

/// A folder of headers that comes before the installed ones: those of another release, say.
const INCLUDE: &str = "RDMA_CORE_INCLUDE";

/// A folder of one test's own, which goes when the test ends.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rdma-core-sys-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the compiler on `source`; what it printed, or its complaint.
fn run(scratch: &Scratch, source: &str, args: &[&str]) -> Result<String, String> {
    let file = scratch.path("source.c");
    fs::write(&file, source).unwrap();
    let mut command = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.arg("-std=gnu11").args(args);
    if let Some(folder) = env::var_os(INCLUDE) {
        command.arg("-I").arg(folder);
    }
    let output =
        command.arg(&file).output().unwrap_or_else(|error| panic!("the C compiler cannot be run ({error}): install gcc and libc6-dev"));
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        // The first complaints say it; there can be thousands.
        Err(String::from_utf8_lossy(&output.stderr).lines().take(40).map(|line| format!("{line}\n")).collect())
    }
}

/// Packages whose headers are missing, each once.
pub(super) fn missing_packages(headers: &[(&str, &'static str)]) -> Vec<&'static str> {
    let probe: String = headers
        .iter()
        .enumerate()
        .map(|(index, (header, _))| format!("#if !__has_include(<{header}>)\nmissing {index}\n#endif\n"))
        .collect();
    let text = run(&Scratch::new(), &probe, &["-E", "-P"]).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("missing "));
    let mut packages: Vec<_> = lines.map(|index| headers[index.parse::<usize>().unwrap()].1).collect();
    packages.dedup();
    packages
}

/// Says which packages must be installed, and fails.
pub(super) fn need_headers() {
    let missing = missing_packages(&HEADERS);
    assert!(missing.is_empty(), "headers of rdma-core are missing: apt-get install {}", missing.join(" "));
}

fn includes() -> String {
    HEADERS.iter().map(|(header, _)| format!("#include <{header}>\n")).collect()
}

/// Whether C knows a name.
pub(super) fn knows(name: &str) -> bool {
    let source = format!("{}unsigned long long value(void) {{ return {name}; }}\n", includes());
    run(&Scratch::new(), &source, &["-fsyntax-only"]).is_ok()
}

/// What a program prints whose `main` has this body.
pub(super) fn printed(body: &str) -> String {
    let scratch = Scratch::new();
    let program = scratch.path("program");
    let source = format!("#include <stdio.h>\n#include <stddef.h>\n{}int main(void) {{\n{body}return 0;\n}}\n", includes());
    run(&scratch, &source, &["-O0", "-o", program.to_str().unwrap()]).unwrap_or_else(|complaint| panic!("{complaint}"));
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success(), "the program fails");
    String::from_utf8(output.stdout).unwrap()
}

/// Makes a shared library.
pub(super) fn shared_library(scratch: &Scratch, source: &str) -> PathBuf {
    let library = scratch.path("library.so");
    run(scratch, source, &["-shared", "-fPIC", "-o", Path::new(&library).to_str().unwrap()])
        .unwrap_or_else(|complaint| panic!("{complaint}"));
    library
}

#[test]
fn a_missing_header_names_its_package() {
    let headers = [("infiniband/no_such_header.h", "libno-dev"), ("stdio.h", "libc6-dev"), ("rdma/nor_this.h", "libno-dev")];
    assert_eq!(missing_packages(&headers), ["libno-dev"]);
}
