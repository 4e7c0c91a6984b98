//! The 32 bits that come with a write, as its immediate data: three of operation, 29 of what it is about.

const DATA_MASK: u32 = 0x1fff_ffff;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// So many bytes were written to where the last ones ended.
    Data(u32),
    /// Of a direct write's own request: so many bytes. Never on the wire.
    Write(u32),
    /// How many messages there may be in all, modulo 2^16; and the next piece of the target may have been written.
    Sgl(u16),
    /// This entry of the table of mappings was written.
    IomapSgl(u16),
    /// See there.
    Control(Control),
}

/// What a control message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// No more is sent, and no more is read.
    Disconnect,
    /// Of a keepalive's own request. Never on the wire.
    Keepalive,
    /// No more is sent.
    Shutdown,
    /// Unknown, and ignored.
    Other(u32),
}

impl Message {
    /// The most bytes in one data message.
    pub const DATA_MAX: u32 = DATA_MASK;

    /// Reads it. The operations that are reserved mean data, as they do to librdmacm.
    pub const fn parse(word: u32) -> Self {
        let data = word & DATA_MASK;
        match word >> 29 {
            2 => Self::Write(data),
            4 => Self::Sgl(data as u16),
            6 => Self::IomapSgl(data as u16),
            7 => Self::Control(match data {
                0 => Control::Disconnect,
                1 => Control::Keepalive,
                2 => Control::Shutdown,
                other => Control::Other(other),
            }),
            _ => Self::Data(data),
        }
    }

    /// Its bits.
    pub const fn word(self) -> u32 {
        let (op, data) = match self {
            Self::Data(len) => (0, len),
            Self::Write(len) => (2, len),
            Self::Sgl(limit) => (4, limit as u32),
            Self::IomapSgl(index) => (6, index as u32),
            Self::Control(control) => (
                7,
                match control {
                    Control::Disconnect => 0,
                    Control::Keepalive => 1,
                    Control::Shutdown => 2,
                    Control::Other(other) => other,
                },
            ),
        };
        op << 29 | data & DATA_MASK
    }
}
