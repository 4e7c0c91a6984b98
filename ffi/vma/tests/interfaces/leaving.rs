//! Connections that leave a program on an interface: by exec, SCM_RIGHTS, urgent data, or the program's end. Whoever is at the other end sees
//! what it would see of a kernel's socket; and when the program is gone, so is what it had in front of the interface.

use crate::cable::{Cable, ENDS, PORT, await_nothing_left, on_cable};
use crate::programs::compile;

/// One of ours leaves, and one of the kernel's sees what becomes of it.
fn leaves_and_sees(leaves: &'static str, sees: &'static str) {
    on_cable(move |cable| {
        let program = compile("tests/c/leaves.c");
        for [_, there] in ENDS {
            let peer = cable.there_of(&program, &[sees, there, PORT]);
            cable.await_listener(false);
            cable.here_of(&program, &[leaves, there, PORT]).ends_well();
            peer.join().expect("the kernel's program");
            await_nothing_left();
        }
    });
}

/// One of ours leaves that talks to the kernel's server of before.
fn talks_on(cable: &Cable, leaves: &str) {
    let program = compile("tests/c/leaves.c");
    for [_, there] in ENDS {
        let server = cable.there(&["serve", there, PORT]);
        cable.await_listener(false);
        cable.here_of(&program, &[leaves, there, PORT]).ends_well();
        server.join().expect("the kernel's program");
        await_nothing_left();
    }
}

#[test]
fn a_program_that_another_takes_the_place_of_talks_on() {
    on_cable(|cable| talks_on(cable, "exec"));
}

#[test]
fn and_so_does_one_that_knows_nothing_of_ringway() {
    on_cable(|cable| talks_on(cable, "plain-exec"));
}

#[test]
fn a_process_that_is_sent_a_connection_talks_on_it() {
    on_cable(|cable| talks_on(cable, "rights"));
}

#[test]
fn an_urgent_byte_is_heard_as_one() {
    leaves_and_sees("urgent", "hears-urgent");
}

#[test]
fn an_urgent_byte_of_the_kernels_is_heard_as_one() {
    on_cable(|cable| {
        let program = compile("tests/c/leaves.c");
        for [here, _] in ENDS {
            for words in ["hears-urgent", "reads-urgent"] {
                let ours = cable.here_of(&program, &[words, here, PORT]);
                cable.await_listener(true);
                cable.there_of(&program, &["urgent", here, PORT]).join().expect("the kernel's program");
                ours.ends_well();
            }
        }
    });
}

/// Without CAP_NET_ADMIN the kernel takes nothing over: they are data as all others, which is told once.
#[test]
fn an_urgent_byte_is_one_of_the_others_where_the_kernel_does_not_take_the_connection() {
    on_cable(|cable| {
        let program = compile("tests/c/leaves.c");
        for [here, _] in ENDS {
            let ours = cable.here_of(&program, &["inline-urgent", here, PORT]);
            cable.await_listener(true);
            cable.there_of(&program, &["urges-nobody", here, PORT]).join().expect("the kernel's program");
            let log = ours.says();
            assert_eq!(log.matches("urgent data of").count(), 1, "{log}");
            assert_eq!(log.matches("stays this process's alone").count(), 1, "{log}");
            await_nothing_left();
        }
    });
}

#[test]
fn what_was_not_sent_at_the_end_arrives() {
    leaves_and_sees("unsent", "late");
}

#[test]
fn what_was_not_read_at_the_end_is_a_reset() {
    leaves_and_sees("unread", "reset");
}
