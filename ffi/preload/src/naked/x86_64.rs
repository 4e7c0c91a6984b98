//! dprintf(3) takes what it is given and calls its sibling with a va_list (System V ABI for x86-64, 3.5.7): the registers that may
//! hold arguments are saved where a `va_list` looks for them.

#[doc(hidden)]
#[macro_export]
macro_rules! variadic_to {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal, $named:literal, $list:literal, $callee:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As dprintf(3).
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(export_name = $symbol))]
        pub unsafe extern "C-unwind" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "sub rsp, 216",
                ".cfi_adjust_cfa_offset 216",
                "mov [rsp + 48], rdx",
                "mov [rsp + 56], rcx",
                "mov [rsp + 64], r8",
                "mov [rsp + 72], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 80], xmm0",
                "movaps [rsp + 96], xmm1",
                "movaps [rsp + 112], xmm2",
                "movaps [rsp + 128], xmm3",
                "movaps [rsp + 144], xmm4",
                "movaps [rsp + 160], xmm5",
                "movaps [rsp + 176], xmm6",
                "movaps [rsp + 192], xmm7",
                "2:",
                "lea rax, [rsp + 224]",
                "mov dword ptr [rsp], {named}",
                "mov dword ptr [rsp + 4], 48",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 32]",
                "mov [rsp + 16], rax",
                concat!("mov ", $list, ", rsp"),
                "call {callee}",
                "add rsp, 216",
                ".cfi_adjust_cfa_offset -216",
                "ret",
                ".cfi_endproc",
                named = const $named * 8,
                callee = sym $callee,
            )
        }
    )*};
}

/// The list is the third argument.
#[doc(hidden)]
#[macro_export]
macro_rules! variadic {
    ($(#[$doc:meta])* $name:ident = $symbol:literal, $named:literal, $callee:ident;) => {
        $crate::variadic_to! { $(#[$doc])* $name = $symbol, $named, "rdx", $callee; }
    };
}

/// The list is the fourth argument.
#[doc(hidden)]
#[macro_export]
macro_rules! variadic_checked {
    ($(#[$doc:meta])* $name:ident = $symbol:literal, $named:literal, $callee:ident;) => {
        $crate::variadic_to! { $(#[$doc])* $name = $symbol, $named, "rcx", $callee; }
    };
}

/// A function that is another, with whatever arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! tail_call {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal, $callee:path;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As libc's function of that name.
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(export_name = $symbol))]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "jmp {callee}",
                ".cfi_endproc",
                callee = sym $callee,
            )
        }
    )*};
}
