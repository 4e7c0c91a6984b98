//! Lending received bytes to a program: what zero-copy receive, receive callbacks and SocketXtreme ask of a device's handles.

use super::RxBuffer;

/// A handle on received bytes that a program may be shown where they lie.
///
/// The bytes stay there, and (their sender's own doing apart) as they are, until the last handle is dropped. A program may write to
/// what it was lent, as it could on a kernel's copy: nobody but itself sees that.
pub trait LendBuffer: RxBuffer {
    /// Where the bytes lie: address and length of each piece, in order. Pieces are not empty.
    fn for_each_piece(&self, piece: impl FnMut(*const u8, usize));

    /// Where all of the bytes lie, if that is one place: as [`LendBuffer::for_each_piece`] would tell, at less cost. `None`: perhaps more.
    fn only_piece(&self) -> Option<(*const u8, usize)>;

    /// To be called before the program is told where the bytes lie. On a device whose bytes are in memory that the program cannot write,
    /// they stay there and are copied by the first write ([`LendBuffer::copy_on_write`]), or are copied now.
    fn make_writable(&mut self);

    /// Takes over what the program has written to bytes that were lent: whoever reads through this handle sees it.
    fn take_written(&mut self);

    /// Whether a program has written to what it was lent where that is a sender's memory, so that copies are lent from now on; or
    /// [`LendBuffer::lend_copies`] was called. Of a device whose bytes are the process's own: never.
    fn are_copies_lent() -> bool {
        false
    }

    /// From now on, bytes in a sender's memory are copied before they are lent.
    fn lend_copies() {}

    /// To be asked by who handles SIGSEGV, with the address of a write that was not allowed (`SEGV_ACCERR` in sigaction(2)): if it lies in what
    /// was lent, the write is allowed from now on, and the handler is to return to it. Async-signal-safe. `false`: no such address.
    fn copy_on_write(_address: usize) -> bool {
        false
    }

    /// Bytes of the first so many pieces.
    fn leading(&self, pieces: usize) -> usize {
        let (mut count, mut bytes) = (0, 0);
        self.for_each_piece(|_, len| {
            if count < pieces {
                count += 1;
                bytes += len;
            }
        });
        bytes
    }
}
