//! TCP: listeners, streams and their halves.

mod halves;
mod listener;
mod stream;

pub use halves::{OwnedReadHalf, OwnedWriteHalf, ReuniteError};
pub use listener::TcpListener;
pub use stream::TcpStream;
