//! How long packets may be: as the interface's MTU has it, and the route's where that is smaller, both followed as they change.

use crate::cable::{Cable, ENDS, PORT, on_cable};
use crate::namespaces::ip;
use crate::programs::compile;

/// The route to one of the other end's addresses carries packets of that length at most; `None`: as long as the interface does.
fn set_route_mtu(there: &str, mtu: Option<u32>) {
    let prefix = if there.contains(':') { 128 } else { 32 };
    match mtu {
        Some(mtu) => ip(&format!("route replace {there}/{prefix} dev a0 mtu {mtu}\n")),
        None => ip(&format!("route del {there}/{prefix} dev a0\n")),
    }
}

/// The largest segment in a packet of that length.
fn segment(there: &str, mtu: u32) -> String {
    (mtu - if there.contains(':') { 60 } else { 40 }).to_string()
}

/// Has our end send to the kernel's, with segments for packets as long as the first length, and then the second, which `change` brings about.
fn sends(cable: &Cable, [_, there]: [&str; 2], [first, then]: [u32; 2], change: impl Fn()) {
    let program = compile("tests/c/paths.c");
    let [announced, first, then] = [first, first, then].map(|mtu| segment(there, mtu));

    let peer = cable.there_of(&program, &["peer", there, PORT, &announced]);
    cable.await_listener(false);
    let mut ours = cable.here_of(&program, &["to", there, PORT, &first, &then]);
    ours.await_ready();
    change();
    ours.ends_well();
    peer.join().expect("the kernel's program");
}

/// The same where the kernel's end connects.
fn serves(cable: &Cable, [here, there]: [&str; 2], [first, then]: [u32; 2], change: impl Fn()) {
    let program = compile("tests/c/paths.c");
    let [first, then] = [first, then].map(|mtu| segment(there, mtu));
    let mut ours = cable.here_of(&program, &["serves", here, PORT, &first, &then]);
    cable.await_listener(true);
    let reads = cable.start_there(&program, &["reads", here, PORT, "0"]);
    ours.await_ready();
    change();
    ours.ends_well();
    reads.ends_well();
}

#[test]
fn a_connection_keeps_to_its_routes_mtu_as_it_changes() {
    on_cable(|cable| {
        for ends in ENDS {
            let there = ends[1];
            set_route_mtu(there, Some(1400));
            sends(cable, ends, [1400, 1300], || set_route_mtu(there, Some(1300)));
            serves(cable, ends, [1300, 1500], || set_route_mtu(there, None));
        }
    });
}

#[test]
fn and_to_its_interfaces() {
    on_cable(|cable| {
        for ends in ENDS {
            sends(cable, ends, [1500, 1380], || ip("link set a0 mtu 1380\n"));
            ip("link set a0 mtu 1500\n");
            serves(cable, ends, [1500, 1380], || ip("link set a0 mtu 1380\n"));
            ip("link set a0 mtu 1500\n");
        }
    });
}

#[test]
fn a_datagram_that_is_too_long_for_its_route_goes_in_fragments_by_the_kernel() {
    on_cable(|cable| {
        let program = compile("tests/c/paths.c");
        // (What is longer is dropped there.)
        cable.within_there(|| ip("link set b0 mtu 1300\n"));
        for [_, there] in ENDS {
            set_route_mtu(there, Some(1300));
            let tells = |len: &str| cable.with_server(there, || cable.here_of(&program, &["tells", there, PORT, len]).ends_well());
            let (short, long) = (tells("1200"), tells("1400"));
            assert!(short[0] == 0 && long[0] >= 10, "{short:?} {long:?}: the kernel sends what is too long, and nothing else");
        }
    });
}
