//! Sockets on a ConnectX (RINGWAY_DEVICE=mlx5:NAME): of the software ConnectX, whose port is the interface at each end of the cable. The kernels ask each other over the
//! cable who has which address; all else goes from card to card, over a bus that both network namespaces see.

use core::time::Duration;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::cable::{Cable, ENDS, PORT, Running, on_cable};
use crate::kernels;
use crate::programs::{compile, library};

/// The card, which is built for another crate's tests; where they are built as well. (Or another one, by RINGWAY_CONNECTX_LIBRARY.)
pub(crate) fn card() -> PathBuf {
    let named = std::env::var_os("RINGWAY_CONNECTX_LIBRARY").map(PathBuf::from);
    let card = named.unwrap_or_else(|| library().with_file_name("libringway_connectx.so"));
    assert!(card.exists(), "{} is built with ringway-uverbs", card.display());
    card
}

/// A bus of its own.
pub(crate) struct Bus(PathBuf);

impl Bus {
    pub(crate) fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("ringway-cards-{}-{:?}", std::process::id(), std::thread::current().id()));
        std::fs::create_dir(&folder).expect("a folder");
        Self(folder)
    }

    /// A program on the card whose port is that interface.
    pub(crate) fn command(&self, program: &Path, interface: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        // (Callbacks take half a minute on an idle machine.)
        command.arg("300").arg(program).args(arguments).env("VMA_CONFIG_FILE", "").env("RINGWAY_DEVICE", "mlx5:mlx5_0");
        command.env("LD_PRELOAD", format!("{}:{}", card().display(), library().display()));
        self.lead(&mut command, interface);
        command
    }

    /// Has the card of a program, whose port is that interface, on this bus.
    pub(crate) fn lead(&self, command: &mut Command, interface: &str) {
        command.env("RINGWAY_CONNECTX_BUS", &self.0).env("RINGWAY_CONNECTX_NETDEV", interface);
    }
}

/// A program on the card, preloaded alone or below the library, whose port is plugged into that interface.
fn plugged(program: &Path, interface: &str, arguments: &[&str], below: Option<&Path>) -> Command {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).args(arguments).env("VMA_CONFIG_FILE", "").env("RINGWAY_DEVICE", "mlx5:mlx5_0");
    let libraries = [Some(card().as_path()), below].into_iter().flatten().map(|path| path.display().to_string()).collect::<Vec<_>>();
    command.env("LD_PRELOAD", libraries.join(":")).env("RINGWAY_CONNECTX_WIRE", interface);
    command
}

impl Bus {
    /// Tells the cards of some processes something, by the order in which these began: `ffi/uverbs/README.md` has what there is.
    pub(crate) fn tell(&self, cards: core::ops::Range<u32>, what: impl AsRef<[u8]>) {
        // SAFETY: no memory is involved.
        let user = unsafe { libc::getuid() };
        let socket = UnixDatagram::unbound().expect("a socket");
        for slot in cards {
            // (Who has ended hears nothing.)
            let _ = socket.send_to(what.as_ref(), self.0.join(format!("{user}-{slot}")));
        }
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
fn a_card_that_is_plugged_into_an_interface_talks_to_the_kernel_at_its_other_end() {
    on_cable(|cable| {
        let card = |arguments: &[&str]| Running::start(plugged(&cable.program, "a0", arguments, Some(&library())));
        for [here, there] in ENDS {
            let before = kernels();
            let server = cable.there(&["serve", there, PORT]);
            cable.await_listener(false);
            card(&["carry", there, PORT]).ends_well();
            server.join().expect("the kernel's program");
            let server = card(&["serve", here, PORT]);
            cable.await_listener(true);
            cable.there(&["carry", here, PORT]).join().expect("the kernel's program");
            server.ends_well();
            let [segments, datagrams] = kernels();
            assert_eq!(datagrams, before[1], "datagrams came by the card");
            // (What is left of a connection that is over, when its process is, is the kernel's.)
            assert!(segments - before[0] < 16, "and so did streams: {segments} {before:?}");
        }
    });
}

#[test]
fn cards_that_are_plugged_into_interfaces_speak_roce() {
    on_cable(|cable| {
        let before = kernels();
        for program in ["ibv_rc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"] {
            let [_, there] = ENDS[0];
            let arguments = &["-p", PORT, "-g", "0", "-s", "1024", "-n", "200", "-e"][..];
            let server = plugged(Path::new(program), "b0", arguments, None);
            let server = cable.within_there(|| Running::start(server));
            cable.await_listener(false);
            let client = Running::start(plugged(Path::new(program), "a0", &[arguments, &[there]].concat(), None));
            for printed in [client.prints(), server.prints()] {
                assert!(printed.contains("200 iters"), "{program}: {printed}");
            }
        }
        assert_eq!(kernels()[1], before[1], "the kernel saw none of its datagrams");
    });
}

#[test]
fn one_program_s_card_is_plugged_into_an_interface_and_another_hears_why_not() {
    on_cable(|cable| {
        let server = Running::start(plugged(&cable.program, "a0", &["serve", ENDS[0][0], PORT], Some(&library())));
        cable.await_listener(true);
        for (interface, why) in [("a0", "taken by another program"), ("a7", "there is no Ethernet interface of that name")] {
            let output = plugged(Path::new("ibv_devinfo"), interface, &[], None).output().expect("ibverbs-utils");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.contains(why), "{said}");
        }
        drop(server);
    });
}

const DOWN: [u8; 2] = [4, 0];
const UP: [u8; 2] = [4, 1];
const REMOVAL: [u8; 2] = [5, 255];

fn served(cable: &Cable, bus: &Bus, there: &'static str) -> Running {
    let server = bus.command(&cable.program, "b0", &["serve", there, PORT]);
    let server = cable.within_there(|| Running::start(server));
    cable.await_listener(false);
    server
}

#[test]
fn streams_arrive_whole_though_links_go_down_and_up() {
    on_cable(|cable| {
        let (bus, [_, there]) = (Bus::new(), ENDS[0]);
        let server = served(cable, &bus, there);
        let mut client = Running::start(bus.command(&cable.program, "a0", &["streams", there, PORT]));
        let mut flaps = 0;
        // Both links in turn, and then both at once.
        for cards in [0..1, 1..2, 0..2, 1..2] {
            std::thread::sleep(Duration::from_millis(60));
            bus.tell(cards, DOWN);
            std::thread::sleep(Duration::from_millis(60));
            flaps += u32::from(!client.is_over());
            bus.tell(0..2, UP);
        }
        client.ends_well();
        server.ends_well();
        assert!(flaps >= 2, "links went down while there was something to carry");
    });
}

#[test]
fn who_waits_on_a_card_that_is_removed_hears_of_it_and_goes_on_without() {
    on_cable(|cable| {
        let (bus, [_, there]) = (Bus::new(), ENDS[0]);
        let server = served(cable, &bus, there);
        let mut client = Running::start(bus.command(&cable.program, "a0", &["removed", there, PORT]));
        client.await_ready();
        // (It waits in earnest.)
        std::thread::sleep(Duration::from_millis(100));
        let begin = Instant::now();
        bus.tell(1..2, REMOVAL);
        assert_eq!(client.says(), "VMA WARNING: the card is gone\n");
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}, its farewell by the kernel included", begin.elapsed());
        server.ends_well();
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

#[test]
fn the_card_writes_the_records_of_a_cyclic_ring() {
    on_cable(|cable| {
        let (program, [_, there]) = (compile("tests/extra/strided.c"), ENDS[0]);
        for records in ["padded", "raw"] {
            let bus = Bus::new();
            let receiver = bus.command(&program, "b0", &["receive", records, there, PORT]);
            let mut receiver = cable.within_there(|| Running::start(receiver));
            receiver.await_ready();
            Running::start(bus.command(&program, "a0", &["send", records, there, PORT])).ends_well();
            receiver.ends_well();
        }
    });
}

#[test]
fn the_card_says_when_datagrams_arrive_by_the_clock_that_is_asked_for() {
    on_cable(|cable| {
        let (program, [_, there]) = (compile("tests/extra/stamped.c"), ENDS[0]);
        for (clock, conversion) in [("system", "3"), ("raw", "1")] {
            let bus = Bus::new();
            let mut receiver = bus.command(&program, "b0", &[clock, there, PORT]);
            receiver.env("VMA_HW_TS_CONVERSION", conversion);
            let mut receiver = cable.within_there(|| Running::start(receiver));
            receiver.await_ready();
            Running::start(bus.command(&program, "a0", &["send", there, PORT])).ends_well();
            receiver.ends_well();
        }
        let bus = Bus::new();
        let mut receiver = bus.command(&program, "b0", &["none", there, PORT]);
        receiver.env("VMA_HW_TS_CONVERSION", "0");
        cable.within_there(|| Running::start(receiver)).ends_well();
    });
}

/// By what else programs are told: a callback's `vma_info_t`, and a completion's packet.
#[test]
fn the_card_says_to_callbacks_and_in_completions_when_datagrams_arrive() {
    on_cable(|cable| {
        let (program, [_, there]) = (compile("tests/extra/stamped.c"), ENDS[0]);
        for (how, clock, conversion) in
            [("callback", "system", "3"), ("callback", "raw", "1"), ("completions", "system", "2"), ("completions", "raw", "1")]
        {
            let bus = Bus::new();
            let mut receiver = bus.command(&program, "b0", &[clock, there, PORT, how]);
            receiver.env("VMA_HW_TS_CONVERSION", conversion).envs((how == "completions").then_some(("VMA_SOCKETXTREME", "1")));
            let mut receiver = cable.within_there(|| Running::start(receiver));
            receiver.await_ready();
            Running::start(bus.command(&program, "a0", &["send", there, PORT])).ends_well();
            receiver.ends_well();
        }
    });
}

/// Of a connection, what is told is when the segment came that the last byte came in.
#[test]
fn the_card_says_when_the_bytes_of_streams_arrive() {
    on_cable(|cable| {
        let (program, [_, there]) = (compile("tests/extra/stamped.c"), ENDS[0]);
        for (how, clock, conversion) in [
            (None, "system", "3"),
            (None, "raw", "1"),
            (Some("callback"), "system", "3"),
            (Some("callback"), "raw", "1"),
            (Some("completions"), "system", "2"),
            (Some("completions"), "raw", "1"),
        ] {
            let bus = Bus::new();
            let server = bus.command(&program, "b0", &["serve", there, PORT]);
            let server = cable.within_there(|| Running::start(server));
            cable.await_listener(false);
            let before = kernels();
            let mut receiver = bus.command(&program, "a0", &[&[clock, there, PORT, "stream"][..], how.as_slice()].concat());
            receiver.env("VMA_HW_TS_CONVERSION", conversion).envs((how == Some("completions")).then_some(("VMA_SOCKETXTREME", "1")));
            let mut receiver = Running::start(receiver);
            receiver.await_ready();
            receiver.ends_well();
            server.ends_well();
            assert!(kernels()[0] - before[0] < 8, "it came by the card: {how:?} {clock}");
        }
    });
}

/// (That the payload is read from there, the driver's own tests show.)
#[test]
fn streams_and_datagrams_are_sent_from_the_card_s_memory() {
    on_cable(|cable| {
        let (bus, [_, there]) = (Bus::new(), ENDS[0]);
        let server = served(cable, &bus, there);
        let mut client = bus.command(&cable.program, "a0", &["carry", there, PORT]);
        client.env("VMA_RING_DEV_MEM_TX", "16384").env("VMA_TRACELEVEL", "info");
        let log = Running::start(client).says();
        assert!(log.contains("16384 bytes of the card's memory"), "{log}");
        server.ends_well();
    });
}
