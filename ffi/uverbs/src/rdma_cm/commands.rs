//! What each command does. Each function says at which offset it reads and writes what; errors are the kernel's (drivers/infiniband/core/ucma.c).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ringway_preload::Errno;
use ringway_stack::cm::{CmId, IdOption, ResolveError};
use ringway_stack::device::messages::{CmError, PortSpace, State};
use ringway_stack::net::Tables;
use ringway_stack::roce::mad::private::service_id;

use super::layouts::{self, CONN_PARAM, SOCKADDR};
use super::{Known, RdmaCm, events, groups, is_of_port};
use crate::abi::{Input, Output};
use crate::descriptors::{self, Kind};
use crate::engine::Engine;
use crate::engine::memory::ProcessMemory;
use crate::log::say;
use crate::sysfs::NODE_GUID;

const BAD: Errno = Errno(libc::EINVAL);
/// Bytes of `struct rdma_ucm_cmd_hdr` {cmd 0, in 4, out 6}.
const HEADER: usize = 8;
/// RDMA_USER_CM_CMD_GET_EVENT.
const GET_EVENT: u32 = 12;
/// An index of the device that librdmacm takes for none.
const NO_INDEX: u32 = u32::MAX;

/// A command, and who gave it.
pub(super) struct Request<'a> {
    pub(super) engine: &'a mut Engine,
    /// Where it was given.
    pub(super) channel: u32,
    memory: &'a ProcessMemory,
    bytes: &'a [u8],
    /// Bytes of room for a response.
    out: usize,
}

struct Command {
    number: u32,
    name: &'static str,
    reads: usize,
    run: fn(&mut Request<'_>) -> Result<(), Errno>,
}

const fn command(number: u32, name: &'static str, reads: usize, run: fn(&mut Request<'_>) -> Result<(), Errno>) -> Command {
    Command { number, name, reads, run }
}

static COMMANDS: [Command; 20] = [
    command(0, "create_id", 19, create_id),
    command(1, "destroy_id", 12, destroy_id),
    command(2, "bind_ip", 40, bind_ip),
    command(3, "resolve_ip", 64, resolve_ip),
    command(4, "resolve_route", 8, resolve_route),
    command(5, "query_route", 12, query_route),
    command(6, "connect", CONN_PARAM + 4, connect),
    command(7, "listen", 8, listen),
    command(8, "accept", CONN_PARAM + 12, accept),
    command(9, "reject", 8, reject),
    command(10, "disconnect", 4, disconnect),
    command(11, "init_qp_attr", 16, init_qp_attr),
    command(GET_EVENT, "get_event", 8, events::get),
    command(14, "set_option", 24, set_option),
    command(15, "notify", 8, notify),
    command(16, "join_ip_mcast", 48, groups::join_ip),
    command(17, "leave_mcast", 12, groups::leave),
    command(18, "migrate_id", 16, migrate_id),
    // What the card lacks, with the names of the log. (By BIND, librdmacm finds out whether there are addresses of InfiniBand's own.)
    command(20, "bind", 0, lacking),
    command(22, "join_mcast", 24, groups::join),
];

/// Whether the command is to wait for an event.
pub(super) fn is_get_event(bytes: &[u8]) -> bool {
    Input(bytes).u32(0) == GET_EVENT
}

/// Does one command.
///
/// # Errors
/// EINVAL: it is none, or too short; ENOSYS: the kernel has none of that number; and its own.
pub(super) fn run(engine: &mut Engine, channel: u32, memory: &ProcessMemory, bytes: &[u8]) -> Result<(), Errno> {
    let header = Input(bytes);
    let (number, reads, out) = (header.u32(0), usize::from(header.u16(4)), usize::from(header.u16(6)));
    let body = bytes.get(HEADER..HEADER + reads).ok_or(BAD)?;
    let Some(command) = COMMANDS.iter().find(|command| command.number == number) else {
        say(format_args!("rdma_cm has no command {number} here"));
        return Err(Errno(if number > 22 { libc::EINVAL } else { libc::ENOSYS }));
    };
    if body.len() < command.reads {
        return Err(BAD);
    }
    let done = (command.run)(&mut Request { engine, channel, memory, bytes: body, out });
    if let Err(Errno(code)) = done
        && code != libc::EAGAIN
    {
        say(format_args!("rdma_cm, {}: {}", command.name, std::io::Error::from_raw_os_error(code)));
    }
    done
}

impl Request<'_> {
    pub(super) fn input(&self) -> Input<'_> {
        Input(self.bytes)
    }

    /// Whether there is room for a response of so many bytes. ENOSPC: there is not.
    pub(super) fn has_room(&self, least: usize) -> Result<(), Errno> {
        if self.out < least { Err(Errno(libc::ENOSPC)) } else { Ok(()) }
    }

    /// Writes a response of at least `least` bytes to where the command says. ENOSPC: the program has no room for it.
    pub(super) fn respond(&self, to: u64, least: usize, output: &Output) -> Result<(), Errno> {
        self.has_room(least)?;
        let bytes = output.bytes();
        self.memory.copy_out(to, &bytes[..bytes.len().min(self.out)])
    }

    pub(super) fn cm(&mut self) -> &mut RdmaCm {
        &mut self.engine.rdma_cm
    }

    /// The identifier of that number. ENOENT: there is none; EINVAL: it is another channel's.
    pub(super) fn known(&self, number: u32) -> Result<Known, Errno> {
        let known = self.engine.rdma_cm.known(number)?;
        if known.channel == self.channel { Ok(known) } else { Err(BAD) }
    }

    fn id(&self, at: usize) -> Result<CmId, Errno> {
        self.known(self.input().u32(at)).map(|known| known.id)
    }
}

impl RdmaCm {
    /// The kernel's routes and addresses, as they are now.
    fn tables(&mut self) -> Result<Arc<Tables>, Errno> {
        let monitor = self.monitor.as_mut().ok_or(Errno(libc::EIO))?;
        // (What fails is said, and the tables stay as they were.)
        let _ = monitor.refresh();
        Ok(Arc::clone(monitor.tables()))
    }
}

pub(super) fn refused(error: CmError) -> Errno {
    Errno(match error {
        CmError::Full => libc::ENOMEM,
        CmError::Missing => libc::ENOENT,
        CmError::State | CmError::TooLong => libc::EINVAL,
        CmError::InUse => libc::EADDRINUSE,
        CmError::Unroutable => libc::EADDRNOTAVAIL,
        CmError::NoWay(_) => libc::ENODEV,
        CmError::Unsupported => libc::EOPNOTSUPP,
    })
}

fn lacking(_: &mut Request<'_>) -> Result<(), Errno> {
    Err(BAD)
}

/// {uid 0, response 8, ps 16}; {id 0}.
fn create_id(request: &mut Request<'_>) -> Result<(), Errno> {
    let (uid, to, space) = (request.input().u64(0), request.input().u64(8), request.input().u16(16));
    let space = match space {
        0x106 => PortSpace::Tcp,
        0x111 => PortSpace::Udp,
        0x002 => PortSpace::Ipoib,
        _ => return Err(BAD),
    };
    request.has_room(4)?;
    let channel = request.channel;
    let cm = request.cm();
    let id = cm.manager.create_id_in(space).map_err(refused)?;
    let number = cm.add(id, channel, uid);
    request.respond(to, 4, &Output::new(4).u32(0, number))
}

/// {response 0, id 8}; {events_reported 0}.
fn destroy_id(request: &mut Request<'_>) -> Result<(), Errno> {
    let (to, number) = (request.input().u64(0), request.input().u32(8));
    let known = request.known(number)?;
    let (now, engine) = (request.engine.now(), &mut *request.engine);
    engine.rdma_cm.forget(now, &mut engine.node, number);
    engine.hear_groups();
    request.respond(to, 4, &Output::new(4).u32(0, known.reported))
}

/// {addr 8, id 36}. Port zero is any that nobody has.
fn bind_ip(request: &mut Request<'_>) -> Result<(), Errno> {
    let (local, number) = (layouts::address(request.input(), 8).ok_or(BAD)?, request.input().u32(36));
    let known = request.known(number)?;
    let (bus, cm) = (&request.engine.bus, &mut request.engine.rdma_cm);
    let tables = cm.tables()?;
    let space = cm.manager.port_space(known.id).ok_or(BAD)?;
    // (What is not the host's has no ports.)
    if !local.ip().is_unspecified() && !tables.is_local(local.ip()) {
        return Err(Errno(libc::EADDRNOTAVAIL));
    }
    if cm.manager.local_address(known.id).is_some() {
        return Err(BAD);
    }
    let local = cm.ports.take(bus, number, space, local, known.reuses)?;
    cm.manager.bind_address(&tables, known.id, local).map_err(|error| {
        cm.ports.give_up(number);
        refused(error)
    })
}

/// {src_addr 0, dst_addr 28, id 56, timeout_ms 60}. What the routes say (ENETUNREACH, EHOSTUNREACH, EACCES, EINVAL) the command itself fails with; that they lead over another interface
/// comes as an event. It has a port of its own from here on (rdma_resolve_addr(3)).
fn resolve_ip(request: &mut Request<'_>) -> Result<(), Errno> {
    let input = request.input();
    let (from, to) = (layouts::address(input, 0), layouts::address(input, SOCKADDR).ok_or(BAD)?);
    let number = input.u32(56);
    let known = request.known(number)?;
    let tables = request.cm().tables()?;
    let engine = &mut *request.engine;
    let cm = &mut engine.rdma_cm;
    let space = cm.manager.port_space(known.id).ok_or(BAD)?;
    let bound = cm.manager.local_address(known.id);
    let any = if to.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let mut from = from.or(bound).unwrap_or(SocketAddr::new(any, 0));
    match bound.map(|bound| bound.port()).filter(|port| *port != 0) {
        Some(port) => from.set_port(port),
        None => from = cm.ports.take(&engine.bus, number, space, from, known.reuses)?,
    }
    cm.manager.resolve_address(&tables, &engine.node, known.id, Some(from), to).map_err(|error| match error {
        ResolveError::Cm(error) => refused(error),
        ResolveError::Unroutable(why) => Errno(why.errno().unwrap_or(libc::ENODEV)),
    })
}

/// {id 0, timeout_ms 4}.
fn resolve_route(request: &mut Request<'_>) -> Result<(), Errno> {
    let id = request.id(0)?;
    let engine = &mut *request.engine;
    engine.rdma_cm.manager.resolve_route(&engine.node, id).map_err(refused)
}

/// {response 0, id 8}; {node_guid 0, ib_route 8, src_addr 136, dst_addr 164, num_paths 192, port_num 196, ibdev_index 200}. A path is {dgid 0, sgid 16, reversible 44, mtu 48, pkey 52,
/// hop_limit 54, numb_path 56}.
fn query_route(request: &mut Request<'_>) -> Result<(), Errno> {
    let (to, id) = (request.input().u64(0), request.id(8)?);
    let manager = &request.engine.rdma_cm.manager;
    let (local, remote) = (manager.local_address(id), manager.peer_address(id));
    let mut output = Output::new(208).u32(200, NO_INDEX);
    let is_bound = local.is_some_and(|local| is_of_port(local.ip()));
    if is_bound {
        output = output.with(0, NODE_GUID).u8(196, 1);
    }
    for (at, address) in [(136, local), (164, remote)] {
        if let Some(address) = address {
            output = layouts::with_address(output, at, address);
        }
    }
    if let (true, Some(local), Some(remote)) = (is_bound, local, remote) {
        let mtu = request.engine.mtu() as u32;
        output = output.u32(192, 1).with(8, layouts::gid(remote.ip())).with(24, layouts::gid(local.ip()));
        output = output.u32(8 + 44, 1).u32(8 + 48, mtu).with(8 + 52, [0xff, 0xff]).u8(8 + 54, 64).u8(8 + 56, 1);
    }
    request.respond(to, 196, &output)
}

/// {conn_param 0, id 272}.
fn connect(request: &mut Request<'_>) -> Result<(), Errno> {
    let id = request.id(CONN_PARAM)?;
    let params = layouts::conn_param(request.bytes, 0).ok_or(BAD)?;
    let (now, engine) = (request.engine.now(), &mut *request.engine);
    engine.rdma_cm.manager.connect(now, &mut engine.node, id, &params).map_err(refused)
}

/// {id 0, backlog 4}. One that has no port is bound to any first, and stays so (cma.c, `rdma_listen`).
fn listen(request: &mut Request<'_>) -> Result<(), Errno> {
    let (number, backlog) = (request.input().u32(0), request.input().u32(4));
    let Known { id, of_one_family, .. } = request.known(number)?;
    // (ucma.c: none is as many as there may be.)
    let backlog = if backlog == 0 { 1024 } else { backlog.min(1024) };
    let engine = &mut *request.engine;
    let (bus, RdmaCm { manager, ports, claims, .. }) = (&engine.bus, &mut engine.rdma_cm);
    let space = manager.port_space(id).ok_or(BAD)?;
    let claim = |port| bus.claim(service_id(space, port));
    let local = manager.local_address(id);
    // (The port has an address of IPv4 alone, so nobody asks such a listener; another one has IPv4's of the same number.)
    if of_one_family && local.is_some_and(|local| local.is_ipv6()) {
        return Ok(());
    }
    let claimed = match local.map(|local| local.port()).filter(|port| *port != 0) {
        Some(port) => claim(port)?,
        // Any port will do that no identifier on the bus has.
        None => {
            let ip = local.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |local| local.ip());
            let mut claimed = None;
            let takes = |port| {
                let is_its = ports.take(bus, number, space, SocketAddr::new(ip, port), false).is_ok();
                is_its && claim(port).map(|claim| claimed = claim).is_ok()
            };
            manager.choose_port(id, takes).map_err(refused)?;
            claimed
        }
    };
    manager.listen(&mut engine.node, id, backlog as usize).map_err(refused)?;
    claims.extend(claimed.map(|claimed| (number, claimed)));
    Ok(())
}

/// {uid 0, conn_param 8, id 280}. Without a valid parameter, the peer's answer is taken: the program's queue pair is ready.
fn accept(request: &mut Request<'_>) -> Result<(), Errno> {
    let (uid, number) = (request.input().u64(0), request.input().u32(8 + CONN_PARAM));
    let id = request.known(number)?.id;
    let (now, engine) = (request.engine.now(), &mut *request.engine);
    let cm = &mut engine.rdma_cm;
    let Some(params) = layouts::conn_param(request.bytes, 8) else {
        return cm.manager.establish(now, &mut engine.node, id).map_err(refused);
    };
    cm.manager.accept(now, &mut engine.node, id, &params).map_err(refused)?;
    if let Some(known) = cm.ids.get_mut(&number) {
        known.uid = uid;
    }
    Ok(())
}

/// {id 0, private_data_len 4, private_data 8}.
fn reject(request: &mut Request<'_>) -> Result<(), Errno> {
    let (id, len) = (request.id(0)?, usize::from(request.input().u8(4)));
    let said = request.bytes.get(8..8 + len).ok_or(BAD)?;
    let (now, engine) = (request.engine.now(), &mut *request.engine);
    engine.rdma_cm.manager.reject(now, &mut engine.node, id, said).map_err(refused)
}

/// {id 0}.
fn disconnect(request: &mut Request<'_>) -> Result<(), Errno> {
    let id = request.id(0)?;
    let (now, engine) = (request.engine.now(), &mut *request.engine);
    engine.rdma_cm.manager.disconnect(now, &mut engine.node, id).map_err(refused)
}

/// {response 0, id 8, qp_state 12}; `struct ib_uverbs_qp_attr`.
fn init_qp_attr(request: &mut Request<'_>) -> Result<(), Errno> {
    let (to, number, state) = (request.input().u64(0), request.input().u32(8), request.input().u32(12));
    let known = request.known(number)?;
    let state = match state {
        1 => State::Init,
        2 => State::Rtr,
        3 => State::Rts,
        _ => return Err(BAD),
    };
    let engine = &request.engine;
    let modify = engine.rdma_cm.manager.init_qp_attr(&engine.node, known.id, state).map_err(refused)?;
    let is_datagrams = engine.rdma_cm.manager.port_space(known.id).is_some_and(|space| space != PortSpace::Tcp);
    let attributes = layouts::qp_attributes(&modify, is_datagrams).ok_or(BAD)?;
    request.respond(to, attributes.bytes().len(), &attributes)
}

/// {optval 0, id 8, level 12, optname 16, optlen 20}.
fn set_option(request: &mut Request<'_>) -> Result<(), Errno> {
    const REUSE_ADDRESS: u32 = 1;
    const ONE_FAMILY: u32 = 2;
    let input = request.input();
    let (from, level, name, len) = (input.u64(0), input.u32(12), input.u32(16), input.u32(20));
    let (number, id) = (input.u32(8), request.id(8)?);
    if level != 0 {
        return Err(BAD);
    }
    let option: fn(u8) -> IdOption = match (name, len) {
        (0, 1) => IdOption::Tos,
        (3, 1) => IdOption::AckTimeout,
        (REUSE_ADDRESS | ONE_FAMILY, 4) => {
            let mut value = [0; 4];
            request.memory.copy_in(from, &mut value)?;
            if let Some(known) = request.cm().ids.get_mut(&number) {
                let it = if name == ONE_FAMILY { &mut known.of_one_family } else { &mut known.reuses };
                *it = value != [0; 4];
            }
            return Ok(());
        }
        _ => return Err(BAD),
    };
    let mut value = [0];
    request.memory.copy_in(from, &mut value)?;
    request.cm().manager.set_option(id, option(value[0])).map_err(refused)
}

/// {id 0, event 4}: the program's queue pair got a message before the peer's last word, which comes again.
fn notify(request: &mut Request<'_>) -> Result<(), Errno> {
    request.id(0).map(|_| ())
}

/// {response 0, id 8, fd 12}; {events_reported 0}: an identifier of the channel of that descriptor goes over to this one.
fn migrate_id(request: &mut Request<'_>) -> Result<(), Errno> {
    let (to, number, fd) = (request.input().u64(0), request.input().u32(8), request.input().u32(12).cast_signed());
    let Some(Kind::RdmaCm(from)) = descriptors::kind(fd) else { return Err(BAD) };
    let channel = request.channel;
    let cm = request.cm();
    let known = cm.ids.get_mut(&number).filter(|known| known.channel == from).ok_or(Errno(libc::ENOENT))?;
    known.channel = channel;
    let (id, reported) = (known.id, known.reported);
    cm.move_events(id, from, channel);
    request.respond(to, 4, &Output::new(4).u32(0, reported))
}
