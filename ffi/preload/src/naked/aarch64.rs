//! dprintf(3) takes what it is given and calls its sibling with a va_list (Procedure Call Standard for the Arm 64-bit Architecture,
//! appendix B, "Variable argument lists"): the registers that may hold arguments are saved where a `va_list` looks for them.

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
                // From the stack pointer up: the caller's frame and return address (16 bytes), the list (32), the general registers (64), and
                // those of vectors (128).
                "stp x29, x30, [sp, #-240]!",
                ".cfi_adjust_cfa_offset 240",
                ".cfi_rel_offset x29, 0",
                ".cfi_rel_offset x30, 8",
                "mov x29, sp",
                "stp x0, x1, [sp, #48]",
                "stp x2, x3, [sp, #64]",
                "stp x4, x5, [sp, #80]",
                "stp x6, x7, [sp, #96]",
                "stp q0, q1, [sp, #112]",
                "stp q2, q3, [sp, #144]",
                "stp q4, q5, [sp, #176]",
                "stp q6, q7, [sp, #208]",
                // Where arguments on the stack begin, and where the saved registers end.
                "add x9, sp, #240",
                "add x10, sp, #112",
                "stp x9, x10, [sp, #16]",
                "str x9, [sp, #32]",
                // How far before those ends the first argument without a name is.
                "mov w9, #{named}",
                "mov w10, #-128",
                "stp w9, w10, [sp, #40]",
                concat!("add ", $list, ", sp, #16"),
                "bl {callee}",
                "ldp x29, x30, [sp], #240",
                ".cfi_adjust_cfa_offset -240",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "ret",
                ".cfi_endproc",
                named = const ($named - 8) * 8,
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
        $crate::variadic_to! { $(#[$doc])* $name = $symbol, $named, "x2", $callee; }
    };
}

/// The list is the fourth argument.
#[doc(hidden)]
#[macro_export]
macro_rules! variadic_checked {
    ($(#[$doc:meta])* $name:ident = $symbol:literal, $named:literal, $callee:ident;) => {
        $crate::variadic_to! { $(#[$doc])* $name = $symbol, $named, "x3", $callee; }
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
                // (bti c)
                "hint #34",
                "b {callee}",
                ".cfi_endproc",
                callee = sym $callee,
            )
        }
    )*};
}
