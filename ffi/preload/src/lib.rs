//! Interposition, once: what any library needs that is preloaded in front of libc's socket calls.
//!
//! A library says what it does by the trait [`Intercept`], whose every method goes on to the next definition (libc's) by default, and has
//! its C symbols made by [`interpose!`]:
//!
//! ```ignore
//! struct Mine;
//!
//! impl ringway_preload::Intercept for Mine {
//!     unsafe fn listen(fd: c_int, backlog: c_int) -> c_int {
//!         // SAFETY: plain integers.
//!         unsafe { next::listen(fd, 2 * backlog) }
//!     }
//! }
//!
//! ringway_preload::interpose!(Mine);
//! ```
//!
//! The list of functions stands once, in `functions`: a row has a function's C signature, its ABI (`"C-unwind"`: a cancellation point, by
//! which libc may end the thread), and what it comes to. Everything else is made from the rows:
//!
//! - [`next`]: the definitions below, looked up when the library is loaded; a library that means libc's `close` says `next::close`
//! - [`Intercept`]: a method for each function that stands for itself, and one for each family of functions that differ only in the form of
//!   their arguments (accept and accept4; poll and ppoll; fcntl and fcntl64; all that open files). Forms that say the same as another
//!   function (LFS64's, fortified ones, `signal` beside `sigaction`, lists of arguments, system calls by number) are done here, and call
//!   that one
//! - [`Exports`]: the library's own functions as its program calls them, for whoever needs one within the library
//!
//! All of it is static dispatch: an exported function is its method, inlined. Nothing stands on the way of data.
//!
//! What methods share is in modules of its own: [`errno`] (with the boundary that no panic crosses), [`vectors`], [`cmsg`] and [`control`]
//! (what a program's pointers lead to, checked as the kernel does), [`timeout`], [`sets`], [`messages`], [`cancel`]. Hooks of the trait say when a
//! process is at a turning point: [`Intercept::before_exec`], [`Intercept::fork`], [`Intercept::before_exit`],
//! [`Intercept::before_giving_up`]; they may panic, and the program's call goes on.
//!
//! What this crate never does: call libc's name for an interposed function where libc's own is meant, or allocate or lock on a call that it
//! only passes on. What a descriptor is to a library, how it waits, and what it does with signals are the library's.

#[doc(hidden)]
pub mod by_number;
pub mod cancel;
pub mod cmsg;
pub mod control;
#[doc(hidden)]
pub mod entry;
pub mod errno;
mod exports;
mod functions;
mod intercept;
pub mod log;
pub mod messages;
mod naked;
pub mod next;
mod positioned;
mod process;
pub mod sets;
mod signals;
pub mod timeout;
#[doc(hidden)]
pub mod types;
pub mod vectors;

pub use errno::Errno;
pub use exports::Exports;
pub use intercept::{Intercept, Means};
pub use process::{clone, vfork};
pub use timeout::Timeout;

/// Runs when a library is loaded, before the program's own constructors: no lookup happens in a signal handler, or between fork and exec.
#[doc(hidden)]
pub fn load<L: Intercept>() {
    next::resolve_all();
    vfork::resolve();
    next::look_at_handlers();
    L::loaded();
}
