use super::pages::ROW_MAX;
use super::*;

fn findings(files: &[(&str, &str)]) -> Vec<String> {
    let readme = [("README.md", "fine")];
    check(&readme.iter().chain(files).map(|(file, text)| (PathBuf::from(file), (*text).to_owned())).collect())
}

#[test]
fn a_tidy_crate_has_no_findings() {
    let files = [
        ("a/Cargo.toml", ""),
        ("a/src/lib.rs", "mod b;\npub(crate) mod c;\n#[path = \"odd.rs\"]\nmod d;\n"),
        ("a/src/b.rs", "mod inner;\n"),
        ("a/src/b/inner.rs", ""),
        ("a/src/c/mod.rs", "mod deep;\n"),
        ("a/src/c/deep.rs", ""),
        ("a/src/odd.rs", ""),
        ("a/tests/it.rs", "mod common;"),
        ("a/tests/common/mod.rs", ""),
    ];
    assert_eq!(findings(&files), Vec::<String>::new());
}

#[test]
fn dead_files_are_found() {
    let files = [("a/Cargo.toml", ""), ("a/src/lib.rs", "// mod b;\n"), ("a/src/b.rs", "")];
    assert_eq!(findings(&files), ["a/src/b.rs:1: no crate reaches this file"]);
}

#[test]
fn long_files_are_found_and_tests_are_not() {
    let long = "\n".repeat(LINES_MAX + 1);
    let files = [("a/Cargo.toml", ""), ("a/src/lib.rs", long.as_str()), ("a/tests/it.rs", long.as_str())];
    assert_eq!(findings(&files).len(), 1);
}

#[test]
fn what_cannot_replay_is_found() {
    let text = "use std::time::Instant;\nlet x = unsafe { y };\n#![forbid(unsafe_code)]\n// unsafe in prose\nlet m: HashMap<u8, u8>;\n";
    let found = findings(&[("stack/Cargo.toml", ""), ("stack/src/lib.rs", text)]);
    let lines: Vec<_> = found.iter().map(|f| f.split(':').nth(1).unwrap()).collect();
    assert_eq!(lines, ["1", "2", "5"]);
    assert!(findings(&[("ffi/vma/Cargo.toml", ""), ("ffi/vma/src/lib.rs", text)]).is_empty());
    let greets = |file| {
        findings(&[
            ("conformance/Cargo.toml", ""),
            ("conformance/tests/extra/main.rs", "mod shm;\nmod sim;\n"),
            (file, "use std::thread;\n"),
        ])
    };
    let found = [greets("conformance/tests/extra/shm.rs"), greets("conformance/tests/extra/sim.rs")];
    assert!(found[0].is_empty() && found[1].len() == 1, "{found:?}");
}

#[test]
fn arrows_upwards_inside_the_stack_are_found() {
    let of = |file: &str, text: &str| {
        findings(&[("stack/Cargo.toml", ""), ("stack/src/lib.rs", "mod tcp;\nmod wire;\nmod ring;\nmod odd;\n"), (file, text)])
    };
    let tcp = "use crate::ring::Readiness;\nuse crate::{Error, time::Instant, tcp::State};\nuse crate::{\n    wire::{arp, tcp::Flags},\n    ring,\n};\n// crate::ring\n";
    let found = of("stack/src/tcp.rs", tcp);
    let above = |line| format!("stack/src/tcp.rs:{line}: tcp names ring, which is above it or beside it");
    assert_eq!(found, [above(1), above(5)]);
    assert_eq!(of("stack/src/ring.rs", tcp), Vec::<String>::new());
    assert_eq!(of("stack/src/wire/mod.rs", "fn f() { crate::addr::g(crate::device::h()) }\n").len(), 1);
    assert!(of("stack/src/odd.rs", "")[0].contains("odd has no place"));
}

#[test]
fn devices_outside_of_their_list_are_found() {
    let text = "// ringway_shm\nuse ringway_shm::attach;\n";
    let of = |file: &str| {
        let lists = [
            ("ffi/vma/Cargo.toml", ""),
            ("ffi/vma/src/lib.rs", "mod socket;\n"),
            ("ffi/devices/Cargo.toml", ""),
            ("ffi/devices/src/lib.rs", "mod ring;\n"),
        ];
        let text = [(file, text)];
        findings(&[&lists[..], &text].concat())
    };
    assert_eq!(of("ffi/vma/src/socket.rs"), ["ffi/vma/src/socket.rs:2: ringway_shm is named outside of the list of devices"]);
    assert_eq!(of("ffi/devices/src/ring.rs"), Vec::<String>::new());
    assert_eq!(of("ffi/vma/tests/stats.rs"), Vec::<String>::new());
}

#[test]
fn crates_that_others_stand_on_name_none_of_them() {
    let text = "// ringway_vma\nuse ringway_stack::Error;\nuse ringway_host::numbers;\n";
    let of = |file: &str, package: &str| findings(&[(package, ""), (file, text)]);
    let found = of("ffi/preload/src/lib.rs", "ffi/preload/Cargo.toml");
    assert_eq!(found, ["ffi/preload/src/lib.rs:3: ringway_preload names ringway_host, which is above it or beside it"]);
    assert_eq!(of("ffi/params/src/lib.rs", "ffi/params/Cargo.toml").len(), 2);
    assert_eq!(of("ffi/vma/src/lib.rs", "ffi/vma/Cargo.toml"), Vec::<String>::new());
}

#[test]
fn marks_and_machine_paths_are_found() {
    for word in UNFINISHED.iter().chain(&MACHINE_PATHS) {
        assert_eq!(findings(&[("notes.md", &format!("see {word} there"))]).len(), 1, "{word}");
    }
    assert!(findings(&[("notes.c", &format!("mkstemp(\"X{}X\")", UNFINISHED[4]))]).is_empty());
    assert!(findings(&[("notes.md", &format!("target{}x", MACHINE_PATHS[0]))]).is_empty());
}

#[test]
fn the_readmes_commands_must_exist() {
    let found = |text: &str| check(&BTreeMap::from([(PathBuf::from("README.md"), text.to_owned())])).len();
    assert_eq!(found("```\ncargo xtask test --only fmt\nringway run -- x\n```\nand `target/release/ringway stats`"), 0);
    assert_eq!(found("```\ncargo xtask fly\n```"), 1);
    assert_eq!(found("Use `ringway fly`."), 1);
}

#[test]
fn pages_link_to_what_is_there_and_their_tables_fit() {
    let found = |text: &str| findings(&[("a/docs/page.md", text), ("a/docs/other.md", ""), ("a/src.c", "")]);
    assert!(found("[x](other.md#there) [y](../src.c) [z](https://example.org/) [up](../../README.md) [here](#below) [dir](..)").is_empty());
    assert_eq!(found("[x](another.md)"), ["a/docs/page.md:1: another.md does not exist"]);
    assert_eq!(found("```\n[x](another.md)\n```").len(), 0);
    assert_eq!(found(&format!("| {} |", "a".repeat(ROW_MAX))).len(), 1);
    assert_eq!(found(&format!("| {} |", "a".repeat(ROW_MAX - 4))).len(), 0);
}

#[test]
fn requirements_are_there_once_add_up_and_name_tests_that_exist() {
    let row = |kind: &str, n: usize| format!("| {kind}-{n} | what it asks for | yes | `a_window_opens` |\n");
    let rows = |kind: &str, count: usize| (1..=count).map(|n| row(kind, n)).collect::<String>();
    let totals = "| kind | yes |\n| MUST | 69 | 0 | 0 | 0 | 0 |\n";
    let whole = [totals, &rows("MUST", 69), &rows("SHLD", 31), &rows("MAY", 18), &row("REC", 1)].concat();
    let found = |page: &str| {
        let files = [
            ("stack/src/tests/window.rs", "#[test]\nfn a_window_opens() {}\n"),
            ("stack/src/window.rs", "fn a_window_shuts() {}\n"),
            ("sim/src/drills/windows.rs", "(\"a window\", window)"),
            ("sim/src/checkers/window.rs", ""),
            (requirements::PAGE, page),
        ];
        check(&files.map(|(file, text)| (PathBuf::from(file), text.to_owned())).into())
            .into_iter()
            .filter(|f| f.contains("rfc9293"))
            .collect()
    };
    let finds = |page: &str, what: &[&str]| {
        let found: Vec<String> = found(page);
        assert!(found.len() == what.len() && found.iter().zip(what).all(|(found, what)| found.ends_with(what)), "{found:?}");
    };
    finds(&whole, &[]);
    finds(&(whole.clone() + "Also \"a window\" and `checkers/window`, as `Config::ttl` says.\n"), &[]);
    finds(&(whole.clone() + "Also \"a door\".\n"), &["there is no drill \"a door\""]);
    finds(&(whole.clone() + "Also `a_window_shuts`, `checkers/door`.\n"), &["no test a_window_shuts", "no checker door"]);
    finds(&(whole.clone() + &row("MAY", 3)), &["MAY-3 is there twice, or is none of the RFC's"]);
    finds(&whole.replace(&row("MAY", 3), ""), &["MAY-3 is missing"]);
    finds(&whole.replace("| MUST | 69 | 0", "| MUST | 68 | 1"), &["and the rows have 69 0 0 0 0"]);
    finds(&whole.replacen("| yes | `", "| maybe | `", 1), &["MUST-1: maybe is no answer", "and the rows have 68 0 0 0 0"]);
}
