//! The stack's own RoCE, as a machine at the other end of a TAP interface: what stands on the kernel's side, its soft-RoCE and librdmacm's programs, meets a peer
//! that it was not written with.
//!
//! `interop TAP serve ADDRESS` and `interop TAP ask ADDRESS PEER SIZE COUNT` are rsockets ([`streams`]), `interop TAP ping-serve COUNT` and `interop TAP
//! ping-ask ADDRESS PEER SIZE COUNT` connection management and verbs without them ([`pings`]). The interface is there, and the kernel knows by `ip neighbour`
//! that ADDRESS is at [`tap::MAC`].

mod pings;
mod streams;
mod tap;

use std::env;
use std::net::SocketAddr;
use std::process::ExitCode;

type Failure = Box<dyn std::error::Error>;

fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [interface, "serve", address] => {
            let address = address.parse()?;
            streams::Peer::new(interface, address)?.serve(address)
        }
        [interface, "ask", address, peer, size, count] => {
            let peer = SocketAddr::new(peer.parse()?, streams::PORT);
            streams::Peer::new(interface, address.parse()?)?.ask(peer, size.parse()?, count.parse()?)
        }
        [interface, "ping-serve", count] => pings::Machine::new(interface)?.serve(count.parse()?),
        [interface, "ping-ask", address, peer, size, count] => {
            pings::Machine::new(interface)?.ask(address.parse()?, peer.parse()?, size.parse()?, count.parse()?)
        }
        _ => Err("interop TAP (serve ADDRESS | ask ADDRESS PEER SIZE COUNT | ping-serve COUNT | ping-ask ADDRESS PEER SIZE COUNT)".into()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop: {error}");
            ExitCode::FAILURE
        }
    }
}
