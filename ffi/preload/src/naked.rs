//! Functions that have no signature in Rust: dprintf(3), whose arguments are of any number, and vfork(2), which returns twice. An exported
//! one is a few instructions, which go on to the functions that have one.

cfg_if::cfg_if! {
    if #[cfg(target_arch = "x86_64")] {
        mod x86_64;
    } else if #[cfg(target_arch = "aarch64")] {
        mod aarch64;
    }
}

/// Makes these functions, where `vdprintf` and `vdprintf_chk` are in scope.
#[doc(hidden)]
#[macro_export]
macro_rules! without_a_signature {
    () => {
        $crate::variadic! {
            /// dprintf(3).
            dprintf = "dprintf", 2, vdprintf;
        }
        $crate::variadic_checked! {
            /// dprintf(3), fortified.
            dprintf_chk = "__dprintf_chk", 3, vdprintf_chk;
        }
        $crate::tail_call! {
            /// vfork(2).
            vfork = "vfork", $crate::vfork::vfork;
            /// vfork(2), by glibc's other name for it.
            vfork_as_libc_names_it = "__vfork", $crate::vfork::vfork;
        }
    };
}
