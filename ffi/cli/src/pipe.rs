//! Output to a pipe that nobody reads any more, such as that to head(1).

/// From now on the process ends there, as other commands do: Rust's own runtime has SIGPIPE ignored, and what prints panics.
#[expect(unsafe_code, reason = "nothing in std changes what a signal does")]
pub fn end_with_the_reader() {
    // SAFETY: no handler is installed, and none replaced: the runtime's was to ignore it.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
