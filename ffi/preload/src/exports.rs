//! The library's own functions, and the macro that makes them.

use crate::types::*;

/// The functions that a library exports, as its program calls them: what [`interpose!`](crate::interpose) implements. Whoever needs one of
/// them in the library calls it here, and so the one copy that there is.
pub trait Exports {
    crate::functions!(exports []);
}

/// Makes the C symbols of a library, `$library`, which implements [`Intercept`](crate::Intercept), and what runs when it is loaded. It goes
/// into the root crate of a cdylib, once; the functions come to lie in the module where it stands. In unit tests there are no symbols: the
/// test harness itself would be interposed.
#[macro_export]
macro_rules! interpose {
    ($library:ident) => {
        pub use exported::*;

        /// The C symbols. Each has the signature, the results and the errno of the libc function of its name.
        #[allow(unused_imports, reason = "not every signature has every type")]
        mod exported {
            use $crate::types::*;

            use super::$library;

            $crate::functions!(export[$library]);
            $crate::without_a_signature!();

            extern "C" fn at_load() {
                $crate::load::<$library>();
            }

            #[used]
            #[unsafe(link_section = ".init_array")]
            static AT_LOAD: extern "C" fn() = at_load;
        }
    };
}
