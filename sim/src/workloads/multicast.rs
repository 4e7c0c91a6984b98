//! Datagrams to a group whose members come and go: on other hosts, on the speaker's own, two on one host.

use core::fmt;
use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringway_stack::raw::RawQueue;
use ringway_stack::ring::UdpOptions;

use super::{Ground, Site, Verdict, Workload};
use crate::addresses::Family;
use crate::apps::{
    GroupExchange, GroupListener, GroupSpeaker, Membership, Neighbourly, Pattern, Pings, Pursuit, Querier, Querying, Shared, Wish,
};
use crate::host::App;
use crate::random::{Purpose, RandomStream};
use crate::world::World;

#[derive(Debug)]
struct Listener {
    host: usize,
    pursuit: Pursuit,
    own: Shared<Membership>,
}

#[derive(Debug)]
struct Exchange {
    speaker: usize,
    options: UdpOptions,
    group: IpAddr,
    interval: Duration,
    len: (usize, usize),
    pattern: Pattern,
    listeners: Vec<Listener>,
    state: Option<Shared<GroupExchange>>,
}

/// All groups; and, in IPv6, a router that asks who listens.
#[derive(Debug)]
pub(super) struct Multicast {
    exchanges: Vec<Exchange>,
    router: Option<Router>,
}

/// A router, beside one of the hosts.
#[derive(Clone, Copy, Debug)]
struct Router {
    host: usize,
    querying: Querying,
    seed: u64,
}

impl Multicast {
    pub(super) fn draw(ground: &mut Ground<'_>) -> Self {
        let count = ground.stream.between(1, 2);
        let exchanges = (0..count).map(|_| exchange(ground)).collect();
        // (All that follows is drawn in IPv6 alone: worlds of IPv4 are as they were.)
        let router = (family(ground) == Family::V6 && ground.stream.chance_ppm(700_000)).then(|| router(ground));
        Self { exchanges, router }
    }
}

fn family(ground: &Ground<'_>) -> Family {
    ground.hosts.first().map_or(Family::V4, |host| host.family)
}

fn router(ground: &mut Ground<'_>) -> Router {
    let questions = u32::try_from(ground.stream.magnitude(2, 30)).unwrap_or(2);
    let pause_max = Duration::from_nanos(ground.stream.magnitude(1_000_000, 3_000_000_000)).min(Duration::from_secs(30) / questions);
    Router { host: ground.host(), querying: Querying { questions, pause_max }, seed: ground.seed }
}

fn exchange(ground: &mut Ground<'_>) -> Exchange {
    let len_max = ground.hosts.iter().map(|host| host.datagram_max()).min().unwrap_or(0);
    let (a, b) = (ground.size(8, len_max), ground.size(8, len_max));
    let options = UdpOptions {
        multicast_loop: ground.stream.chance_ppm(700_000),
        multicast_ttl: u8::try_from(ground.stream.between(1, 32)).unwrap_or(1),
        ..UdpOptions::default()
    };
    let speaker = ground.host();
    let mut listeners: Vec<_> = (0..ground.hosts.len()).flat_map(|host| listeners(ground, host)).collect();
    // Nobody hears what is not sent to them.
    listeners.retain(|listener| options.multicast_loop || listener.host != speaker);
    let (high, low) = (ground.stream.pick(&[1, 129]), u8::try_from(ground.stream.between(0, 3)).unwrap_or(0));
    Exchange {
        speaker,
        options,
        group: group(family(ground), high, low),
        interval: Duration::from_nanos(ground.stream.magnitude(100_000, 50_000_000)),
        len: (a.min(b), a.max(b)),
        pattern: Pattern(ground.stream.bits()),
        listeners,
        state: None,
    }
}

/// RFC 2365 s6.2; 32 groups share an Ethernet address (RFC 1112 s6.4), so some draws differ in no bit of it; so do many more of IPv6's (RFC 2464 s7), of
/// the link and of the site here (RFC 4291 s2.7).
fn group(family: Family, high: u8, low: u8) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::new(239, high, 0, low)),
        Family::V6 => IpAddr::V6(Ipv6Addr::new(if high == 1 { 0xff12 } else { 0xff15 }, 0, 0, 0, 0, high.into(), 1, low.into())),
    }
}

/// One, two (bound to the group, and to every address), or none on a host.
fn listeners(ground: &mut Ground<'_>, host: usize) -> Vec<Listener> {
    let bound: &[bool] = ground.stream.pick(&[&[], &[false], &[true], &[false, true]]);
    let one = |bound: &bool| {
        let pursuit = Pursuit {
            bound: *bound,
            wish: Wish::Everybody,
            wanted: ground.size(1, 16),
            rounds: u32::try_from(ground.stream.between(1, 3)).unwrap_or(1),
            rest: Duration::from_nanos(ground.stream.magnitude(1_000, 200_000_000)),
        };
        let wish = match family(ground) {
            Family::V4 => Wish::Everybody,
            Family::V6 => {
                ground.stream.pick(&[Wish::Everybody, Wish::Speaker, Wish::NotSomebody, Wish::SpeakerLater, Wish::EverybodyLater])
            }
        };
        Listener { host, pursuit: Pursuit { wish, ..pursuit }, own: Shared::default() }
    };
    bound.iter().map(one).collect()
}

impl fmt::Display for Multicast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Exchange { speaker, options, group, interval, len, listeners, .. } in &self.exchanges {
            writeln!(f, "host {speaker} tells {group} datagrams of {len:?} bytes every {interval:?}, {options:?}")?;
            for Listener { host, pursuit: Pursuit { bound, wish, wanted, rounds, rest }, .. } in listeners {
                writeln!(f, "  host {host} (bound to the group: {bound}, {wish:?}) wants {wanted}, {rounds} times, {rest:?} apart")?;
            }
        }
        match &self.router {
            Some(Router { host, querying, .. }) => writeln!(f, "a router beside host {host} asks who listens: {querying:?}"),
            None => Ok(()),
        }
    }
}

impl Workload for Multicast {
    fn set_up(&mut self, site: &mut Site<'_>) {
        // All programs of a host are on one ring: members on others would not hear their own host.
        let rings: Vec<_> = (0..site.hosts.len()).map(|host| site.ring(host)).collect();
        let groups: Vec<_> = self.exchanges.iter().map(|exchange| exchange.group).collect();
        for (exchange, number) in self.exchanges.iter_mut().zip(0..) {
            let heard: Vec<_> = exchange.listeners.iter().map(|listener| listener.own.clone()).collect();
            let state = Shared::new(GroupExchange {
                group: SocketAddr::new(exchange.group, site.server_port(number)),
                speaker: site.address(exchange.speaker, site.client_port(number)),
                pings: Pings::new(0, exchange.len, exchange.interval, exchange.pattern),
                heard,
            });
            for Listener { host, pursuit, own } in &exchange.listeners {
                let (options, pursuit, state, own) = (exchange.options, *pursuit, state.clone(), own.clone());
                let make = move || -> Box<dyn App> { Box::new(GroupListener::new(options, pursuit, state.clone(), own.clone())) };
                site.world.add_restartable_on(site.hosts[*host], rings[*host], make);
            }
            let (options, spoken) = (exchange.options, state.clone());
            let make = move || -> Box<dyn App> { Box::new(GroupSpeaker::new(options, spoken.clone())) };
            site.world.add_restartable_on(site.hosts[exchange.speaker], rings[exchange.speaker], make);
            exchange.state = Some(state);
        }
        if site.options.iter().any(|host| host.family == Family::V6) {
            // (The first ring hears what no rule steers.)
            for &host in site.hosts {
                site.world.add_restartable_on(host, 0, || -> Box<dyn App> { Box::new(Neighbourly) });
            }
        }
        if let Some(Router { host, querying, seed }) = self.router {
            let queue = RawQueue::new(site.world.add_raw_ring(site.hosts[host]));
            let number = site.workload.bits().trailing_zeros();
            let dice = RandomStream::new(seed, Purpose::Workload, number, 0);
            site.world.add_app_on(site.hosts[host], 0, Querier::new(queue, site.vlan, groups, querying, dice));
        }
    }

    /// The speaker gets slower and slower, since nobody answers.
    fn pauses(&self) -> bool {
        true
    }

    fn progress(&self) -> Vec<String> {
        let lines = |exchange: &Exchange| {
            let sent = exchange.state.as_ref().map_or(0, |state| state.read().pings.sent);
            let heard: Vec<_> = exchange.listeners.iter().map(|l| (l.host, l.own.read().heard.len(), l.own.read().done)).collect();
            format!("host {} told {} {sent} datagrams; heard by (host, how many, done) {heard:?}", exchange.speaker, exchange.group)
        };
        self.exchanges.iter().map(lines).collect()
    }

    fn check(&self, verdict: &Verdict) {
        for (exchange, listener) in
            self.exchanges.iter().flat_map(|exchange| exchange.listeners.iter().map(move |listener| (exchange, listener)))
        {
            let own = listener.own.read();
            assert!(own.done, "a listener did not hear enough: {own:?}");
            let lawful = |pings: &Pings| own.heard.iter().all(|(&number, &times)| verdict.may_be_heard(pings, number, times));
            assert!(exchange.state.as_ref().is_none_or(|state| lawful(&state.read().pings)), "heard twice, though nothing was duplicated");
            if !verdict.calm() || verdict.unsent > 0 || verdict.lends {
                continue;
            }
            // Whatever was said while it was a member, up to the last that it heard.
            let (joined, last) = (own.joined.unwrap_or(0), own.heard.keys().max().copied().unwrap_or(0));
            let missed: Vec<_> = (joined..=last).filter(|number| !own.heard.contains_key(number)).collect();
            assert!(missed.is_empty(), "nothing went wrong, yet host {} missed {missed:?} of its group", listener.host);
        }
    }

    fn wind_down(&mut self, _: &mut World) {}
}
