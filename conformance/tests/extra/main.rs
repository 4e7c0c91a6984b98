//! What the VMA Extra API promises of the stack and its devices, on every device that can be opened here: the cases of
//! [`ringway_conformance::extra`], which `promises/*.toml` name as `sim.rs::case`, `shm.rs::case`, `xdp.rs::case`, `mlx5.rs::case` and `rxe.rs::case`.

#[path = "../programs/harness/cable.rs"]
#[allow(dead_code, reason = "each test has its own needs")]
mod cable;
#[macro_use]
mod cases;
#[path = "../sentences/connectx.rs"]
mod connectx;
mod flawed;
mod mlx5;
mod rxe;
mod shm;
mod sim;
mod xdp;

use core::time::Duration;

use ringway_host::Clock;

/// Waits until something holds.
fn eventually(what: &str, patience: Duration, mut holds: impl FnMut() -> bool) {
    let clock = Clock::system();
    let end = clock.now() + patience;
    while !holds() {
        assert!(clock.now() < end, "not within {patience:?}: {what}");
        core::hint::spin_loop();
    }
}
