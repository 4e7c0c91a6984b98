//! Programs that are linked with the library that this build made.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A folder with the library, under the names by which programs are linked with it and find it.
pub(crate) fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().expect("the test has a path");
        let library = test.parent().expect("target/<profile>/deps/<test>").join("librsocket.so");
        assert!(library.exists(), "librsocket.so is built with its tests");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
        std::fs::create_dir_all(&folder).expect("a folder");
        for name in ["librsocket.so", "librsocket.so.1"] {
            let link = folder.join(name);
            let _ = std::fs::remove_file(&link);
            symlink(&library, &link).expect("a link");
        }
        folder
    })
}

/// Compiles a program of `tests`, which is named without `.c`. (A guest has those that were compiled before it began.)
pub(crate) fn program(name: &str) -> PathBuf {
    let (package, libraries) = (Path::new(env!("CARGO_MANIFEST_DIR")), libraries());
    let source = package.join("tests").join(name).with_extension("c");
    let program = libraries.join(source.file_stem().expect("a name"));
    if std::env::var_os("RINGWAY_VM_ADDRESS").is_some() && program.exists() {
        return program;
    }
    let compiled = Command::new("gcc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(package.join("include"))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg(format!("-L{}", libraries.display()))
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .arg("-lrsocket")
        .status()
        .expect("gcc must be installed");
    assert!(compiled.success(), "{name}.c does not compile");
    program
}
