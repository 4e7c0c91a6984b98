//! `/etc/rdma/rsocket/preload_config`: which programs' sockets become rsockets, as librdmacm has it. A line says `program domain type protocol`; `*` is any, and
//! `#` begins a comment. Without lines, all sockets do; otherwise those that a line names.

use core::ffi::{CStr, c_char, c_int};
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Where it is.
const FILE: &str = "/etc/rdma/rsocket/preload_config";
/// Names another file.
const ENV: &str = "RSPRELOAD_CONFIG";

unsafe extern "C" {
    /// The program's name without folders (GNU).
    static program_invocation_short_name: *const c_char;
}

/// One line. `None`: any.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    domain: Option<c_int>,
    kind: Option<c_int>,
    protocol: Option<c_int>,
}

/// What the file says about this program: `None`, all of it.
static ENTRIES: OnceLock<Option<Vec<Entry>>> = OnceLock::new();

/// Whether a socket is to become an rsocket.
pub(crate) fn wants(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    let kind = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let is_one = match kind {
        libc::SOCK_STREAM => matches!(protocol, 0 | libc::IPPROTO_TCP),
        libc::SOCK_DGRAM => matches!(protocol, 0 | libc::IPPROTO_UDP),
        _ => false,
    };
    is_one && matches!(domain, libc::AF_INET | libc::AF_INET6) && allows(ENTRIES.get_or_init(read).as_deref(), domain, kind)
}

fn allows(entries: Option<&[Entry]>, domain: c_int, kind: c_int) -> bool {
    // (A protocol of zero is the kind's own.)
    let protocol = if kind == libc::SOCK_STREAM { libc::IPPROTO_TCP } else { libc::IPPROTO_UDP };
    let is = |wanted: Option<c_int>, value| wanted.is_none_or(|wanted| wanted == value);
    entries
        .is_none_or(|entries| entries.iter().any(|entry| is(entry.domain, domain) && is(entry.kind, kind) && is(entry.protocol, protocol)))
}

fn read() -> Option<Vec<Entry>> {
    let path = std::env::var_os(ENV).map_or_else(|| PathBuf::from(FILE), PathBuf::from);
    let text = fs::read_to_string(&path).ok()?;
    // SAFETY: glibc's variable, a C string from the process's start on.
    let program = unsafe { CStr::from_ptr(program_invocation_short_name) }.to_string_lossy();
    parse(&text, &program)
}

/// The lines about a program; `None`: there is no line at all.
fn parse(text: &str, program: &str) -> Option<Vec<Entry>> {
    let mut lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).filter(|line| !line.is_empty()).peekable();
    lines.peek()?;
    let entry = |line: &str| {
        let mut words = line.split_whitespace();
        let of_program = words.next()?;
        // (librdmacm takes a program's beginning, in any case.)
        let names_it = program.get(..of_program.len()).is_some_and(|start| start.eq_ignore_ascii_case(of_program));
        let [domain, kind, protocol] = core::array::from_fn(|_| words.next().unwrap_or("*"));
        let entry = (value(domain, &DOMAINS), value(kind, &KINDS), value(protocol, &PROTOCOLS));
        let (Some(domain), Some(kind), Some(protocol)) = entry else {
            tracing::warn!("preload_config: `{line}` names no such socket");
            return None;
        };
        (of_program == "*" || names_it).then_some(Entry { domain, kind, protocol })
    };
    Some(lines.filter_map(entry).collect())
}

const DOMAINS: [(&str, c_int); 3] = [("INET", libc::AF_INET), ("INET6", libc::AF_INET6), ("IB", 27)];
const KINDS: [(&str, c_int); 2] = [("STREAM", libc::SOCK_STREAM), ("DGRAM", libc::SOCK_DGRAM)];
const PROTOCOLS: [(&str, c_int); 2] = [("TCP", libc::IPPROTO_TCP), ("UDP", libc::IPPROTO_UDP)];

/// A word's value; `None` where it is none of these, and `Some(None)` for any.
fn value(word: &str, names: &[(&str, c_int)]) -> Option<Option<c_int>> {
    if word == "*" {
        return Some(None);
    }
    let upper = word.to_ascii_uppercase();
    let bare = ["AF_", "PF_", "SOCK_", "IPPROTO_"].iter().find_map(|prefix| upper.strip_prefix(prefix)).unwrap_or(&upper);
    names.iter().find(|(name, _)| *name == bare).map(|(_, value)| Some(*value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(text: &str, program: &str) -> [bool; 4] {
        let entries = parse(text, program);
        let of = |domain, kind| allows(entries.as_deref(), domain, kind);
        [
            of(libc::AF_INET, libc::SOCK_STREAM),
            of(libc::AF_INET6, libc::SOCK_STREAM),
            of(libc::AF_INET, libc::SOCK_DGRAM),
            of(libc::AF_INET6, libc::SOCK_DGRAM),
        ]
    }

    #[test]
    fn lines_name_sockets() {
        assert_eq!(allowed("", "any"), [true; 4]);
        assert_eq!(allowed("# nothing\n\n", "any"), [true; 4]);
        assert_eq!(allowed("other * * *", "any"), [false; 4]);
        assert_eq!(allowed("* * * *", "any"), [true; 4]);
        assert_eq!(allowed("PyThon inet STREAM tcp # comment", "python3.11"), [true, false, false, false]);
        assert_eq!(allowed("python AF_INET6 SOCK_STREAM IPPROTO_TCP\npy * dgram *", "python3"), [false, true, true, true]);
        assert_eq!(allowed("* INET STREAM UDP", "any"), [false; 4]);
        assert_eq!(allowed("* nonsense STREAM *", "any"), [false; 4]);
        assert_eq!(allowed("*", "any"), [true; 4]);
    }
}
