//! What the crate takes from C, as data.

/// What a module takes from C.
pub(crate) struct Table {
    pub(crate) types: &'static [Type],
    /// Name and size, bytes.
    pub(crate) enums: &'static [(&'static str, usize)],
    /// Name and value; negative ones in two's complement.
    pub(crate) constants: &'static [(&'static str, u64)],
}

/// A structure or union.
#[derive(Clone, Copy)]
pub(crate) struct Type {
    pub(crate) name: &'static str,
    /// C's words for it; empty for the type of a member without a name.
    pub(crate) c: &'static str,
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) fields: &'static [Field],
}

/// A field of one.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// Its type, in Rust's words.
    pub(crate) of: &'static str,
    pub(crate) offset: usize,
    pub(crate) size: usize,
}
