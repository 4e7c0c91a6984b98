//! The handlers of SIGSEGV and SIGTRAP. A fault at a register page is a doorbell, one at the clock a look at it; every other one is the program's own.
//!
//! SIGSEGV comes at the very instruction that rings, so that what holds elsewhere in handlers does not here: the thread is in no call of libc's, unless the program
//! rings in a handler of its own. So the card's work is done at once. On an alternate stack, which may be small, it is left to the card's thread.

use core::cell::Cell;
use core::ffi::c_int;
use core::mem;
use core::ptr;
use std::io;

use libc::{SA_ONSTACK, SA_RESTART, SA_SIGINFO, SIG_UNBLOCK, SIGSEGV, SIGTRAP, sighandler_t, siginfo_t, sigset_t, ucontext_t};
use ringway_host::all_but_faults;
use ringway_preload::types::Action;
use ringway_preload::{errno, next};

use super::actions::{bit, bits, set_of};
use super::x86_64::{Values, code_at, decode};
use super::{CLOCK, GONE, actions, page_of};
use crate::engine::PAGE;
use crate::process;

/// sigaction(2): the mapping does not allow it. (libc has no name for it.)
const SEGV_ACCERR: c_int = 2;
/// The same: the processor has stopped behind an instruction.
const TRAP_TRACE: c_int = 2;
/// Intel's manual, volume 2, 2.3.11: bytes of an instruction at most.
const INSTRUCTION_MAX: usize = 15;
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
/// The signal by which glibc has a thread end itself (pthread_cancel(3)), the first of its own.
const SIGCANCEL: c_int = 32;
/// The card's work is done on stacks of so many bytes and more.
const STACK_MIN: usize = 256 << 10;

/// One instruction that uses a page is being executed.
#[derive(Clone, Copy)]
struct Step {
    page: usize,
    /// Where the instruction is.
    at: usize,
    blocked_traps: bool,
}

thread_local! {
    /// The calling thread's.
    static STEP: Cell<Option<Step>> = const { Cell::new(None) };
    /// Its last fault at a page that is the card's no more: where, and by which instruction.
    static LATE: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
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
            // No handler of the program's may ring while this one has the card's lock, nor is a thread to be cancelled meanwhile that lets itself be at any instruction. (To disable that here would be to
            // act on a request when it is enabled again, on this stack.)
            action.sa_mask = set_of(bits(&all_but_faults()) | bit(SIGCANCEL));
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
    // SAFETY: what the kernel gave. (A breakpoint, or a signal that somebody sent, is none of a step's: sigaction(2).)
    let was_ours = errno::keeping(|| unsafe { (*info).si_code == TRAP_TRACE && end_step(&mut *context) });
    match actions::own(signal) {
        _ if was_ours => match page {
            Some((_, CLOCK | GONE)) | None => {}
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
        (GONE, _) => return is_late(address, at(context)),
        (CLOCK, true) | (..GONE, false) => return false,
        (CLOCK, false) if process::clock_is_read() => step(page, context),
        (CLOCK, false) => discard(page),
        (_, true) => write(address, (page, number), context),
    }
    true
}

/// A fault at a page that has become memory like any other: it came before that, or is the program's own, which it is if it comes once more.
fn is_late(address: usize, by: usize) -> bool {
    LATE.replace((address, by)) != (address, by)
}

/// Where the instruction is that is executed next.
fn at(context: &ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

/// Does a write.
fn write(address: usize, (page, number): (usize, u32), context: &mut ucontext_t) {
    // SAFETY: the instruction was about to be executed.
    let store = decode(unsafe { code_at(at(context)) }, &Registers(context));
    match store.filter(|store| address % PAGE + store.bytes().len() <= PAGE) {
        Some(store) if process::stored(number, address % PAGE, store.bytes(), has_room()) => {
            context.uc_mcontext.gregs[libc::REG_RIP as usize] += store.len as i64;
        }
        None if process::has_page(number) => step(page, context),
        _ => discard(page),
    }
}

/// What an interrupted thread's registers have.
struct Registers<'a>(&'a ucontext_t);

impl Values for Registers<'_> {
    fn general(&self, number: u8) -> u64 {
        self.0.uc_mcontext.gregs[REGISTERS[usize::from(number)] as usize].cast_unsigned()
    }

    fn vector(&self, number: u8) -> Option<[u8; 16]> {
        // SAFETY: null, or what the kernel has saved.
        let saved = unsafe { self.0.uc_mcontext.fpregs.as_ref() }?;
        let words = saved._xmm.get(usize::from(number))?.element;
        Some(core::array::from_fn(|byte| words[byte / 4].to_le_bytes()[byte % 4]))
    }
}

/// Has one instruction executed, with the page open to it, and not to those behind it.
fn step(page: usize, context: &mut ucontext_t) {
    let at = at(context);
    // (If another thread has closed the page again meanwhile, the same one comes once more. Another one that was begun never will be executed: a handler has left by siglongjmp.)
    let again = STEP.get().filter(|before| before.at == at);
    if let Some(left) = STEP.get().filter(|before| before.at != at) {
        super::close(left.page);
    }
    super::open(page);
    // SAFETY: the kernel filled in the set; the calls read and change it.
    let blocked_traps = unsafe {
        let blocked = libc::sigismember(&raw const context.uc_sigmask, SIGTRAP) == 1;
        libc::sigdelset(&raw mut context.uc_sigmask, SIGTRAP);
        blocked
    };
    context.uc_mcontext.gregs[libc::REG_EFL as usize] |= TRAP_FLAG;
    let blocked_traps = again.map_or(blocked_traps, |before| before.blocked_traps);
    STEP.set(Some(Step { page, at, blocked_traps }));
}

/// The instruction has been executed, or will not be. Whether it is the one that the thread is at or right behind.
fn end_step(context: &mut ucontext_t) -> bool {
    let Some(Step { page, at: began, blocked_traps }) = STEP.take() else { return false };
    super::close(page);
    // (A string instruction is where it was until the last of its turns.)
    if !(began..=began + INSTRUCTION_MAX).contains(&at(context)) {
        return false;
    }
    context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG;
    if blocked_traps {
        // SAFETY: the kernel filled in the set.
        unsafe { libc::sigaddset(&raw mut context.uc_sigmask, SIGTRAP) };
    }
    true
}

/// Nobody looks at the page any more: it has become memory like any other, and the card's own goes. (In a forked child, it is the parent's.)
fn discard(page: usize) {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    let [protection, flags, none] = [protection, flags, -1].map(libc::c_long::from);
    // SAFETY: it takes the place of a page that the program has mapped, and that means nothing any more.
    unsafe { libc::syscall(libc::SYS_mmap, page, PAGE, protection, flags, none, 0 as libc::c_long) };
    // (Afterwards, and it stays known: a thread that has faulted there already is to find that it was one.)
    super::lose(page);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trap::{forget_all, watch};

    fn context(rip: usize) -> ucontext_t {
        // SAFETY: all of it is integers and pointers, for which zero is a value.
        let mut context: ucontext_t = unsafe { mem::zeroed() };
        context.uc_mcontext.gregs[libc::REG_RIP as usize] = rip as i64;
        context.uc_mcontext.gregs[libc::REG_ERR as usize] = WRITE;
        context
    }

    /// A page that nobody may write to.
    fn page() -> *mut u8 {
        // SAFETY: a new mapping, where the kernel likes.
        let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        page.cast()
    }

    #[test]
    fn a_fault_that_came_before_its_page_was_lost_comes_again_and_is_the_program_s_after_that() {
        let page = page();
        assert!(watch(page.cast(), 3));
        // (Two threads have faulted, and the first of them finds that there is no card.)
        let store = [0x48, 0x89, 0x02]; // mov %rax,(%rdx)
        assert!(is_done(page.addr() + 8, &mut context(store.as_ptr().expose_provenance())));
        // SAFETY: it is writable now.
        unsafe { page.add(8).write_volatile(9) };
        assert!(is_done(page.addr() + 16, &mut context(0x2000)), "it comes again, and succeeds");
        assert!(!is_done(page.addr() + 16, &mut context(0x2000)), "the program has taken the page's protection for its own ends");
        // SAFETY: as above.
        assert_eq!(unsafe { page.add(8).read_volatile() }, 9, "what was written there stays");
        forget_all(page.cast(), PAGE);
        assert!(!is_done(page.addr() + 24, &mut context(0x3000)));
    }

    #[test]
    fn a_step_that_was_left_behind_is_no_other_instruction_s() {
        let (first, second) = (page(), page());
        assert!(watch(first.cast(), 3) && watch(second.cast(), 4));
        step(first.addr(), &mut context(0x1000));
        // SAFETY: it is writable now.
        unsafe { first.write_volatile(1) };
        // (A handler has come in between, and left by siglongjmp. Elsewhere, the program is stepped by itself.)
        let mut elsewhere = context(0x1010);
        elsewhere.uc_mcontext.gregs[libc::REG_EFL as usize] = TRAP_FLAG;
        assert!(!end_step(&mut elsewhere) && elsewhere.uc_mcontext.gregs[libc::REG_EFL as usize] == TRAP_FLAG);
        step(first.addr(), &mut context(0x1000));
        step(second.addr(), &mut context(0x2000));
        let mut behind = context(0x2004);
        behind.uc_mcontext.gregs[libc::REG_EFL as usize] = TRAP_FLAG;
        assert!(end_step(&mut behind) && behind.uc_mcontext.gregs[libc::REG_EFL as usize] == 0);
        let access = |page: *mut u8| {
            let maps = std::fs::read_to_string("/proc/self/maps").expect("the kernel's table");
            let of = |line: &&str| line.split('-').next().is_some_and(|start| usize::from_str_radix(start, 16) == Ok(page.addr()));
            maps.lines().find(of).map(|line| line.split(' ').nth(1).map(str::to_owned))
        };
        for page in [first, second] {
            // (Two pages that lie together are one line.)
            assert!(access(page).flatten().is_none_or(|access| access == "r--p"), "{:?}", access(page));
            forget_all(page.cast(), PAGE);
        }
    }
}
