//! What programs set and get: the options of rsocket(7), with their numbers in Linux's and librdmacm's headers.

use core::time::Duration;

use super::config::{QUEUE_MAX, SEND_LOW_WATER, Sizes};
use super::wire::{from_scale, to_scale};
use crate::error::Error;

/// The level of rsockets' own options.
pub const SOL_RDMA: i32 = 0x1_0000;
const SOL_SOCKET: i32 = 1;
const IPPROTO_TCP: i32 = 6;
const IPPROTO_IPV6: i32 = 41;

/// The most bytes of RDMA_ROUTE: paths of 72 bytes each, of which a connection has one, or two to choose from.
const ROUTE_MAX: usize = 72 * 8;
/// Linux's tcp_keepalive_time.
const KEEPALIVE_DEFAULT: Duration = Duration::from_secs(7200);
/// What TCP_MAXSEG says where no path is known.
const MAXSEG_UNKNOWN: u32 = 2048;

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OptionName {
    /// SO_REUSEADDR: kept, without effect here: connections have no TIME-WAIT.
    ReuseAddress,
    /// SO_ERROR: the last error, once. To get.
    Error,
    /// SO_SNDBUF.
    SendBuffer,
    /// SO_RCVBUF.
    RecvBuffer,
    /// SO_KEEPALIVE.
    KeepAlive,
    /// SO_OOBINLINE: kept; there are no urgent data.
    OobInline,
    /// SO_LINGER: kept; closing does not wait, and what was sent is still delivered.
    Linger,
    /// TCP_NODELAY: kept; nothing is ever delayed.
    NoDelay,
    /// TCP_MAXSEG: the path MTU. Setting it does nothing.
    MaxSegment,
    /// TCP_KEEPIDLE: seconds between keepalives.
    KeepIdle,
    /// TCP_KEEPINTVL: without meaning, since the connection itself repeats what is lost.
    KeepInterval,
    /// TCP_KEEPCNT: the same.
    KeepCount,
    /// IPV6_V6ONLY.
    V6Only,
    /// RDMA_SQSIZE.
    SendQueue,
    /// RDMA_RQSIZE.
    RecvQueue,
    /// RDMA_INLINE.
    Inline,
    /// RDMA_IOMAPSIZE.
    IomapSize,
    /// RDMA_ROUTE.
    Route,
}

use OptionName as Name;

/// All, with level and number.
const NUMBERS: [(OptionName, i32, i32); 18] = [
    (Name::ReuseAddress, SOL_SOCKET, 2),
    (Name::Error, SOL_SOCKET, 4),
    (Name::SendBuffer, SOL_SOCKET, 7),
    (Name::RecvBuffer, SOL_SOCKET, 8),
    (Name::KeepAlive, SOL_SOCKET, 9),
    (Name::OobInline, SOL_SOCKET, 10),
    (Name::Linger, SOL_SOCKET, 13),
    (Name::NoDelay, IPPROTO_TCP, 1),
    (Name::MaxSegment, IPPROTO_TCP, 2),
    (Name::KeepIdle, IPPROTO_TCP, 4),
    (Name::KeepInterval, IPPROTO_TCP, 5),
    (Name::KeepCount, IPPROTO_TCP, 6),
    (Name::V6Only, IPPROTO_IPV6, 26),
    (Name::SendQueue, SOL_RDMA, 0),
    (Name::RecvQueue, SOL_RDMA, 1),
    (Name::Inline, SOL_RDMA, 2),
    (Name::IomapSize, SOL_RDMA, 3),
    (Name::Route, SOL_RDMA, 4),
];

impl OptionName {
    /// The option of that level and number, if rsockets has it.
    pub fn from_numbers(level: i32, number: i32) -> Option<Self> {
        NUMBERS.iter().find(|(_, l, n)| (*l, *n) == (level, number)).map(|(name, ..)| *name)
    }

    /// Its level and number.
    pub fn numbers(self) -> (i32, i32) {
        NUMBERS.iter().find(|(name, ..)| *name == self).map_or((0, 0), |(_, level, number)| (*level, *number))
    }
}

/// An option's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// Most are numbers; flags are 0 or 1.
    Number(u32),
    /// SO_LINGER's: on or off, and seconds.
    Linger(bool, u32),
    /// RDMA_ROUTE's.
    Bytes(Vec<u8>),
}

/// A socket's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Of queues and buffers.
    pub sizes: Sizes,
    /// How often to see whether the peer is there; `None`: never.
    pub keepalive: Option<Duration>,
    keep_idle: Duration,
    reuse_address: bool,
    oob_inline: bool,
    /// SO_LINGER as librdmacm has it: on at first, and its time is forgotten.
    linger: bool,
    no_delay: bool,
    /// A socket bound to `::` takes IPv6 alone.
    pub v6_only: bool,
    route: Vec<u8>,
}

/// How far a socket has come: some options only count before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has neither buffers nor a peer.
    Fresh,
    /// It has both, or is about to.
    Opened,
}

impl Options {
    /// With these sizes, and all else as it is at first.
    pub const fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            keepalive: None,
            keep_idle: KEEPALIVE_DEFAULT,
            reuse_address: false,
            oob_inline: false,
            linger: true,
            no_delay: false,
            v6_only: false,
            route: Vec::new(),
        }
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`Error::Invalid`]: a value of another kind, or out of range, or rsockets' own options after the connection was begun; [`Error::NotSupported`]: it can
    /// only be got.
    pub fn set(&mut self, name: OptionName, value: &OptionValue, stage: Stage) -> Result<(), Error> {
        if name.numbers().0 == SOL_RDMA && stage == Stage::Opened {
            return Err(Error::Invalid);
        }
        match (name, value) {
            (Name::Linger, OptionValue::Linger(on, _)) => self.linger = *on,
            (Name::Route, OptionValue::Bytes(bytes)) if bytes.len() <= ROUTE_MAX => self.route.clone_from(bytes),
            (Name::Error, _) => return Err(Error::NotSupported),
            (_, OptionValue::Number(number)) => return self.set_number(name, *number, stage),
            _ => return Err(Error::Invalid),
        }
        Ok(())
    }

    fn set_number(&mut self, name: OptionName, number: u32, stage: Stage) -> Result<(), Error> {
        let (on, queue) = (number != 0, number.min(u32::from(QUEUE_MAX)) as u16);
        match name {
            Name::ReuseAddress => self.reuse_address = on,
            Name::OobInline => self.oob_inline = on,
            Name::NoDelay => self.no_delay = on,
            Name::V6Only => self.v6_only = on,
            Name::KeepAlive => self.keepalive = on.then_some(self.keep_idle),
            Name::KeepIdle => {
                // A negative number is a large one here.
                let seconds = Some(number).filter(|n| (1..=i32::MAX as u32).contains(n)).ok_or(Error::Invalid)?;
                self.keep_idle = Duration::from_secs(seconds.into());
                self.keepalive = self.keepalive.map(|_| self.keep_idle);
            }
            Name::MaxSegment | Name::KeepInterval | Name::KeepCount => {}
            // Buffers that exist stay as they are, and nobody is told.
            Name::SendBuffer | Name::RecvBuffer if stage == Stage::Opened => {}
            // The program's number is doubled, as Linux does.
            Name::SendBuffer => {
                let size = number.saturating_mul(2);
                self.sizes.send_buffer = if size < SEND_LOW_WATER { SEND_LOW_WATER * 2 } else { size };
            }
            Name::RecvBuffer => self.sizes.recv_buffer = number.saturating_mul(2).max(2),
            Name::SendQueue => self.sizes.send_queue = queue,
            Name::RecvQueue => self.sizes.recv_queue = queue,
            Name::Inline => self.sizes.inline = queue,
            Name::IomapSize => self.sizes.iomap = from_scale(to_scale(number.min(u32::from(u16::MAX)) as u16)),
            Name::Error | Name::Linger | Name::Route => return Err(Error::Invalid),
        }
        Ok(())
    }

    /// What an option is. `error` is what SO_ERROR says, `path_mtu` what TCP_MAXSEG does.
    pub fn get(&self, name: OptionName, error: Option<Error>, path_mtu: Option<u32>) -> OptionValue {
        OptionValue::Number(match name {
            Name::ReuseAddress => self.reuse_address.into(),
            Name::Error => error.map_or(0, |error| error.errno() as u32),
            Name::SendBuffer => self.sizes.send_buffer,
            Name::RecvBuffer => self.sizes.recv_buffer,
            Name::KeepAlive => self.keepalive.is_some().into(),
            Name::OobInline => self.oob_inline.into(),
            Name::Linger => return OptionValue::Linger(self.linger, 0),
            Name::NoDelay => self.no_delay.into(),
            Name::MaxSegment => path_mtu.unwrap_or(MAXSEG_UNKNOWN),
            Name::KeepIdle => self.keep_idle.as_secs() as u32,
            Name::KeepInterval | Name::KeepCount => 1,
            Name::V6Only => self.v6_only.into(),
            Name::SendQueue => self.sizes.send_queue.into(),
            Name::RecvQueue => self.sizes.recv_queue.into(),
            Name::Inline => self.sizes.inline.into(),
            Name::IomapSize => self.sizes.iomap.into(),
            Name::Route => return OptionValue::Bytes(self.route.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(options: &Options, name: OptionName) -> u32 {
        match options.get(name, None, None) {
            OptionValue::Number(number) => number,
            other => panic!("{name:?} is no number: {other:?}"),
        }
    }

    #[test]
    fn each_option_has_a_number_and_is_found_by_it() {
        for (name, level, option) in NUMBERS {
            assert_eq!(OptionName::from_numbers(level, option), Some(name));
            assert_eq!(name.numbers(), (level, option));
        }
        assert_eq!(OptionName::from_numbers(SOL_SOCKET, 3), None, "SO_TYPE");
    }

    #[test]
    fn numbers_come_back_as_rsocket_says() {
        let set_and_get = [
            (Name::SendBuffer, 70_000, 140_000),
            (Name::SendBuffer, 100, 4096),
            (Name::RecvBuffer, 70_000, 140_000),
            (Name::RecvBuffer, u32::MAX, u32::MAX),
            (Name::KeepIdle, 9, 9),
            (Name::KeepAlive, 5, 1),
            (Name::KeepCount, 8, 1),
            (Name::NoDelay, 1, 1),
            (Name::MaxSegment, 500, 2048),
            (Name::V6Only, 1, 1),
            (Name::SendQueue, 100_000, 0xfffe),
            (Name::RecvQueue, 20, 20),
            (Name::Inline, 0, 0),
            (Name::IomapSize, 300, 256),
        ];
        let mut options = Options::new(Sizes::default());
        for (name, set, get) in set_and_get {
            options.set(name, &OptionValue::Number(set), Stage::Fresh).unwrap();
            assert_eq!(number(&options, name), get, "{name:?}");
        }
        assert_eq!(options.keepalive, Some(Duration::from_secs(9)));
        assert_eq!(options.get(Name::Error, Some(Error::Refused), None), OptionValue::Number(111));
        assert_eq!(options.get(Name::MaxSegment, None, Some(1024)), OptionValue::Number(1024));
    }

    #[test]
    fn an_opened_socket_keeps_its_queues_and_buffers() {
        let mut options = Options::new(Sizes::default());
        for name in [Name::SendQueue, Name::RecvQueue, Name::Inline, Name::IomapSize] {
            assert_eq!(options.set(name, &OptionValue::Number(20), Stage::Opened), Err(Error::Invalid));
        }
        for name in [Name::SendBuffer, Name::RecvBuffer] {
            options.set(name, &OptionValue::Number(20), Stage::Opened).unwrap();
        }
        assert_eq!(options.sizes, Sizes::default());
    }

    #[test]
    fn values_of_another_kind_are_refused() {
        let mut options = Options::new(Sizes::default());
        let before = options.clone();
        let mut set = |name, value| options.set(name, &value, Stage::Fresh);
        assert_eq!(set(Name::Linger, OptionValue::Number(1)), Err(Error::Invalid));
        assert_eq!(set(Name::NoDelay, OptionValue::Linger(true, 1)), Err(Error::Invalid));
        assert_eq!(set(Name::Route, OptionValue::Bytes(vec![0; ROUTE_MAX + 1])), Err(Error::Invalid));
        assert_eq!(set(Name::KeepIdle, OptionValue::Number(0)), Err(Error::Invalid));
        assert_eq!(set(Name::KeepIdle, OptionValue::Number(u32::MAX)), Err(Error::Invalid));
        assert_eq!(set(Name::Error, OptionValue::Number(1)), Err(Error::NotSupported));
        assert_eq!(options, before);
        assert_eq!(options.get(Name::Linger, None, None), OptionValue::Linger(true, 0), "on at first, as librdmacm has it");
    }
}
