//! Rust files that no crate reaches: neither the root of a target nor named by a `mod` of a file that is reached.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Adds a finding for each dead file.
pub(super) fn dead(texts: &BTreeMap<PathBuf, String>, findings: &mut Vec<String>) {
    let sources: BTreeSet<&PathBuf> = texts.keys().filter(|f| f.extension().is_some_and(|e| e == "rs")).collect();
    let crates: Vec<&Path> = texts.keys().filter(|f| f.file_name().is_some_and(|n| n == "Cargo.toml")).filter_map(|f| f.parent()).collect();
    let mut reached: BTreeSet<PathBuf> = BTreeSet::new();
    let mut open: Vec<PathBuf> = sources.iter().filter(|f| crates.iter().any(|c| is_root(f, c))).map(|f| (*f).clone()).collect();
    while let Some(file) = open.pop() {
        if !reached.insert(file.clone()) {
            continue;
        }
        let children = texts.get(&file).map(|text| declared(&file, text)).unwrap_or_default();
        open.extend(children.into_iter().filter(|child| sources.contains(child)));
    }
    findings.extend(sources.iter().filter(|f| !reached.contains(**f)).map(|f| format!("{}:1: no crate reaches this file", f.display())));
}

/// Whether cargo finds `file` by itself as the root of one of `package`'s targets (its documentation, "Package Layout").
fn is_root(file: &Path, package: &Path) -> bool {
    let Ok(inside) = file.strip_prefix(package) else { return false };
    let parts: Vec<_> = inside.iter().map(|p| p.to_string_lossy()).collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    match parts[..] {
        ["build.rs"] | ["src", "lib.rs" | "main.rs"] | ["src", "bin", _] | ["src", "bin", _, "main.rs"] => true,
        ["tests" | "benches" | "examples", file] => file.ends_with(".rs"),
        ["tests" | "benches" | "examples", _, "main.rs"] => true,
        // (Not by itself: of a package of cargo-fuzz's layout, the manifest names each.)
        ["fuzz_targets", file] => file.ends_with(".rs"),
        _ => false,
    }
}

/// The files that `text`, which is `file`, names as modules.
fn declared(file: &Path, text: &str) -> Vec<PathBuf> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let stem = file.file_stem().unwrap_or_default();
    // A target's root and mod.rs own their folder; other files own the folder of their name.
    let top = ["lib", "main", "mod", "build"].iter().any(|s| stem == *s) || is_test_root(file);
    let own = if top { folder.to_owned() } else { folder.join(stem) };
    let mut path = None;
    let mut files = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(value) = line.strip_prefix("#[path = \"").and_then(|l| l.strip_suffix("\"]")) {
            path = Some(folder.join(value));
        } else if let Some(name) = module(line) {
            match path.take() {
                Some(path) => files.push(path),
                None => files.extend([own.join(format!("{name}.rs")), own.join(name).join("mod.rs")]),
            }
        }
    }
    files
}

/// A file directly under tests/, benches/, examples/ or src/bin/ is a crate of its own.
fn is_test_root(file: &Path) -> bool {
    file.parent().and_then(Path::file_name).is_some_and(|n| ["tests", "benches", "examples", "bin"].iter().any(|t| n == *t))
}

/// The name in `mod name;`, with whatever visibility.
fn module(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub").map_or(line, |rest| rest.split_once(')').map_or(rest, |(_, rest)| rest)).trim_start();
    let name = line.strip_prefix("mod ")?.strip_suffix(';')?;
    name.chars().all(|c| c.is_alphanumeric() || c == '_').then_some(name)
}
