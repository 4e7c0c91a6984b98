//! Tests that begin themselves anew on the software ConnectX: with `libringway_connectx.so` preloaded, below unmodified libibverbs and libmlx5. Or they have a real card
//! ([`CARD`]), in a process of their own as well.

use core::sync::atomic::{AtomicU32, Ordering};
use std::path::PathBuf;
use std::process::{self, Command, Stdio};

use ringway_mlx5::{Mlx5Device, Settings};
use ringway_stack::device::MacAddr;

/// In the environment of a process that has the card.
const HAS_CARD: &str = "RINGWAY_CONFORMANCE_HAS_CARD";
/// The name of a real card, that the tests are to have in place of the software's.
const CARD: &str = "RINGWAY_TEST_CARD";
/// Addresses of two openings of the one card: neither hears itself, as a card's context does not.
pub(crate) const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 0x0a]), MacAddr([2, 0, 0, 0, 0, 0x0b])];

/// Does what a test does in a process of its own, which has a card on a network of its own. `test`: its path, with the crate's name first.
///
/// # Panics
/// The test failed there.
pub(crate) fn on_card(test: &str, body: impl FnOnce()) {
    if std::env::var_os(HAS_CARD).is_some() {
        body();
        return;
    }
    let (_, name) = test.split_once("::").expect("the crate's name first");
    let own = std::env::current_exe().expect("the test has a path");
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120", "env"]);
    let real = std::env::var(CARD).ok();
    if real.is_none() {
        command.arg(format!("LD_PRELOAD={}", library().display()));
    }
    command.arg(own).args(["--exact", name, "--nocapture"]).env(HAS_CARD, "1").stdin(Stdio::null());
    // (A bus's name is part of a socket's, which is short.)
    static NEXT: AtomicU32 = AtomicU32::new(0);
    command.env("RINGWAY_CONNECTX_BUS", format!("conformance-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let output = command.output().expect("timeout(1) and env(1)");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    let card = real.as_deref().unwrap_or("the software ConnectX");
    assert!(output.status.success(), "{name}, on {card} (Debian's ibverbs-providers is needed):\n{said}");
    print!("{}", text(&output.stdout));
}

/// The library that was built with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let library = test.parent().expect("target/<profile>/deps/<test>").join("libringway_connectx.so");
    assert!(library.exists(), "ringway-uverbs is built with the package's tests");
    library
}

/// An opening of the card, which is nobody else's.
pub(crate) fn card(mac: MacAddr) -> Mlx5Device {
    let name = std::env::var(CARD).unwrap_or_else(|_| "mlx5_0".to_owned());
    let settings = Settings { mac: Some(mac), mtu: Some(1500), is_beside_kernel: false, ..Settings::new(&name) };
    Mlx5Device::open_card(&settings).unwrap_or_else(|error| panic!("{name}: {error}"))
}
