//! Neighbour discovery for a host (RFC 4861), as a state machine without I/O: which Ethernet address has an IPv6 address, whether it is
//! still there, and whether somebody else has ours (RFC 4862 s5.4).
//!
//! It is for devices that have no kernel beside them. One [`Ndisc`] stands for one link. Packets that wait for a neighbour are of the
//! caller's own type `P`; they come back by [`Ndisc::poll`], which is to be called until it gives nothing after every call that takes `now`.
//!
//! - [`cache`]: neighbours and their states, bounded, with a rule for who has to go
//! - [`addresses`]: our own addresses, tentative at first

use core::net::Ipv6Addr;
use core::time::Duration;
use std::collections::VecDeque;

use arrayvec::ArrayVec;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use self::addresses::{AddError, Addresses, Verdict};
use self::cache::{Advertised, Cache, Config, Held, Lookup};
use crate::addr::MacAddr;
use crate::time::Instant;
use crate::wire::icmpv6::ndisc::{Message, OptionsBuf, Router};
use crate::wire::ipv6;

pub mod addresses;
pub mod cache;

#[cfg(test)]
mod tests;

/// Answers that wait to be fetched; more are lost like frames on the wire.
const ANSWERS_MAX: usize = 16;

/// A solicitation or an advertisement to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// From which of our addresses; unspecified while it is tentative.
    pub src: Ipv6Addr,
    /// To whom.
    pub dst: Ipv6Addr,
    /// To which MAC address, or group of them.
    pub to: MacAddr,
    /// What it says.
    pub what: Saying,
}

/// What a [`Transmit`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saying {
    /// Who has this address?
    Solicitation {
        /// The address.
        target: Ipv6Addr,
        /// By which we know our own question again; only while our address is tentative.
        nonce: Option<[u8; 6]>,
    },
    /// We have this address.
    Advertisement {
        /// The address.
        target: Ipv6Addr,
        /// Because somebody asked, who can be answered alone.
        solicited: bool,
    },
}

impl Transmit {
    /// Writes the packet, IPv6 header and all, to the front of `out`, which must have room for
    /// [`NEIGHBOR_PACKET_MAX`](crate::wire::icmpv6::ndisc::NEIGHBOR_PACKET_MAX) bytes, and gives its length. `mac`: our own.
    pub fn emit(&self, mac: MacAddr, out: &mut [u8]) -> usize {
        let buf = OptionsBuf::default();
        let buf = match self.what {
            // RFC 4861 s4.3: who has no address yet has none to tell.
            Saying::Solicitation { nonce, .. } if self.src.is_unspecified() => nonce.into_iter().fold(buf, OptionsBuf::nonce),
            Saying::Solicitation { .. } => buf.source(mac),
            Saying::Advertisement { .. } => buf.target(mac),
        };
        let options = buf.options();
        let message = match self.what {
            Saying::Solicitation { target, .. } => Message::NeighborSolicitation { target, options },
            Saying::Advertisement { target, solicited } => {
                Message::NeighborAdvertisement { target, router: false, solicited, overriding: true, options }
            }
        };
        message.emit_packet(self.src, self.dst, out)
    }
}

/// What is to be done, or to be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<P> {
    /// Send this.
    Transmit(Transmit),
    /// A neighbour that was asked for has an address: what waited goes there, in this order.
    Resolved {
        /// Who.
        neighbour: Ipv6Addr,
        /// Its address.
        mac: MacAddr,
        /// What waited.
        packets: Held<P>,
    },
    /// A neighbour doesn't answer, or had to give way to others. What is sent to it asks again.
    Unreachable {
        /// Who.
        neighbour: Ipv6Addr,
        /// What waited: for ICMPv6's address unreachable, if it was forwarded, or for its socket (RFC 4861 s7.2.2).
        packets: Held<P>,
    },
    /// A neighbour is a router no longer: no route may lead over it (RFC 4861 s7.3.3).
    RouterLost(Ipv6Addr),
    /// Nobody else has this address of ours: it may be used.
    AddressReady(Ipv6Addr),
    /// Somebody else has this address: it is not ours (RFC 4862 s5.4.5).
    AddressDuplicate(Ipv6Addr),
    /// Somebody claims an address that we have used for long. Said once (RFC 4862 s5.4.4: worth a line in a log, and no more).
    AddressConflict(Ipv6Addr),
}

/// Neighbour discovery on one link.
#[derive(Debug)]
pub struct Ndisc<P> {
    mac: MacAddr,
    cache: Cache<P>,
    addresses: Addresses,
    answers: ArrayVec<Transmit, ANSWERS_MAX>,
    actions: VecDeque<Action<P>>,
    random: ChaCha8Rng,
}

impl<P> Ndisc<P> {
    /// Knows nobody yet. `mac`: our own; all delays are drawn from `seed`.
    pub fn new(mac: MacAddr, config: Config, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let cache = Cache::new(config, &mut random);
        Self { mac, cache, addresses: Addresses::default(), answers: ArrayVec::new(), actions: VecDeque::new(), random }
    }

    /// Our addresses.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Our neighbours.
    pub fn cache(&self) -> &Cache<P> {
        &self.cache
    }

    /// Takes an address. Unless `detects` is false, it is asked for first, and only ours at [`Action::AddressReady`]; its
    /// [`ipv6::solicited_node`] group must be listened to before.
    ///
    /// # Errors
    /// Every variant of [`AddError`].
    pub fn add_address(&mut self, now: Instant, ip: Ipv6Addr, detects: bool) -> Result<(), AddError> {
        if self.addresses.add(now, ip, detects, &mut self.random)? {
            self.actions.push_back(Action::AddressReady(ip));
        }
        Ok(())
    }

    /// Gives an address up, whatever became of it. Whether it was there.
    pub fn remove_address(&mut self, ip: Ipv6Addr) -> bool {
        self.addresses.remove(ip)
    }

    /// Tells all nodes that an address is ours, as after a change of our Ethernet address to `mac` (RFC 4861 s7.2.6).
    pub fn announce(&mut self, ip: Ipv6Addr, mac: MacAddr) {
        self.mac = mac;
        if self.addresses.is_ours(ip) {
            self.answer(Transmit {
                src: ip,
                dst: ipv6::ALL_NODES,
                to: MacAddr::of_group_v6(ipv6::ALL_NODES),
                what: Saying::Advertisement { target: ip, solicited: false },
            });
        }
    }

    /// Where a packet from `from`, one of our addresses, to the neighbour `to` goes. If that is not known, it is asked for, and
    /// [`Action::Resolved`] or [`Action::Unreachable`] says what came of it.
    #[inline]
    pub fn lookup(&mut self, now: Instant, from: Ipv6Addr, to: Ipv6Addr) -> Lookup {
        if to.is_multicast() {
            return Lookup::Known(MacAddr::of_group_v6(to));
        }
        self.cache.lookup(now, from, to, &mut self.actions)
    }

    /// Holds a packet for a neighbour that [`Lookup::Asked`] was said of. Gives one back if there are too many: the oldest (RFC 4861 s7.2.2),
    /// or this one if nobody asks.
    pub fn hold(&mut self, to: Ipv6Addr, packet: P) -> Option<P> {
        self.cache.hold(to, packet)
    }

    /// Has a neighbour keep this address, whatever it says itself (as Linux's NUD_PERMANENT); or, without one, forgets it. Whether there was room.
    pub fn set_neighbour(&mut self, ip: Ipv6Addr, mac: Option<MacAddr>) -> bool {
        self.cache.set(ip, mac, &mut self.actions)
    }

    /// Something that came from this neighbour shows that what we send arrives: such as an acknowledgment of new data (RFC 4861 s7.3.1).
    #[inline]
    pub fn confirm(&mut self, now: Instant, neighbour: Ipv6Addr) {
        self.cache.confirm(now, neighbour, &mut self.random);
    }

    /// Takes in a message, which [`Message::parse`] found valid and whose checksum is right, that came by a frame from `frame_src`.
    ///
    /// What else a router says (prefixes, MTU, its lifetime) is the caller's to take in; so is a redirect, which only counts if it comes from
    /// the router that is in use: then see [`Ndisc::redirected`].
    pub fn on_message(&mut self, now: Instant, frame_src: MacAddr, header: &ipv6::Header, message: &Message<'_>) {
        match message {
            Message::NeighborSolicitation { target, options } => {
                self.on_solicitation(now, (frame_src, header.src), *target, options.source(), options.nonce());
            }
            Message::NeighborAdvertisement { target, router, solicited, overriding, options } => {
                let advertised = Advertised { router: *router, solicited: *solicited, overriding: *overriding, mac: options.target() };
                self.on_advertisement(now, *target, advertised);
            }
            Message::RouterAdvertisement { router, options } => {
                let Router { reachable, retransmit, .. } = *router;
                self.cache.configure(now, reachable, retransmit, &mut self.random);
                if let Some(mac) = options.source() {
                    self.learn(now, header.src, mac, Some(true));
                }
            }
            // RFC 4861 s6.2.6: only routers take them in. Redirects are for who knows the routes.
            Message::RouterSolicitation { .. } | Message::Redirect { .. } => {}
        }
    }

    /// Takes in what a redirect tells of its target, once it was found to come from the router that is in use (RFC 4861 s8.3).
    pub fn redirected(&mut self, now: Instant, message: &Message<'_>) {
        if let Message::Redirect { target, destination, options } = message
            && let Some(mac) = options.target()
        {
            self.learn(now, *target, mac, (target != destination).then_some(true));
        }
    }

    /// RFC 4861 s7.2.3 and s7.2.4; RFC 4862 s5.4.3.
    fn on_solicitation(
        &mut self,
        now: Instant,
        (frame_src, src): (MacAddr, Ipv6Addr),
        target: Ipv6Addr,
        mac: Option<MacAddr>,
        nonce: Option<[u8; 6]>,
    ) {
        match self.addresses.on_solicitation(src, target, nonce) {
            Verdict::Ours => {}
            Verdict::Duplicate => return self.actions.push_back(Action::AddressDuplicate(target)),
            Verdict::Nothing | Verdict::Conflict => return,
        }
        let what = |solicited| Saying::Advertisement { target, solicited };
        if src.is_unspecified() {
            let (dst, to) = (ipv6::ALL_NODES, MacAddr::of_group_v6(ipv6::ALL_NODES));
            return self.answer(Transmit { src: target, dst, to, what: what(false) });
        }
        if let Some(mac) = mac {
            self.learn(now, src, mac, None);
        }
        // Who asks us alone may leave its address out (RFC 4861 s4.3); its frame has it.
        let to = mac.or_else(|| self.cache.known(src)).unwrap_or(frame_src);
        if !to.is_multicast() {
            self.answer(Transmit { src: target, dst: src, to, what: what(true) });
        }
    }

    /// RFC 4861 s7.2.5; RFC 4862 s5.4.4.
    fn on_advertisement(&mut self, now: Instant, target: Ipv6Addr, advertised: Advertised) {
        // (Our own may come back to us.)
        if advertised.mac == Some(self.mac) && self.addresses.is_ours(target) {
            return;
        }
        match self.addresses.on_advertisement(target) {
            Verdict::Duplicate => self.actions.push_back(Action::AddressDuplicate(target)),
            Verdict::Conflict => self.actions.push_back(Action::AddressConflict(target)),
            Verdict::Ours => {}
            Verdict::Nothing => self.cache.on_advertisement(now, target, advertised, &mut self.random, &mut self.actions),
        }
    }

    /// What a neighbour says of itself by the way. Who claims one of our addresses has another message to say so by.
    fn learn(&mut self, now: Instant, ip: Ipv6Addr, mac: MacAddr, router: Option<bool>) {
        let is_neighbour = !ip.is_unspecified() && !ip.is_multicast() && !self.addresses.knows(ip);
        if is_neighbour {
            self.cache.learn(now, ip, mac, router, &mut self.actions);
        }
    }

    fn answer(&mut self, transmit: Transmit) {
        // Who asks twice before the answer is fetched is answered once.
        if !self.answers.contains(&transmit) {
            let _ = self.answers.try_push(transmit);
        }
    }

    /// When [`Ndisc::on_timer`] may have something to do.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.cache.next_deadline().into_iter().chain(self.addresses.next_deadline()).min()
    }

    /// Does what is due.
    pub fn on_timer(&mut self, now: Instant) {
        self.cache.on_timer(now, &mut self.actions);
        self.addresses.on_timer(now, self.cache.retransmit(), &mut self.actions);
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Action<P>> {
        self.answers.pop_at(0).map(Action::Transmit).or_else(|| self.actions.pop_front())
    }
}

/// A question to everyone who may have `target`.
fn ask_all<P>(src: Ipv6Addr, target: Ipv6Addr, nonce: Option<[u8; 6]>) -> Action<P> {
    let dst = ipv6::solicited_node(target);
    Action::Transmit(Transmit { src, dst, to: MacAddr::of_group_v6(dst), what: Saying::Solicitation { target, nonce } })
}

/// A time below `max`.
fn some_time(random: &mut ChaCha8Rng, max: Duration) -> Duration {
    use rand_core::Rng;
    Duration::from_nanos(((u128::from(random.next_u32()) * max.as_nanos()) >> 32) as u64)
}
