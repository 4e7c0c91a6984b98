//! dlopen(3) and dlsym(3), and how a library's functions are written down.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use crate::LoadError;

/// A function that a library is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name.
    pub name: &'static str,
    /// Whether libraries of some age lack it.
    pub optional: bool,
}

/// A library that was opened. It is never closed.
pub(crate) struct Library<'a> {
    path: &'a CStr,
    handle: NonNull<c_void>,
}

impl<'a> Library<'a> {
    pub(crate) fn open(path: &'a CStr) -> Result<Self, LoadError> {
        // SAFETY: the path is a C string. The initialisers of rdma-core's libraries may run at any time, in any thread.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match NonNull::new(handle) {
            Some(handle) => Ok(Self { path, handle }),
            None => Err(LoadError::Library { library: text(path), reason: reason() }),
        }
    }

    /// The function `name`, in the version that the linker would choose.
    pub(crate) fn required(&self, name: &'static CStr) -> Result<NonNull<c_void>, LoadError> {
        // dlsym(3) may well give null without an error, but not of a function.
        _ = reason();
        self.optional(name).ok_or_else(|| LoadError::Symbol {
            library: text(self.path),
            symbol: name.to_str().unwrap_or_default(),
            reason: reason(),
        })
    }

    /// The function `name`, if the library has it.
    pub(crate) fn optional(&self, name: &'static CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is open, and the name a C string.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }
}

fn text(path: &CStr) -> String {
    path.to_string_lossy().into_owned()
}

/// The dynamic loader's words for what failed last in this thread; that is forgotten then.
fn reason() -> String {
    // SAFETY: the call has no conditions; its string is valid until this thread's next call of the loader.
    let words: *mut c_char = unsafe { libc::dlerror() };
    if words.is_null() {
        return "the dynamic loader gives no reason".to_owned();
    }
    // SAFETY: it is a C string, and copied at once.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
}

/// A structure of a library's functions. Each is
/// - `required fn`: a method, and a field that is its pointer; without it the library cannot be used;
/// - `raw fn`: the same without the method, for the headers put an inline function of that name in its place;
/// - `optional fn`: a field that is `None` where the library lacks it.
macro_rules! library {
    (
        $(#[$library_meta:meta])*
        pub struct $library:ident in $file:literal {
            $($(#[$meta:meta])* $kind:ident fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*
        }
    ) => {
        $(#[$library_meta])*
        #[derive(Debug)]
        pub struct $library {
            $($(#[$meta])* pub $name: field!($kind: unsafe extern "C" fn($($arg: $type),*) $(-> $result)?),)*
        }

        impl $library {
            /// The library's file name.
            pub const FILE: &'static std::ffi::CStr = $file;

            /// The functions that it is asked for.
            pub const SYMBOLS: &'static [$crate::Symbol] =
                &[$($crate::Symbol { name: stringify!($name), optional: is_optional!($kind) },)*];

            /// Types of the functions, in Rust's words.
            #[cfg(test)]
            pub(crate) const SIGNATURES: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), stringify!(Option<unsafe extern "C" fn($($type),*) $(-> $result)?>)),)*];

            /// The library, opened by its file name once for this process.
            ///
            /// # Errors
            /// It is not there, or lacks a function that is not optional; later calls say the same.
            pub fn get() -> Result<&'static Self, &'static $crate::LoadError> {
                static OPENED: std::sync::OnceLock<Result<$library, $crate::LoadError>> = std::sync::OnceLock::new();
                OPENED.get_or_init(|| Self::open(Self::FILE)).as_ref()
            }

            /// Opens the library that `path` names, in the way of dlopen(3). It must be rdma-core's, for the types of its
            /// functions are taken on trust.
            ///
            /// # Errors
            /// It is not there, or lacks a function that is not optional.
            pub fn open(path: &std::ffi::CStr) -> Result<Self, $crate::LoadError> {
                let library = $crate::load::library::Library::open(path)?;
                // SAFETY: that the functions have the types which the headers declare is what the library's name stands for.
                unsafe { Self::of(|name| library.required(name), |name| library.optional(name)) }
            }

            /// A library of somebody else's functions, by their names: those that it must have, and those that are optional. (For tests without rdma-core.)
            ///
            /// # Errors
            /// The first error of `required`.
            ///
            /// # Safety
            /// Each address is a function's, of the type that the headers declare for its name.
            pub unsafe fn of(
                required: impl Fn(&'static std::ffi::CStr) -> Result<std::ptr::NonNull<std::ffi::c_void>, $crate::LoadError>,
                optional: impl Fn(&'static std::ffi::CStr) -> Option<std::ptr::NonNull<std::ffi::c_void>>,
            ) -> Result<Self, $crate::LoadError> {
                Ok(Self { $($name: {
                    const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name with a NUL"),
                    };
                    let symbol = look_up!($kind: required, optional, NAME);
                    // SAFETY: a function's address is a function pointer, or none where it is optional; the rest is the caller's promise.
                    unsafe {
                        std::mem::transmute::<
                            look_up_type!($kind),
                            field!($kind: unsafe extern "C" fn($($arg: $type),*) $(-> $result)?),
                        >(symbol)
                    }
                },)* })
            }

            /// The optional functions that this library lacks, by name.
            pub fn absent(&self) -> Vec<&'static str> {
                let mut absent = Vec::new();
                $(if is_absent!($kind: self.$name) { absent.push(stringify!($name)); })*
                absent
            }

            $(method! { $kind $(#[$meta])* fn $name($($arg: $type),*) $(-> $result)?; })*
        }
    };
}

macro_rules! field {
    (optional: $function:ty) => { Option<$function> };
    ($kind:ident: $function:ty) => { $function };
}

macro_rules! look_up_type {
    (optional) => { Option<std::ptr::NonNull<std::ffi::c_void>> };
    ($kind:ident) => { std::ptr::NonNull<std::ffi::c_void> };
}

macro_rules! look_up {
    (optional: $required:ident, $optional:ident, $name:ident) => {
        $optional($name)
    };
    ($kind:ident: $required:ident, $optional:ident, $name:ident) => {
        $required($name)?
    };
}

macro_rules! is_optional {
    (optional) => {
        true
    };
    ($kind:ident) => {
        false
    };
}

macro_rules! is_absent {
    (optional: $function:expr) => {
        $function.is_none()
    };
    ($kind:ident: $function:expr) => {
        false
    };
}

macro_rules! method {
    (required $(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;) => {
        $(#[$meta])*
        #[inline]
        pub unsafe fn $name(&self $(, $arg: $type)*) $(-> $result)? {
            // SAFETY: the caller promises what the function's manual page asks for.
            unsafe { (self.$name)($($arg),*) }
        }
    };
    ($kind:ident $(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;) => {};
}
