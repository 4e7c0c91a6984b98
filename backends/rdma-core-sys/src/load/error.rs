//! Why a library could not be opened.

/// Why a library could not be opened. The system's fault: rdma-core is not installed, or is too old.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The library is not there, or not usable.
    #[error("{library} cannot be loaded: {reason}")]
    Library {
        /// Its file name, or path.
        library: String,
        /// The dynamic loader's words.
        reason: String,
    },
    /// The library is there, and lacks a function that every usable release has.
    #[error("{library} has no function {symbol}: {reason}")]
    Symbol {
        /// The library's file name, or path.
        library: String,
        /// The function's name.
        symbol: &'static str,
        /// The dynamic loader's words.
        reason: String,
    },
}
