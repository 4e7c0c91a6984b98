//! The handlers of SIGSEGV and SIGTRAP. A fault at a register page is a doorbell, one at the clock a look at it; every other one is the program's own.
//!
//! SIGSEGV comes at the very instruction that rings, so that what holds elsewhere in handlers does not here: the thread is in no call of libc's, unless the program
//! rings in a handler of its own. So the card's work is done at once. On an alternate stack, which may be small, it is left to the card's thread.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::mem;
use core::ptr;
use std::io;

use libc::{SA_ONSTACK, SA_RESTART, SA_SIGINFO, SIG_UNBLOCK, SIGSEGV, SIGTRAP, sighandler_t, siginfo_t, sigset_t, ucontext_t};
use ringway_host::all_but_faults;
use ringway_preload::types::Action;
use ringway_preload::{errno, next};

use super::x86_64::{code_at, decode};
use super::{CLOCK, actions, page_of};
use crate::engine::PAGE;
use crate::process;

/// sigaction(2): the mapping does not allow it. (libc has no name for it.)
const SEGV_ACCERR: c_int = 2;
/// Intel's manual, volume 3, 4.7: the page fault's error code, of a write.
const WRITE: i64 = 2;
/// The same, 2.3: the flag by which the processor stops behind the next instruction.
const TRAP_FLAG: i64 = 1 << 8;
/// Where the kernel keeps general registers, by their numbers in instructions.
const REGISTERS: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];
/// The card's work is done on stacks of so many bytes and more.
const STACK_MIN: usize = 256 << 10;

/// One instruction that uses a page is being executed.
#[derive(Clone, Copy)]
struct Step {
    page: usize,
    /// What else is allowed there.
    protection: c_int,
    blocked_traps: bool,
}

thread_local! {
    /// The calling thread's.
    static STEP: Cell<Option<Step>> = const { Cell::new(None) };
}

/// Has faults come here first.
///
/// # Errors
/// What the kernel says of the handlers.
pub(super) fn install() -> io::Result<()> {
    for (signal, handler) in [(SIGSEGV, on_fault as *const ()), (SIGTRAP, on_step as *const ())] {
        // SAFETY: all of an action is integers, for which zero is a value; the calls get valid actions, and handlers that are never unloaded.
        unsafe {
            let (mut action, mut before): (Action, Action) = (mem::zeroed(), mem::zeroed());
            action.sa_sigaction = handler as sighandler_t;
            action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
            // No handler of the program's may ring while this one has the card's lock.
            action.sa_mask = all_but_faults();
            if next::sigaction(signal, &raw const action, &raw mut before) != 0 {
                return Err(io::Error::last_os_error());
            }
            if let Some(own) = actions::own(signal) {
                own.take(&before);
            }
        }
    }
    // SAFETY: a set is plain words, for which zero is a value, and an empty set.
    unsafe {
        let mut fault: sigset_t = mem::zeroed();
        libc::sigaddset(&raw mut fault, SIGSEGV);
        next::pthread_sigmask(SIG_UNBLOCK, &raw const fault, ptr::null_mut());
    }
    Ok(())
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) {
    // SAFETY: what the kernel gave.
    let is_ours = errno::keeping(|| unsafe { (*info).si_code == SEGV_ACCERR && is_done((*info).si_addr().addr(), &mut *context) });
    if !is_ours && let Some(own) = actions::own(signal) {
        // (The one instruction has failed for another reason: it is the program's again.)
        // SAFETY: as above.
        unsafe {
            end_step(&mut *context);
            own.call(signal, info, context);
        }
    }
}

extern "C" fn on_step(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) {
    let page = STEP.get().and_then(|step| page_of(step.page));
    // SAFETY: what the kernel gave.
    let was_ours = errno::keeping(|| unsafe { end_step(&mut *context) });
    match actions::own(signal) {
        _ if was_ours => match page {
            Some((_, CLOCK)) | None => {}
            Some(_) => errno::keeping(|| process::looked_for(has_room())),
        },
        // SAFETY: what the kernel gave.
        Some(own) => unsafe { own.call(signal, info, context) },
        None => {}
    }
}

/// Whether the fault was a write to a register page, or a read of the clock, and has been done, or can be done now.
fn is_done(address: usize, context: &mut ucontext_t) -> bool {
    let Some((page, number)) = page_of(address) else { return false };
    let is_write = context.uc_mcontext.gregs[libc::REG_ERR as usize] & WRITE != 0;
    match (number, is_write) {
        (CLOCK, true) | (..u32::MAX, false) => return false,
        (CLOCK, false) if process::clock_is_read() => step(page, (libc::PROT_READ, libc::PROT_NONE), context),
        (CLOCK, false) => discard(page),
        (_, true) => write(address, (page, number), context),
    }
    true
}

/// Does a write.
fn write(address: usize, (page, number): (usize, u32), context: &mut ucontext_t) {
    let registers = &mut context.uc_mcontext.gregs;
    let at = registers[libc::REG_RIP as usize];
    let register = |number: u8| registers[REGISTERS[usize::from(number)] as usize].cast_unsigned();
    // SAFETY: the instruction was about to be executed.
    let store = decode(unsafe { code_at(at as usize) }, register);
    match store.filter(|store| address % PAGE + store.bytes().len() <= PAGE) {
        Some(store) if process::stored(number, address % PAGE, store.bytes(), has_room()) => {
            registers[libc::REG_RIP as usize] += store.len as i64;
        }
        None if process::has_page(number) => step(page, (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ), context),
        _ => discard(page),
    }
}

/// Has one instruction executed, with the page open to it, and not to those behind it.
fn step(page: usize, (open, protection): (c_int, c_int), context: &mut ucontext_t) {
    protect(page, open);
    // SAFETY: the kernel filled in the set; the calls read and change it.
    let blocked_traps = unsafe {
        let blocked = libc::sigismember(&raw const context.uc_sigmask, SIGTRAP) == 1;
        libc::sigdelset(&raw mut context.uc_sigmask, SIGTRAP);
        blocked
    };
    context.uc_mcontext.gregs[libc::REG_EFL as usize] |= TRAP_FLAG;
    // (If another thread has closed the page again meanwhile, this comes once more.)
    let blocked_traps = STEP.get().map_or(blocked_traps, |before| before.blocked_traps);
    STEP.set(Some(Step { page, protection, blocked_traps }));
}

/// The instruction has been executed, or will not be. Whether there was one.
fn end_step(context: &mut ucontext_t) -> bool {
    let Some(Step { page, protection, blocked_traps }) = STEP.take() else { return false };
    context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG;
    if blocked_traps {
        // SAFETY: the kernel filled in the set.
        unsafe { libc::sigaddset(&raw mut context.uc_sigmask, SIGTRAP) };
    }
    if page_of(page).is_some() {
        protect(page, protection);
    }
    true
}

fn protect(page: usize, protection: c_int) {
    // SAFETY: a register page, which the program has mapped.
    unsafe { libc::syscall(libc::SYS_mprotect, page, PAGE, libc::c_long::from(protection)) };
}

/// Nobody looks at the page any more: it has become memory like any other, and the card's own goes. (In a forked child, it is the parent's.)
fn discard(page: usize) {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    let [protection, flags, none] = [protection, flags, -1].map(libc::c_long::from);
    // SAFETY: it takes the place of a page that the program has mapped, and that means nothing any more.
    unsafe { libc::syscall(libc::SYS_mmap, page, PAGE, protection, flags, none, 0 as libc::c_long) };
    // (Afterwards: a thread that faults in between is to find that it was one.)
    super::forget(ptr::without_provenance_mut::<c_void>(page), PAGE);
}

/// Whether the handler's stack is large enough for the card's work.
fn has_room() -> bool {
    // SAFETY: the call fills in a place of this function's.
    unsafe {
        let mut stack: libc::stack_t = mem::zeroed();
        libc::sigaltstack(ptr::null(), &raw mut stack);
        stack.ss_flags & libc::SS_ONSTACK == 0 || stack.ss_size >= STACK_MIN
    }
}
