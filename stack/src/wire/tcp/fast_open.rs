//! TCP Fast Open's option (RFC 7413 s4.1.1): a cookie, or the request for one, on a SYN or a SYN-ACK; in its own form, or in that of the experiments before it
//! (RFC 6994), which some hosts still speak.

/// The option's kind.
pub(super) const KIND: u8 = 34;
/// The kind of experiments, and the number of this one.
pub(super) const EXPERIMENT_KIND: u8 = 254;
pub(super) const EXPERIMENT: u16 = 0xf989;

/// A cookie: 4 to 16 bytes, an even number of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    bytes: [u8; Self::LEN_MAX],
    /// Invariant: even, 4 to 16; the bytes behind are zero.
    len: u8,
}

impl Cookie {
    /// The most bytes of a cookie.
    pub const LEN_MAX: usize = 16;
    const LEN_MIN: usize = 4;

    /// `None`: no cookie is so long.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let is_one = (Self::LEN_MIN..=Self::LEN_MAX).contains(&bytes.len()) && bytes.len().is_multiple_of(2);
        let mut cookie = Self { bytes: [0; Self::LEN_MAX], len: bytes.len() as u8 };
        cookie.bytes.get_mut(..bytes.len()).filter(|_| is_one)?.copy_from_slice(bytes);
        Some(cookie)
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// What the option says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastOpen {
    /// The cookie; `None`: the request for one.
    pub cookie: Option<Cookie>,
    /// In the form of the experiments.
    pub is_experimental: bool,
}

impl FastOpen {
    /// Reads an option of that kind. `None`: it is another option, or ill-formed.
    pub(super) fn parse(kind: u8, value: &[u8]) -> Option<Self> {
        let (value, is_experimental) = match (kind, value) {
            (KIND, value) => (value, false),
            (EXPERIMENT_KIND, [a, b, value @ ..]) if u16::from_be_bytes([*a, *b]) == EXPERIMENT => (value, true),
            _ => return None,
        };
        let cookie = if value.is_empty() { None } else { Some(Cookie::new(value)?) };
        Some(Self { cookie, is_experimental })
    }

    /// The bytes before the cookie, and how many there are.
    pub(super) fn head(&self) -> ([u8; 4], usize) {
        let len = self.cookie.map_or(0, |cookie| cookie.len);
        let [a, b] = EXPERIMENT.to_be_bytes();
        match self.is_experimental {
            false => ([KIND, 2 + len, 0, 0], 2),
            true => ([EXPERIMENT_KIND, 4 + len, a, b], 4),
        }
    }

    /// The option's bytes, without padding.
    pub(super) fn len(&self) -> usize {
        self.head().1 + self.cookie.map_or(0, |cookie| usize::from(cookie.len))
    }
}
