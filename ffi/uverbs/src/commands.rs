//! What each command does. Numbers and layouts are those of the kernel's public rdma/ib_user_verbs.h and rdma/mlx5-abi.h; each function
//! says at which offset it reads and writes what.

mod device;
mod device_memory;
mod flows;
mod groups;
mod hashes;
mod memory;
mod pairs;
mod queues;
mod raw;
mod states;

pub(crate) use self::memory::PAGES_AT;
pub(crate) use self::states::mask;

use ringway_preload::Errno;

use crate::abi::{Call, Input, Output, id};
use crate::engine::memory::ProcessMemory;
use crate::engine::{Context, Engine, Life, Object};
use crate::log::say;
use crate::process;

/// Bit of a command's number that says that it is an extended one.
const EXTENDED: u32 = 1 << 31;

/// One command: its number, the least bytes that it reads and writes, and what it does.
struct Command {
    number: u32,
    name: &'static str,
    reads: usize,
    writes: usize,
    run: fn(&mut Request<'_>) -> Result<Reply, Errno>,
}

const fn command(
    number: u32,
    name: &'static str,
    reads: usize,
    writes: usize,
    run: fn(&mut Request<'_>) -> Result<Reply, Errno>,
) -> Command {
    Command { number, name, reads, writes, run }
}

static COMMANDS: [Command; 36] = [
    command(0, "get_context", 8, 8, device::get_context),
    command(1, "query_device", 8, 176, device::query),
    command(1 | EXTENDED, "query_device_ex", 8, 184, device::query_extended),
    command(2, "query_port", 16, 40, device::query_port),
    command(3, "alloc_pd", 8, 4, memory::alloc_pd),
    command(4, "dealloc_pd", 4, 0, memory::dealloc_pd),
    command(5, "create_ah", 56, 4, memory::create_ah),
    command(8, "destroy_ah", 4, 0, memory::destroy_ah),
    command(9, "reg_mr", 40, 12, memory::register),
    command(13, "dereg_mr", 4, 0, memory::deregister),
    command(17, "create_comp_channel", 8, 4, queues::create_channel),
    command(18, "create_cq", 32, 8, queues::create_cq),
    command(18 | EXTENDED, "create_cq_ex", 32, 16, queues::create_cq_extended),
    command(20, "destroy_cq", 16, 8, queues::destroy_cq),
    command(24, "create_qp", 56, 32, pairs::create),
    command(24 | EXTENDED, "create_qp_ex", 56, 40, pairs::create_extended),
    command(25, "query_qp", 16, 128, pairs::query),
    command(26, "modify_qp", 112, 0, states::modify),
    command(26 | EXTENDED, "modify_qp_ex", 112, 8, states::modify_extended),
    command(27, "destroy_qp", 16, 4, pairs::destroy),
    command(30, "attach_mcast", 24, 0, groups::attach),
    command(31, "detach_mcast", 24, 0, groups::detach),
    command(32, "create_srq", 32, 16, queues::create_srq),
    command(34, "query_srq", 16, 16, queues::query_srq),
    command(35, "destroy_srq", 16, 4, queues::destroy_srq),
    command(50 | EXTENDED, "create_flow", 24, 8, flows::create),
    command(51 | EXTENDED, "destroy_flow", 8, 0, flows::destroy),
    command(52 | EXTENDED, "create_wq", 40, 24, hashes::create_wq),
    command(53 | EXTENDED, "modify_wq", 16, 0, hashes::modify_wq),
    command(54 | EXTENDED, "destroy_wq", 8, 12, hashes::destroy_wq),
    command(55 | EXTENDED, "create_rwq_ind_tbl", 8, 16, hashes::create_table),
    command(56 | EXTENDED, "destroy_rwq_ind_tbl", 8, 0, hashes::destroy_table),
    // What the model lacks, with the names of the log.
    command(11, "rereg_mr", 0, 0, lacking),
    command(14, "alloc_mw", 0, 0, lacking),
    command(19, "resize_cq", 0, 0, lacking),
    command(33, "modify_srq", 0, 0, lacking),
];

/// A command, with what it was given.
pub(crate) struct Request<'a> {
    engine: &'a mut Engine,
    context: u32,
    core: &'a [u8],
    driver: &'a [u8],
}

/// What a command answers.
pub(crate) struct Reply {
    core: Output,
    driver: Output,
    /// The object that it made, which ends again if the program cannot be told of it.
    made: Option<u32>,
}

impl Reply {
    fn nothing() -> Self {
        Self::of(Output::new(0))
    }

    fn of(core: Output) -> Self {
        Self { core, driver: Output::new(0), made: None }
    }
}

impl<'a> Request<'a> {
    fn core(&self) -> Input<'a> {
        Input(self.core)
    }

    fn driver(&self) -> Input<'a> {
        Input(self.driver)
    }

    /// The context. EIO: it was the parent's of this process.
    fn context(&mut self) -> Result<&mut Context, Errno> {
        self.engine.contexts.get_mut(&self.context).ok_or(Errno(libc::EIO))
    }

    /// Removes the object of a handle if it is what `is` says.
    fn remove(&mut self, handle: u32, is: fn(&Object) -> bool) -> Result<Object, Errno> {
        let context = self.context()?;
        let object = context.objects.get(&handle).copied().filter(is).ok_or(Errno(libc::EINVAL))?;
        context.objects.remove(&handle);
        Ok(object)
    }
}

/// Does the call whose header is at `at`.
///
/// # Errors
/// What the kernel's ioctl fails with.
pub(crate) fn call(context: u32, at: u64) -> Result<(), Errno> {
    let memory = ProcessMemory::new();
    let call = Call::read(&memory, at)?;
    let mut engine = process::lock();
    let of_parent = || {
        say(format_args!("a context of the parent process is used"));
        Errno(libc::EIO)
    };
    let engine = engine.as_mut().ok_or_else(of_parent)?;
    if !engine.contexts.contains_key(&context) {
        engine.inherit(context);
    }
    engine.catch_up();
    let ends = (call.object, call.method) == (id::UAR, id::UAR_DESTROY) || call.object == id::DEVICE;
    if engine.life() == Life::Removed || engine.life() == Life::Failed && !ends {
        return Err(Errno(libc::EIO));
    }
    if engine.contexts.get(&context).is_some_and(|context| context.is_inherited) && !is_for_children(&memory, &call) {
        return Err(of_parent());
    }
    match (call.object, call.method) {
        (id::DEVICE, id::INVOKE_WRITE) => write(engine, context, &memory, &call),
        (id::UAR, id::UAR_ALLOC) => memory::alloc_uar(engine, context, &memory, &call),
        (id::UAR, id::UAR_DESTROY) => memory::free_uar(engine, context, &call),
        (id::DM, id::DM_ALLOC) => device_memory::alloc(engine, context, &memory, &call),
        (id::DM, id::DM_FREE) => device_memory::free(engine, context, &call),
        (id::MR, id::DM_MR_REGISTER) => device_memory::register(engine, context, &memory, &call),
        (object, method) => {
            say(format_args!("object {object:#x} has no method {method:#x} here"));
            // By which libibverbs falls back to the older command where there is one.
            Err(Errno(libc::EPROTONOSUPPORT))
        }
    }
}

/// What a child may do with a context of its parent's: ask about the device, and make protection domains. (librdmacm keeps a context and a domain of each device for all that the
/// process does, and a child's identifiers want both.)
fn is_for_children(memory: &ProcessMemory, call: &Call) -> bool {
    const FOR_CHILDREN: [&str; 5] = ["query_device", "query_device_ex", "query_port", "alloc_pd", "dealloc_pd"];
    if (call.object, call.method) != (id::DEVICE, id::INVOKE_WRITE) {
        return false;
    }
    let Ok(number) = call.input(memory, id::WRITE_COMMAND).map(|bytes| Input(&bytes).u32(0)) else { return false };
    COMMANDS.iter().any(|command| command.number == number && FOR_CHILDREN.contains(&command.name))
}

/// A command of the older interface.
fn write(engine: &mut Engine, context: u32, memory: &ProcessMemory, call: &Call) -> Result<(), Errno> {
    let number = Input(&call.input(memory, id::WRITE_COMMAND)?).u32(0);
    let (core, driver) = (call.input(memory, id::CORE_IN)?, call.input(memory, id::DRIVER_IN)?);
    let Some(command) = COMMANDS.iter().find(|command| command.number == number) else {
        say(format_args!("no command {number:#x}"));
        // (uverbs_uapi.c: beyond the last command there is EINVAL, a command that a driver lacks is EOPNOTSUPP.)
        let beyond = number & !EXTENDED > 62;
        return Err(Errno(if beyond { libc::EINVAL } else { libc::EOPNOTSUPP }));
    };
    // (uverbs_std_types_device.c, the handler of "invoke write". libibverbs probes for it.)
    if core.len() < command.reads || call.room(id::CORE_OUT) < command.writes {
        return Err(Errno(libc::ENOSPC));
    }
    // (Of a card that has failed, things end.)
    if engine.life() == Life::Failed && !command.name.starts_with("de") {
        return Err(Errno(libc::EIO));
    }
    let mut request = Request { engine, context, core: &core, driver: &driver };
    let result = (command.run)(&mut request).and_then(|reply| {
        let written = call.output(memory, id::CORE_OUT, reply.core.bytes());
        let written = written.and_then(|()| call.output(memory, id::DRIVER_OUT, reply.driver.bytes()));
        if let (Err(_), Some(handle)) = (written, reply.made)
            && let Ok(object) = request.remove(handle, |_| true)
        {
            request.engine.end(object);
        }
        written
    });
    if let Err(Errno(code)) = result {
        say(format_args!("{}: {}", command.name, std::io::Error::from_raw_os_error(code)));
    }
    result
}

fn lacking(_: &mut Request<'_>) -> Result<Reply, Errno> {
    Err(Errno(libc::EOPNOTSUPP))
}
