//! Signal handlers that use sockets while the thread that they interrupt does.

#[path = "extra/programs.rs"]
mod programs;

use programs::{compile, run, says_nothing};

#[test]
fn a_handler_never_waits_for_the_thread_that_it_interrupts() {
    let program = compile("tests/c/handlers.c");
    for environment in [&[][..], &[("VMA_SOCKETXTREME", "1")]] {
        says_nothing(&run(&program, &[], environment), &format!("{environment:?}"));
    }
}
