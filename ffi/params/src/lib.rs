//! What a user sets: the environment's VMA_* and RINGWAY_* parameters, and the rules of libvma.conf.
//!
//! `libvma.so` obeys them and `ringway doctor` explains them, so both read them here. [`TABLE`] has a row for every parameter that
//! libvma documents (vma.md section 3), heeded here or not, and is all there is: what is read, refused, shown, printed as a manual page
//! and tested follows from it. A value that cannot be understood means the default and one warning; nothing here fails, logs or prints.
//!
//! - [`kind`]: what a value may look like; `table`: the rows; [`spec`]: VMA_SPEC's presets
//! - [`layout`]: the releases of libvma's Extra API
//! - `misspelt`: variables that are almost parameters
//! - [`settings`]: what an environment comes to, and where each value is from
//! - [`man`]: the manual page, and PARAMETERS.md
//! - [`rules`]: libvma.conf, its grammar and which rule decides
#![deny(unsafe_code)]

pub mod kind;
pub mod layout;
pub mod man;
mod misspelt;
pub mod rules;
pub mod settings;
pub mod spec;
mod table;

pub use kind::{Kind, Level};
pub use layout::Layout;
pub use settings::{Setting, Settings, Source};
pub use table::{Effect, Id, Row, TABLE};
