//! Sockets on a ConnectX (RINGWAY_DEVICE=mlx5:NAME): of the software ConnectX, whose port is the interface at each end of the cable. The kernels ask each other over the
//! cable who has which address; all else goes from card to card, over a bus that both network namespaces see.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cable::{Cable, ENDS, PORT, Running, on_cable};
use crate::kernels;
use crate::programs::library;

/// The card, which is built for another crate's tests; where they are built as well. (Or another one, by RINGWAY_CONNECTX_LIBRARY.)
fn card() -> PathBuf {
    let named = std::env::var_os("RINGWAY_CONNECTX_LIBRARY").map(PathBuf::from);
    let card = named.unwrap_or_else(|| library().with_file_name("libringway_connectx.so"));
    assert!(card.exists(), "{} is built with ringway-uverbs", card.display());
    card
}

/// A bus of its own.
struct Bus(PathBuf);

impl Bus {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("ringway-cards-{}-{:?}", std::process::id(), std::thread::current().id()));
        std::fs::create_dir(&folder).expect("a folder");
        Self(folder)
    }

    /// A program on the card whose port is that interface.
    fn command(&self, program: &Path, interface: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg("60").arg(program).args(arguments).env("VMA_CONFIG_FILE", "").env("RINGWAY_DEVICE", "mlx5:mlx5_0");
        command.env("LD_PRELOAD", format!("{}:{}", card().display(), library().display()));
        command.env("RINGWAY_CONNECTX_BUS", &self.0).env("RINGWAY_CONNECTX_NETDEV", interface);
        command
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn carries(cable: &Cable, bus: &Bus, [_, there]: [&str; 2]) {
    let before = kernels();
    let server = bus.command(&cable.program, "b0", &["serve", there, PORT]);
    let server = cable.within_there(|| Running::start(server));
    cable.await_listener(false);
    Running::start(bus.command(&cable.program, "a0", &["carry", there, PORT])).ends_well();
    server.ends_well();
    let [segments, datagrams] = kernels();
    assert_eq!(datagrams, before[1], "datagrams came by the card");
    // (What is left of a connection that is over, when its process is, is the kernel's.)
    assert!(segments - before[0] < 8, "and so did streams: {segments} {before:?}");
}

#[test]
fn streams_and_datagrams_go_from_card_to_card_and_past_both_kernels() {
    on_cable(|cable| {
        let bus = Bus::new();
        ENDS.iter().for_each(|ends| carries(cable, &bus, *ends));
    });
}

#[test]
fn without_a_card_the_kernel_serves_and_one_line_says_why() {
    on_cable(|cable| {
        let [_, there] = ENDS[0];
        let server = cable.there(&["serve", there, PORT]);
        cable.await_listener(false);
        let log = Cable::preloaded(&cable.program, &["talk", there, PORT], &[("RINGWAY_DEVICE", "mlx5:mlx5_0")]).says();
        server.join().expect("the kernel's program");
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("mlx5_0")).collect();
        let [line] = lines[..] else { panic!("{log}") };
        assert!(line.contains("mlx5:mlx5_0 is the kernel's"), "{line}");
    });
}
