//! Who may name whom. Inside `stack`, modules stand in layers, and an arrow upwards would tie what is below to what is above it. In `ffi`, the crates of
//! devices are named by the list of devices alone, so that another device can be added there, and what several of its crates stand on names
//! none of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::numbered;

const STACK: &str = "stack/src";

/// A module, and those that it may name. What is not here has not been given its place yet.
const MAY_NAME: [(&str, &[&str]); 24] = [
    ("addr", &[]),
    // (For tests alone.)
    ("capture", &[]),
    ("error", &[]),
    ("flow", &[]),
    // (What a fuzzer calls: everything with a parser, or a queue.)
    ("fuzzing", &["roce", "rsocket", "tcp", "time", "ud", "wire"]),
    ("marks", &[]),
    ("mutants", &[]),
    ("net", &[]),
    ("offload", &[]),
    ("time", &[]),
    ("timer", &["time"]),
    ("wire", &["addr", "capture"]),
    ("mld", &["capture", "time", "wire"]),
    ("ndisc", &["addr", "capture", "time", "wire"]),
    ("device", &["addr", "offload", "time"]),
    ("ud", &["device", "time", "wire"]),
    ("raw", &["device", "mutants", "time"]),
    ("cyclic", &["device", "error", "mutants", "offload", "time", "wire"]),
    // (An ordinary network is its host's tables. Kinds of devices are for the devices of its tests.)
    ("roce", &["capture", "device", "net", "offload", "time", "wire"]),
    // (Adapters are for its tests.)
    ("cm", &["device", "net", "roce", "time"]),
    // (Adapters, and the capture, are for its tests.)
    ("rsocket", &["capture", "device", "error", "flow", "roce", "time"]),
    ("tcp", &["device", "error", "flow", "marks", "mutants", "time", "wire"]),
    ("ring", &["addr", "cyclic", "device", "error", "flow", "marks", "mld", "mutants", "offload", "tcp", "time", "timer", "wire"]),
    // (Frames, and kinds of devices, are for the devices of its tests.)
    ("socket", &["addr", "device", "error", "flow", "mutants", "net", "offload", "ring", "tcp", "time", "wire"]),
];

/// The crates of devices.
const DEVICES: [&str; 4] = ["ringway_mlx5", "ringway_rxe", "ringway_shm", "ringway_xdp"];

/// Where they may be named in `ffi`, beside tests: the list of devices.
const LIST_OF_DEVICES: &str = "ffi/devices/src";

/// And, of one device, what the software ConnectX's port is plugged into: no program's sockets are on it.
const WIRE: (&str, &str) = ("ffi/uverbs/src/wire.rs", "ringway_xdp");

/// Crates of `ffi` that others there stand on, or that stand beside them, and the workspace's crates that these may name.
const BELOW: [(&str, &str, &[&str]); 7] = [
    // (The list of devices.)
    (
        "ffi/devices/src",
        "ringway_devices",
        &["ringway_host", "ringway_mlx5", "ringway_params", "ringway_rxe", "ringway_shm", "ringway_stack", "ringway_xdp"],
    ),
    // (That one nobody stands on, and it stands on the stack alone: what it shows is the stack's.)
    ("ffi/packetdrill/src", "ringway_packetdrill", &["ringway_stack"]),
    ("ffi/params/src", "ringway_params", &[]),
    ("ffi/preload/src", "ringway_preload", &["ringway_stack"]),
    ("ffi/report/src", "ringway_report", &[]),
    // (And rsockets, which know the devices.)
    ("ffi/rspreload/src", "ringway_rspreload", &["ringway_host", "ringway_preload", "ringway_stack"]),
    ("ffi/uverbs/src", "ringway_connectx", &["ringway_host", "ringway_preload", "ringway_sim", "ringway_stack", "ringway_xdp"]),
];

/// Adds a finding for each arrow that is not in the tables, and for a module of `stack` that has no place there. (Comments may name whom they like.)
pub(super) fn check(texts: &BTreeMap<PathBuf, String>, findings: &mut Vec<String>) {
    layers(texts, findings);
    devices(texts, findings);
    below(texts, findings);
}

fn below(texts: &BTreeMap<PathBuf, String>, findings: &mut Vec<String>) {
    for (file, text) in texts {
        let Some((_, own, allowed)) = BELOW.iter().find(|(folder, ..)| file.starts_with(folder)) else { continue };
        for (number, line) in numbered(text) {
            let code = line.split("//").next().unwrap_or_default();
            let words = code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| word.starts_with("ringway_"));
            for named in words.filter(|named| named != own && !allowed.contains(named)) {
                findings.push(format!("{}:{number}: {own} names {named}, which is above it or beside it", file.display()));
            }
        }
    }
}

fn devices(texts: &BTreeMap<PathBuf, String>, findings: &mut Vec<String>) {
    for (file, text) in texts {
        let is_source = file.starts_with("ffi") && file.components().nth(2).is_some_and(|part| part.as_os_str() == "src");
        if !is_source || file.starts_with(LIST_OF_DEVICES) {
            continue;
        }
        for (number, line) in numbered(text) {
            let code = line.split("//").next().unwrap_or_default();
            let is_wire = |device: &str| file == Path::new(WIRE.0) && device == WIRE.1;
            if let Some(device) = DEVICES.iter().find(|device| code.contains(**device) && !is_wire(device)) {
                findings.push(format!("{}:{number}: {device} is named outside of the list of devices", file.display()));
            }
        }
    }
}

fn layers(texts: &BTreeMap<PathBuf, String>, findings: &mut Vec<String>) {
    for (file, text) in texts {
        let Some(module) = module_of(file) else { continue };
        let Some((_, allowed)) = MAY_NAME.iter().find(|(name, _)| *name == module) else {
            findings.push(format!("{}:1: {module} has no place among the modules of stack (xtask/src/tidy/arrows.rs)", file.display()));
            continue;
        };
        for (number, named) in named_in(text) {
            if named != module && !allowed.contains(&named) {
                findings.push(format!("{}:{number}: {module} names {named}, which is above it or beside it", file.display()));
            }
        }
    }
}

/// The module at the top of the crate that `file` belongs to; none for the crate's root, and outside of it.
fn module_of(file: &Path) -> Option<String> {
    let first = file.extension().filter(|e| *e == "rs").and(file.strip_prefix(STACK).ok())?.components().next()?;
    let module = Path::new(first.as_os_str()).file_stem()?.to_str()?.to_owned();
    (module != "lib").then_some(module)
}

/// Modules after `crate::`, one by one or between braces, with their lines. Names that begin with a capital are the root's own exports.
fn named_in(text: &str) -> Vec<(usize, &str)> {
    let mut named = Vec::new();
    // Braces that are open in a `crate::{…}`.
    let mut depth = 0;
    for (number, line) in numbered(text) {
        let code = line.split("//").next().unwrap_or_default();
        let mut rest = code;
        if depth > 0 {
            inside_braces(code, number, &mut depth, &mut named);
        }
        while let Some(at) = rest.find("crate::") {
            rest = &rest[at + "crate::".len()..];
            if let Some(inside) = rest.strip_prefix('{') {
                depth = 1;
                inside_braces(inside, number, &mut depth, &mut named);
            } else {
                push(rest, number, &mut named);
            }
        }
    }
    named
}

/// Of `code`, which is inside of `depth` braces, what begins each item of the outermost.
fn inside_braces<'a>(code: &'a str, number: usize, depth: &mut usize, named: &mut Vec<(usize, &'a str)>) {
    let mut begins = true;
    for (at, c) in code.char_indices() {
        match c {
            '{' => *depth += 1,
            '}' if *depth == 1 => {
                *depth = 0;
                return;
            }
            '}' => *depth -= 1,
            ',' if *depth == 1 => begins = true,
            c if c.is_whitespace() => {}
            _ if begins && *depth == 1 => {
                push(&code[at..], number, named);
                begins = false;
            }
            _ => {}
        }
    }
}

fn push<'a>(path: &'a str, number: usize, named: &mut Vec<(usize, &'a str)>) {
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
    let name = &path[..end];
    if name.starts_with(char::is_lowercase) {
        named.push((number, name));
    }
}
