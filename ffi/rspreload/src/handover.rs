//! RDMAV_FORK_SAFE (rsocket(7)): where it is set on both sides, connections begin in the kernel, by TCP, and become rsockets in the process that uses
//! them first: a server's child, say.
//!
//! A server takes its port among rsockets as well, without listening there, so that clients know what to expect; a client that finds it taken,
//! and nobody listening, takes its own port, so that the server does. The server's process listens at a port of its own, and says which by four
//! bytes on the TCP connection (zero: it goes on by TCP); the client connects there. (librdmacm's server says zero always, and listens at the
//! connection's port.) A peer that has not taken its port is spoken to by TCP alone. One that has, and does not answer, is told to go on by TCP: it waits for that word.

use core::ffi::c_int;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::OnceLock;

use libc::pollfd;
use ringway_preload::{Errno, errno::THEIRS, next};
use ringway_stack::device::RuleId;
use rsocket::api::{self, Family, Presence, Waiting, Woken};

use crate::epoll;
use crate::socket::{Socket, State, kernel_bind, kernel_name, leave_to_kernel, rsocket_for};

/// How long a client may take to connect after it was told where.
const TIME_MAX: Duration = Duration::from_secs(10);

/// A port that says to others what its socket is.
pub(crate) struct Claim(Option<RuleId>);

impl Claim {
    pub(crate) fn give_up(mut self) {
        if let Some(rule) = self.0.take() {
            api::give_up(rule);
        }
    }

    /// It is another process's.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}

/// Whether RDMAV_FORK_SAFE is set, and not zero.
pub(crate) fn is_on() -> bool {
    static IS_ON: OnceLock<bool> = OnceLock::new();
    *IS_ON.get_or_init(|| std::env::var("RDMAV_FORK_SAFE").is_ok_and(|text| text.trim().parse() != Ok(0)))
}

/// A server listens, in the kernel.
pub(crate) fn listening(fd: c_int, socket: &Socket) {
    let Some(name) = kernel_name(fd, socket.family, false) else { return };
    match api::claim(name) {
        Ok(rule) => socket.more().claim = Some(Claim(Some(rule))),
        Err(Errno(code)) => tracing::debug!("descriptor {fd} listens at {name} in the kernel alone: errno {code}"),
    }
}

/// A client connects. `None`: in the usual way.
pub(crate) fn connecting(fd: c_int, socket: &Arc<Socket>, to: SocketAddr) -> Option<Result<(), Errno>> {
    if !api::is_there(to, false) {
        return None;
    }
    // A server that does not hand over accepts rsockets.
    if let Some(key) = connected(socket, to) {
        socket.more().to = Some(to);
        socket.set_state(State::Connected(key));
        epoll::moved(socket);
        return Some(Ok(()));
    }
    let unspecified = match socket.family {
        Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    if kernel_name(fd, socket.family, false).is_none_or(|name| name.port() == 0) {
        kernel_bind(fd, socket.family, SocketAddr::new(unspecified, 0));
    }
    let claim = kernel_name(fd, socket.family, false).ok_or(Errno(libc::EINVAL)).and_then(api::claim);
    match claim {
        Ok(rule) => {
            socket.more().claim = Some(Claim(Some(rule)));
            socket.set_state(State::ForkActive);
        }
        Err(Errno(code)) => leave_to_kernel(socket, format_args!("its port cannot be taken: errno {code}")),
    }
    Some(Err(THEIRS))
}

/// An rsocket that is connected to that address, if anybody accepts it there.
fn connected(socket: &Socket, to: SocketAddr) -> Option<c_int> {
    let key = rsocket_for(socket).ok()?;
    let is_connected = match api::connect(key, to) {
        Ok(()) => true,
        Err(Errno(libc::EINPROGRESS)) => answered(socket, key),
        Err(_) => false,
    };
    if !is_connected {
        api::close(key);
    }
    is_connected.then_some(key)
}

/// Whether a connection that was begun comes about.
fn answered(socket: &Socket, key: c_int) -> bool {
    let deadline = std::time::Instant::now() + TIME_MAX;
    socket.wait(key, libc::POLLOUT, &mut [], Some(deadline)).is_ok()
        && api::option(key, libc::SOL_SOCKET, libc::SO_ERROR).is_ok_and(|error| error.iter().all(|&byte| byte == 0))
}

/// The first use of a connection that is to become an rsocket.
///
/// # Errors
/// EAGAIN: the server has not said yet how it goes on, and `waits` is not set; EINTR.
pub(crate) fn settle(fd: c_int, socket: &Arc<Socket>, waits: bool) -> Result<(), Errno> {
    let state = socket.state();
    match state {
        State::ForkPassive if socket.turn(state, State::Moving) => {
            let key = become_server(fd, socket);
            finish(socket, key);
            Ok(())
        }
        State::ForkActive => {
            // (Until then, others may be here as well.)
            let told = told(fd, waits)?;
            if socket.turn(state, State::Moving) {
                let key = become_client(fd, socket, told);
                finish(socket, key);
            }
            Ok(())
        }
        State::Moving => {
            ringway_host::sleep::yield_core();
            Ok(())
        }
        _ => Ok(()),
    }
}

/// It is an rsocket now, or stays the kernel's.
fn finish(socket: &Arc<Socket>, key: Option<c_int>) {
    if let Some(claim) = socket.more().claim.take() {
        claim.give_up();
    }
    match key {
        Some(key) => {
            socket.keeps_names.store(true, Ordering::Relaxed);
            socket.set_state(State::Connected(key));
            epoll::moved(socket);
        }
        None => leave_to_kernel(socket, "its peer goes on by TCP"),
    }
}

/// The server's end: its rsocket, if the client has one.
fn become_server(fd: c_int, socket: &Arc<Socket>) -> Option<c_int> {
    let peer = kernel_name(fd, socket.family, true)?;
    let own = kernel_name(fd, socket.family, false)?;
    match api::presence(peer, false) {
        Presence::Nobody => return None,
        Presence::Silent => {
            tell_port(fd, 0);
            return None;
        }
        Presence::There => {}
    }
    let listener = api::stream(socket.family).ok();
    let port = listener.and_then(|listener| {
        api::bind(listener, SocketAddr::new(own.ip(), 0)).and_then(|()| api::listen(listener, 1)).ok()?;
        api::local(listener).ok().map(|name| name.port())
    });
    tell_port(fd, port.unwrap_or(0));
    let accepted = listener.filter(|_| port.is_some()).and_then(|listener| {
        // The client may be gone instead.
        let mut kernels = [pollfd { fd, events: libc::POLLRDHUP, revents: 0 }];
        let deadline = std::time::Instant::now() + TIME_MAX;
        let woken = socket.wait(listener, libc::POLLIN, &mut kernels, Some(deadline));
        (woken == Ok(Woken::Ours)).then(|| api::accept(listener).ok()).flatten()
    });
    if let Some(listener) = listener {
        api::close(listener);
    }
    accepted.map(|(key, _)| key)
}

fn tell_port(fd: c_int, port: u16) {
    let bytes = u32::from(port).to_be_bytes();
    // SAFETY: four bytes.
    unsafe { next::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
}

/// Another program goes on with it, which knows of no rsocket.
pub(crate) fn stay(fd: c_int, socket: &Arc<Socket>) {
    if socket.turn(State::ForkPassive, State::Moving) {
        if kernel_name(fd, socket.family, true).is_some_and(|peer| api::presence(peer, false) != Presence::Nobody) {
            tell_port(fd, 0);
        }
        socket.set_state(State::Kernel);
    }
}

/// What a server has said first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Its rsocket listens there.
    Port(u16),
    /// It goes on by TCP.
    Tcp,
    /// Nothing of this: it is gone, or what is there is the stream's. (A server may have found nobody at the client's port, which was wrong.)
    Nothing,
}

impl Told {
    fn of(bytes: [u8; 4]) -> Self {
        match u16::try_from(u32::from_be_bytes(bytes)) {
            Ok(0) => Self::Tcp,
            Ok(port) => Self::Port(port),
            Err(_) => Self::Nothing,
        }
    }
}

/// What the server has said, which stays to be read.
fn told(fd: c_int, waits: bool) -> Result<Told, Errno> {
    let mut bytes = [0; 4];
    loop {
        // SAFETY: room for four bytes.
        let got = unsafe { next::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_PEEK | libc::MSG_DONTWAIT) };
        match got {
            4 => return Ok(Told::of(bytes)),
            0 => return Ok(Told::Nothing),
            // (A port has two bytes.)
            1..4 if bytes[0] != 0 || bytes[1] != 0 => return Ok(Told::Nothing),
            1..4 if has_ended(fd) => return Ok(Told::Nothing),
            1..4 => {}
            _ => match Errno::last() {
                Errno(libc::EAGAIN) => {}
                // (It has not connected, or never will: the kernel says so.)
                _ => return Ok(Told::Nothing),
            },
        }
        if !waits {
            return Err(Errno(libc::EAGAIN));
        }
        let mut kernels = [pollfd { fd, events: libc::POLLIN, revents: 0 }];
        api::wait(&mut kernels, Waiting { restarts: true, ..Waiting::default() }, |_| false)?;
        if (1..4).contains(&got) {
            ringway_host::sleep::yield_core();
        }
    }
}

/// Whether nothing comes any more behind what has come.
fn has_ended(fd: c_int) -> bool {
    let mut ended = pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { next::poll(&raw mut ended, 1, 0) == 1 }
}

/// The client's end.
fn become_client(fd: c_int, socket: &Arc<Socket>, told: Told) -> Option<c_int> {
    if told == Told::Nothing {
        return None;
    }
    let mut bytes = [0; 4];
    // SAFETY: room for four bytes, which `told` has seen.
    unsafe { next::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
    let Told::Port(port) = told else { return None };
    let peer = kernel_name(fd, socket.family, true)?;
    let key = connected(socket, SocketAddr::new(peer.ip(), port));
    if key.is_none() {
        tracing::warn!("descriptor {fd}: {peer} has offered an rsocket, and does not answer");
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_a_port_or_that_it_goes_on_by_tcp_and_all_else_is_the_streams() {
        assert_eq!(Told::of([0, 0, 0x1f, 0x40]), Told::Port(8000));
        assert_eq!(Told::of([0; 4]), Told::Tcp);
        assert_eq!(Told::of(*b"SSH-"), Told::Nothing);
    }
}
