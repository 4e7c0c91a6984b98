//! Tells the program which code it is: `ringway sim` prints the commit with each failure, and counts only results of the same code.

use std::env;
use std::path::Path;
use std::process::Command;

/// What a simulated run follows from, beside its seed.
const SOURCES: [&str; 2] = ["stack", "sim"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let root = Path::new("../..");
    for source in SOURCES.map(|s| root.join(s)).iter().filter(|s| s.exists()) {
        println!("cargo:rerun-if-changed={}", source.display());
    }
    // Each commit and each checkout is a line there.
    for log in git(&["rev-parse", "--git-path", "logs/HEAD"]).iter().filter(|log| Path::new(log).exists()) {
        println!("cargo:rerun-if-changed={log}");
    }
    let known = git(&["rev-parse", "--short=12", "HEAD"]).zip(trees());
    let (commit, tree) = known.map_or(("unknown".to_owned(), String::new()), |(commit, trees)| {
        let committed = git(&["rev-parse", "HEAD:stack", "HEAD:sim"]).unwrap_or_default();
        let clean = committed.split_whitespace().eq(trees.iter().map(String::as_str));
        (if clean { commit } else { format!("{commit}+dirty") }, trees.map(|t| t[..12.min(t.len())].to_owned()).join("-"))
    });
    println!("cargo:rustc-env=RINGWAY_COMMIT={commit}");
    println!("cargo:rustc-env=RINGWAY_SIM_TREE={tree}");
}

/// The tree hashes of the sources as they lie in the work tree, committed or not: written with an index and a store of their own,
/// so that the repository's stay as they are.
fn trees() -> Option<[String; 2]> {
    let out = env::var_os("OUT_DIR")?;
    let (index, objects) = (Path::new(&out).join("index"), Path::new(&out).join("objects"));
    std::fs::create_dir_all(&objects).ok()?;
    let store = git(&["rev-parse", "--path-format=absolute", "--git-path", "objects"])?;
    let apart = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir("../..").args(arguments).env("GIT_INDEX_FILE", &index);
        git.env("GIT_OBJECT_DIRECTORY", &objects).env("GIT_ALTERNATE_OBJECT_DIRECTORIES", &store);
        answer(&mut git)
    };
    apart(&["read-tree", "HEAD"])?;
    apart(&["add", "--all", "--", "stack", "sim"])?;
    let whole = apart(&["write-tree"])?;
    let both = SOURCES.map(|source| apart(&["rev-parse", &format!("{whole}:{source}")]));
    let [Some(stack), Some(sim)] = both else { return None };
    Some([stack, sim])
}

fn git(arguments: &[&str]) -> Option<String> {
    answer(Command::new("git").args(arguments))
}

/// What a command prints, if there is such a command, and it succeeds.
fn answer(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
