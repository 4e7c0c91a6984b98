//! A failed check is a panic. Here it becomes a value, and nothing is printed.

use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, UnwindSafe};

use ringway_sim::campaign::Failure;

/// Most callers in a backtrace.
const CALLERS_MAX: usize = 12;

/// Folders whose callers a backtrace names, the others being those of every panic.
const FOLDERS: [&str; 2] = ["stack/src/", "sim/src/"];

/// How much to keep of a panic.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// What it says, and where.
    Message,
    /// Also its callers, which take a while to look up.
    Backtrace,
}

thread_local! {
    /// What this thread catches its panics with, if it does.
    static CATCHES: Cell<Option<Detail>> = const { Cell::new(None) };
    static CAUGHT: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Has panics kept, in threads that are catching them; others go on as before.
pub(super) fn install() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| match CATCHES.get() {
        Some(detail) => keep(info, detail),
        None => before(info),
    }));
}

/// Runs something that may fail a check.
///
/// # Errors
/// It did.
pub(super) fn catch<R>(detail: Detail, run: impl FnOnce() -> R) -> Result<R, Failure> {
    // Whoever runs a seed drops all of it, or only looks at what is left.
    catch_safe(detail, AssertUnwindSafe(run))
}

fn catch_safe<R>(detail: Detail, run: impl FnOnce() -> R + UnwindSafe) -> Result<R, Failure> {
    CATCHES.set(Some(detail));
    let result = panic::catch_unwind(run);
    CATCHES.set(None);
    let caught = CAUGHT.take();
    result
        .map_err(|payload| caught.unwrap_or_else(|| Failure { place: "?".to_owned(), message: message(&*payload), backtrace: Vec::new() }))
}

fn keep(info: &PanicHookInfo<'_>, detail: Detail) {
    let place = info.location().map_or_else(|| "?".to_owned(), |l| format!("{}:{}", l.file(), l.line()));
    let backtrace = if detail == Detail::Backtrace { callers(&Backtrace::force_capture().to_string()) } else { Vec::new() };
    let failure = Failure { place, message: message(info.payload()), backtrace };
    // The first one counts: what panics while it unwinds is its consequence.
    CAUGHT.with_borrow_mut(|caught| _ = caught.get_or_insert(failure));
}

fn message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without words").to_owned()
}

/// The callers that are ours, as `function at file:line`, from the standard library's way of writing a backtrace.
fn callers(backtrace: &str) -> Vec<String> {
    let mut function = "";
    let mut found = Vec::new();
    for line in backtrace.lines().map(str::trim) {
        let Some(at) = line.strip_prefix("at ") else {
            function = line.split_once(": ").map_or(line, |(_, name)| name);
            continue;
        };
        let ours = FOLDERS.iter().filter_map(|folder| at.find(folder)).min();
        let Some(start) = ours.filter(|_| !at.starts_with("/rustc/")) else { continue };
        let place = at[start..].rsplit_once(':').map_or(&at[start..], |(place, _column)| place);
        found.push(format!("{function} at {place}"));
    }
    found.truncate(CALLERS_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_value() {
        install();
        let failure = catch(Detail::Backtrace, || assert_eq!(1 + 1, 3, "sums")).unwrap_err();
        assert!(failure.place.contains("panics.rs:"), "{failure:?}");
        assert!(failure.message.contains("sums"), "{failure:?}");
        assert_eq!(failure.kind(), "sums");
        assert_eq!(catch(Detail::Message, || 7), Ok(7));
    }

    #[test]
    fn only_our_callers_are_named() {
        let backtrace = "   0: rust_begin_unwind\n             at /rustc/1/library/std/src/panicking.rs:689:5\n   1: check\n             at ./sim/src/world.rs:7:9\n   2: poll<Q>\n             at /x/ringway/stack/src/ring/mod.rs:115:1\n   3: main\n             at ./ffi/cli/src/main.rs:1:1";
        assert_eq!(callers(backtrace), ["check at sim/src/world.rs:7", "poll<Q> at stack/src/ring/mod.rs:115"]);
    }
}
