//! How a C declaration is written down once, and becomes a Rust item and a row of the table that the tests hold against the headers.

/// Structures, unions, enumerations and constants of C.
///
/// A type is C's of the same name, unless `as "…"` gives C's words for it; `as ""` marks the type of a member without a name, whose own
/// members C counts among those of the structure around it. A C enumeration becomes an alias of its integer, and constants.
///
/// With `cfg(test)` there is a `TABLE` of all of it beside the items.
macro_rules! c_items {
    (
        $(types {
            $($(#[$type_meta:meta])* pub $kind:ident $type:ident $(as $c:literal)? {
                $($(#[$field_meta:meta])* pub $field:ident: $field_type:ty,)*
            })*
        })?
        $(enums {
            $($(#[$enum_meta:meta])* pub enum $enum:ident: $int:ident {
                $($(#[$variant_meta:meta])* $variant:ident = $variant_value:expr,)*
            })*
        })?
        $(constants {
            $($(#[$const_meta:meta])* pub const $const:ident: $const_type:ty = $value:expr;)*
        })?
    ) => {
        $($(
            $(#[$type_meta])*
            #[repr(C)]
            pub $kind $type {
                $($(#[$field_meta])* pub $field: $field_type,)*
            }

            impl Default for $type {
                /// All bytes zero: no number, no pointer, no function.
                fn default() -> Self {
                    // SAFETY: every field is an integer, a raw pointer, an optional function, a lock of libc, or made of these:
                    // all bytes zero is a value of each.
                    unsafe { std::mem::zeroed() }
                }
            }
        )*)?
        $($(
            $(#[$enum_meta])*
            pub type $enum = $int;
            $($(#[$variant_meta])* pub const $variant: $enum = $variant_value;)*
        )*)?
        $($($(#[$const_meta])* pub const $const: $const_type = $value;)*)?

        /// What this module takes from C.
        #[cfg(test)]
        #[allow(clippy::cast_lossless, clippy::unnecessary_cast, reason = "that depends on a constant's type")]
        pub(crate) const TABLE: $crate::tests::table::Table = $crate::tests::table::Table {
            types: &[$($($crate::tests::table::Type {
                name: stringify!($type),
                c: c_name!($kind $type $(as $c)?),
                size: size_of::<$type>(),
                align: align_of::<$type>(),
                fields: &[$($crate::tests::table::Field {
                    name: stringify!($field),
                    of: stringify!($field_type),
                    offset: std::mem::offset_of!($type, $field),
                    size: size_of::<$field_type>(),
                },)*],
            },)*)?],
            enums: &[$($((stringify!($enum), size_of::<$enum>()),)*)?],
            constants: &[
                $($($((stringify!($variant), $variant as i64 as u64),)*)*)?
                $($((stringify!($const), $const as u64),)*)?
            ],
        };
    };
}

/// C's words for a type.
#[cfg(test)]
macro_rules! c_name {
    ($kind:ident $type:ident) => {
        concat!(stringify!($kind), " ", stringify!($type))
    };
    ($kind:ident $type:ident as $c:literal) => {
        $c
    };
}

/// Structures of which only pointers are used.
macro_rules! opaque {
    ($($(#[$meta:meta])* pub struct $type:ident;)*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(Debug)]
            pub struct $type {
                opaque: [u8; 0],
                /// Neither `Send` nor `Sync` nor to be moved, for nothing is known of it.
                marker: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
            }
        )*
    };
}

/// Functions that call an operation which an object has a pointer to, with the object itself as the first argument.
macro_rules! forward {
    (
        $object:ident: $type:ident;
        $($(#[$meta:meta])* pub fn $name:ident = $op:ident($($arg:ident: $arg_type:ty),*) $(-> $result:ty)?;)*
    ) => {
        $(
            $(#[$meta])*
            #[inline]
            pub unsafe fn $name($object: *mut $type $(, $arg: $arg_type)*) $(-> $result)? {
                // SAFETY: the caller's object is the library's, which filled in its operations.
                unsafe {
                    match (*$object).$op {
                        Some(op) => op($object $(, $arg)*),
                        None => $crate::absent(stringify!($op)),
                    }
                }
            }
        )*
    };
}
