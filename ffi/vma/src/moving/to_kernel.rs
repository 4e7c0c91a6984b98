//! A connection over an interface, which only the kernel can share, or only it can do what is asked for: the kernel beside the interface takes it over, by
//! TCP_REPAIR ([`ringway_host::leave`]), into its placeholder. Its peer notices nothing.
//!
//! (On a device whose peers hear nothing of that kernel, both ends have to leave together: [`super::together`].)
//!
//! It happens at once, under the process's lock. What the program had written and was never sent is written to the kernel's socket before anything else; where
//! that has no room for all of it, a thread writes the rest, and calls wait until it has.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::sync::Arc;

use ringway_devices::Fd;
use ringway_host::Blocked;
use ringway_host::leave::{Kernel, LeaveError, Unsent};
use ringway_stack::Error;
use ringway_stack::offload::Reason;
use ringway_stack::ring::FlowId;

use super::giving_up::File;
use super::{owner, pair, peer, together};
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::Kind;

/// Moves a connection into its placeholder. `key`: its socket, unless the program has closed it. `false`: it stays where it is, and the log says why.
pub(super) fn begin(process: &'static Process, offload: &mut Offload, id: FlowId, key: Option<Key>, placeholder: RawFd) -> bool {
    let Some((local, remote)) = owner::ends(offload, id) else { return false };
    if offload.rings.at(id.ring).ring.leaves_at_both_ends() {
        return together::begin(process, offload, (local, remote), key, placeholder);
    }
    // (By a number that is not the program's: what is asked by that is asked of the socket.)
    let Some(copy) = peer::copy_of(placeholder) else { return false };
    match take_over(process, offload, id, (local, remote), &copy) {
        Ok(unsent) => {
            offload.to_kernel += 1;
            settle(process, offload, (key, Reason::SharedConnection), Arc::new(File::new(copy)), unsent);
            true
        }
        // What the program had closed has ended meanwhile, as it should.
        Err(LeaveError::Ring(Error::BadSocket)) if key.is_none() => false,
        Err(error) => {
            tracing::warn!("the connection {local} - {remote} stays this process's alone: {error}");
            false
        }
    }
}

fn take_over(
    process: &Process,
    offload: &mut Offload,
    id: FlowId,
    (local, remote): (SocketAddr, SocketAddr),
    placeholder: &Fd,
) -> Result<Unsent, LeaveError> {
    let kernel = match offload.rings.at(id.ring).ring.lender() {
        Some(lender) => Kernel::lent(process.clock, lender),
        None => Kernel::open(process.clock)?,
    };
    let now = process.now();
    offload.poll_if_due(now);
    if let Some(info) = offload.rings.of(id).info(id) {
        offload.closed.rx_bytes += info.counters.rx_bytes;
        offload.closed.tx_bytes += info.counters.tx_bytes;
    }
    let own = offload.rings.at_mut(id.ring);
    own.ring.tcp_keep_late(local, remote);
    let detached = match own.ring.detach_stream(now, id) {
        Err(Error::BadSocket) => own.ring.detach_closed(now, id),
        detached => detached,
    };
    let handover = match detached {
        Ok(handover) => handover,
        Err(error) => {
            own.ring.tcp_end_late(local, remote);
            return Err(LeaveError::Ring(error));
        }
    };
    let exempt = own.ring.exempter();
    // SAFETY: it is open until it is dropped.
    let socket = unsafe { BorrowedFd::borrow_raw(placeholder.raw()) };
    let mut late = || {
        own.ring.poll(process.now());
        own.ring.tcp_take_late(local, remote)
    };
    let by = kernel.into_socket(socket);
    let mut by = match &exempt {
        Some(exempt) => by.exempting(exempt),
        None => by,
    };
    match handover.leave(&mut by, &mut late) {
        Ok(unsent) => {
            own.ring.tcp_end_late(local, remote);
            Ok(unsent)
        }
        Err((error, handover)) => {
            // (It goes on under another name, which its socket gets. What the program has closed ends here, for whoever else has it.)
            let again = own.ring.adopt(now, handover);
            if again.is_err() {
                // (What the peer sends from now on is answered by a reset.)
                own.ring.tcp_end_late(local, remote);
            }
            if let Ok(again) = again
                && !offload.renamed(id, again)
            {
                offload.rings.of_mut(again).close(now, again, true);
            }
            Err(error)
        }
    }
}

/// The kernel has it: what was never sent is written first.
pub(super) fn settle(
    process: &'static Process,
    offload: &mut Offload,
    (key, reason): (Option<Key>, Reason),
    placeholder: Arc<File>,
    mut unsent: Unsent,
) {
    match key {
        Some(key) => offload.on_its_way(key),
        // Whoever closed it may end at any moment, and the thread below with it.
        None => pair::make_room(&placeholder.fd, unsent.len()),
    }
    // SAFETY: it is open until it is dropped.
    let is_done = unsent.write(unsafe { BorrowedFd::borrow_raw(placeholder.raw()) });
    let arrive = move |offload: &mut Offload| {
        if let Some(key) = key {
            offload.arrived(key, reason);
            offload.dispatch();
        }
    };
    match is_done {
        // (What was reset meanwhile tells that by itself.)
        Ok(true) | Err(_) => arrive(offload),
        Ok(false) => {
            // Until it is complete, our end is no end of a stream.
            pair::break_off(&placeholder.fd);
            let _undisturbed = Blocked::new();
            let work = move || {
                crate::boundary!((), {
                    write_rest(&placeholder.fd, unsent);
                    arrive(&mut process.lock());
                });
            };
            if let Err(error) = std::thread::Builder::new().name("ringway-rest".to_owned()).spawn(work) {
                tracing::warn!("what a connection had yet to send is lost: {error}");
                if let Some(key) = key {
                    offload.arrived(key, reason);
                }
            }
        }
    }
}

fn write_rest(socket: &Fd, mut unsent: Unsent) {
    // SAFETY: it is open until it is dropped.
    let borrowed = unsafe { BorrowedFd::borrow_raw(socket.raw()) };
    while let Ok(false) = unsent.write(borrowed) {
        if pair::wait_for(borrowed.as_raw_fd(), libc::POLLOUT).is_err() {
            return;
        }
    }
    pair::end_in_order(socket);
}

impl Offload {
    /// A connection has another name on its ring. `false`: it has no socket.
    fn renamed(&mut self, before: FlowId, now: FlowId) -> bool {
        let index = self.rings.socket_above(before).filter(|&index| self.sockets.get(index).is_some());
        let Some(index) = index else { return false };
        match self.sockets.get_mut(index).map(|socket| &mut socket.kind) {
            Some(Kind::Stream(id) | Kind::Connecting(id)) if *id == before => *id = now,
            _ => return false,
        }
        self.link(now, index);
        true
    }
}
