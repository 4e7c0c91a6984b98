//! rsockets on an interface (RINGWAY_DEVICE=xdp:IF): two processes in network namespaces of the test's own, with a bridge between them that sees each frame.

mod capture;
#[path = "../c/compile.rs"]
mod compile;
mod groups;
mod world;

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread::JoinHandle;

use ringway_devices::broker::{Broker, BrokerSettings, Settings, Users};

use self::capture::Capture;
use self::world::{Host, Running, World, addresses, limited};

/// Runs a test with interfaces of that MTU. It fails where CI is set and no namespaces may be had; elsewhere it says so.
fn in_world(mtu: u32, test: impl FnOnce(&World)) {
    let Some(world) = World::make(mtu) else {
        assert!(std::env::var_os("CI").is_none(), "no network namespaces, or no ip(8), are to be had");
        return eprintln!("left out: network namespaces need root, and ip(8)");
    };
    test(&world);
}

fn peer() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile::program("wire/peer"))
}

fn command(host: Host, case: &str, is_v6: bool) -> Command {
    command_at(host, case, is_v6, PORT)
}

/// (The one beside it is nobody's.)
const PORT: u16 = 7471;

fn command_at(host: Host, case: &str, is_v6: bool, port: u16) -> Command {
    let (device, role) = if host == Host::Client { ("xdp:wa", "client") } else { ("xdp:wb", "server") };
    let mut command = limited(peer());
    command.args([role, case, &addresses(is_v6)[1].to_string(), &port.to_string()]).env("RINGWAY_DEVICE", device).env("RINGWAY_BROKER", "");
    command
}

/// The server, which is ready.
fn server(world: &World, case: &str, is_v6: bool) -> Running {
    server_at(world, case, is_v6, PORT)
}

fn server_at(world: &World, case: &str, is_v6: bool, port: u16) -> Running {
    let mut server = world.start(Host::Server, command_at(Host::Server, case, is_v6, port));
    server.is_ready();
    server
}

/// Both ends, to their good ends, with all frames looked at.
fn both(case: &str, mtu: u32, is_v6: bool) {
    in_world(mtu, |world| {
        let capture = Capture::start(world);
        let server = server(world, case, is_v6);
        world.start(Host::Client, command(Host::Client, case, is_v6)).ends_well();
        server.ends_well();
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("wire-{case}-{mtu}-{is_v6}-{}.pcap", std::process::id()));
        let frames = capture.check(&file);
        let longest = frames.iter().map(Vec::len).max().unwrap_or(0);
        assert!(longest <= mtu as usize + 14, "{longest}");
        if case == "streams" {
            // 3 MB each way, and no packet is longer than RoCE's path MTU has it.
            assert!(frames.len() > 6_000_000 / if mtu > 4200 { 4096 } else { 1024 }, "{}", frames.len());
        }
    });
}

#[test]
fn streams() {
    both("streams", 1500, false);
}

#[test]
fn streams_of_ipv6_in_long_packets() {
    both("streams", 9000, true);
}

#[test]
fn calls_that_wait_and_forks() {
    both("calls", 1500, false);
}

#[test]
fn direct_placement() {
    both("direct", 1500, false);
    both("direct", 1500, true);
}

#[test]
fn datagrams() {
    both("datagrams", 1500, false);
    both("datagrams", 1500, true);
}

#[test]
fn a_peer_that_is_killed() {
    in_world(1500, |world| {
        let server = server(world, "killed", false);
        let mut client = world.start(Host::Client, command(Host::Client, "killed", false));
        client.is_ready();
        drop(server);
        client.ends_well();
    });
}

#[test]
fn a_link_that_goes_down() {
    in_world(1500, |world| {
        let server = server(world, "down", false);
        let mut client = world.start(Host::Client, command(Host::Client, "down", false));
        client.is_ready();
        // (Each end's interface has no carrier without the bridge's.)
        world.ip(Host::Bridge, "link set pa down\nlink set pb down\n");
        client.ends_well();
        server.ends_well();
    });
}

/// Four processes at each end, all at once: streams, datagrams and mapped memory, of both families. Each packet is one process's.
#[test]
fn several_processes_share_an_interface() {
    in_world(1500, |world| {
        let capture = Capture::start(world);
        let cases = [("streams", false, 7471), ("direct", false, 7473), ("datagrams", false, 7475), ("streams", true, 7477)];
        let [servers, clients] = [Host::Server, Host::Client].map(|host| {
            cases.map(|(case, is_v6, port)| {
                let mut command = command_at(host, case, is_v6, port);
                command.env("RSOCKET_LOG", "info");
                let mut running = world.start(host, command);
                if host == Host::Server {
                    running.is_ready();
                }
                running
            })
        });
        // (One process at each end has its program in front of the interface; of the clients, the next one may, once that has ended.)
        clients.into_iter().for_each(|client| _ = client.ends_well());
        let by_packets = servers.map(|server| server.ends_well().contains("rsockets go by a packet socket"));
        assert_eq!(by_packets, [false, true, true, true]);
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("wire-several-{}.pcap", std::process::id()));
        let frames = capture.check(&file);
        assert!(frames.len() > 12_000_000 / 1024, "{}", frames.len());
    });
}

/// SIGSTOP.
fn stop(running: &Running) {
    let id = running.child.as_ref().expect("it runs").id();
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::kill(id as i32, libc::SIGSTOP) }, 0);
}

/// The first process, whose program is in front of the interface, is stopped, and then killed: others on the interface go on, and new ones come. Its peers are parted from it.
#[test]
fn a_process_that_is_stopped_and_killed_holds_up_no_other() {
    in_world(1500, |world| {
        let first = server(world, "killed", false);
        let [second, third] = [("calls", 7473), ("streams", 7475)].map(|(case, port)| server_at(world, case, false, port));
        let mut parted = world.start(Host::Client, command(Host::Client, "killed", false));
        parted.is_ready();
        stop(&first);
        world.start(Host::Client, command_at(Host::Client, "calls", false, 7473)).ends_well();
        second.ends_well();
        drop(first);
        world.start(Host::Client, command_at(Host::Client, "streams", false, 7475)).ends_well();
        third.ends_well();
        parted.ends_well();
        // (Its port is free again.)
        let last = server(world, "streams", false);
        world.start(Host::Client, command(Host::Client, "streams", false)).ends_well();
        last.ends_well();
    });
}

#[test]
fn a_port_is_one_processes() {
    in_world(1500, |world| {
        let _server = server(world, "taken", false);
        let mut other = limited(peer());
        other.args(["client", "taken", "10.78.0.2", "7471"]).env("RINGWAY_DEVICE", "xdp:wb").env("RINGWAY_BROKER", "");
        world.start(Host::Server, other).ends_well();
    });
}

/// Somebody without privileges.
const NOBODY: &str = "65534";

/// A broker of the server's interface, which serves [`NOBODY`]: until the stream is dropped.
fn broker(world: &World, socket: &Path) -> (UnixStream, JoinHandle<Vec<String>>) {
    let settings =
        BrokerSettings { interfaces: vec![Settings::new("wb")], users: Users::parse(NOBODY).expect("a number"), socket: socket.to_owned() };
    world.within(Host::Server, || {
        let mut broker = Broker::start(settings, &mut |event| panic!("{event}")).expect("a broker");
        let (stop, stopped) = UnixStream::pair().expect("a pair");
        let thread = std::thread::spawn(move || {
            let mut events = Vec::new();
            broker.run(stopped.as_fd(), &mut |event| events.push(event.to_string())).expect("it waits");
            events
        });
        (stop, thread)
    })
}

#[test]
fn by_a_broker_without_privileges() {
    in_world(1500, |world| {
        let socket = std::env::temp_dir().join(format!("ringway-wire-{}", std::process::id()));
        let (stop, thread) = broker(world, &socket);
        let mut unprivileged = Command::new("setpriv");
        unprivileged.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--inh-caps=-all"]).arg(peer());
        unprivileged.args(["server", "streams", &addresses(false)[1].to_string(), "7471"]);
        unprivileged.env("RINGWAY_DEVICE", "xdp:wb").env("RINGWAY_BROKER", &socket);
        let mut server = world.start(Host::Server, unprivileged);
        server.is_ready();
        // Whoever has the interface by a broker has it alone: the next process, privileged as it is, finds no device.
        let mut other = limited(peer());
        other.args(["client", "refused", "10.78.0.2", "7471"]).env("RINGWAY_DEVICE", "xdp:wb").env("RINGWAY_BROKER", "");
        let said = world.start(Host::Server, other).ends_well();
        assert_eq!(said.matches("no device for rsockets").count(), 1, "{said}");
        assert!(said.contains("wb: UDP port 4791 is taken"), "{said}");
        world.start(Host::Client, command(Host::Client, "streams", false)).ends_well();
        server.ends_well();
        drop(stop);
        let told = thread.join().expect("a broker");
        assert!(told.iter().any(|line| line.contains("has the ring of wb")), "{told:?}");
    });
}
