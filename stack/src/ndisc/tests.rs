use core::time::Duration;

use super::*;
use crate::ndisc::cache::NeighbourState::{self, Delay, Incomplete, Permanent, Probe, Reachable, Stale};
use crate::wire::icmpv6::ndisc::{NEIGHBOR_PACKET_MAX, Options};

const US: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const PEER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const OTHER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);
const SECOND: Duration = Duration::from_secs(1);
const START: Instant = Instant::from_nanos(1_000_000_000);

type Host = Ndisc<u32>;

/// A host with one address.
fn host() -> Host {
    let mut host = Host::new(OUR_MAC, Config::default(), 7);
    host.add_address(START, US, false).unwrap();
    assert_eq!(actions(&mut host), [Action::AddressReady(US)]);
    host
}

fn actions(host: &mut Host) -> Vec<Action<u32>> {
    core::iter::from_fn(|| host.poll()).collect()
}

fn ask_all(target: Ipv6Addr) -> Action<u32> {
    super::ask_all(US, target, None)
}

fn ask_one(target: Ipv6Addr, to: MacAddr) -> Action<u32> {
    Action::Transmit(Transmit { src: US, dst: target, to, what: Saying::Solicitation { target, nonce: None } })
}

fn advertises(target: Ipv6Addr, dst: Ipv6Addr, to: MacAddr, solicited: bool) -> Action<u32> {
    Action::Transmit(Transmit { src: target, dst, to, what: Saying::Advertisement { target, solicited } })
}

fn resolved(mac: MacAddr, packets: &[u32]) -> Action<u32> {
    Action::Resolved { neighbour: PEER, mac, packets: packets.iter().copied().collect() }
}

fn unreachable(packets: &[u32]) -> Action<u32> {
    Action::Unreachable { neighbour: PEER, packets: packets.iter().copied().collect() }
}

/// Emits a message, and has the host read it as from the wire, checks and all.
fn hear(host: &mut Host, now: Instant, (src, dst): (Ipv6Addr, Ipv6Addr), message: &Message<'_>) {
    let mut packet = vec![0; ipv6::LEN + message.len()];
    message.emit_packet(src, dst, &mut packet);
    let (header, at) = ipv6::Header::parse(&packet).unwrap();
    host.on_message(now, MAC, &header, &Message::parse(&header, &packet[at..]).unwrap());
}

fn options(mac: Option<MacAddr>, is_target: bool) -> OptionsBuf {
    let add = if is_target { OptionsBuf::target } else { OptionsBuf::source };
    mac.into_iter().fold(OptionsBuf::default(), add)
}

/// PEER advertises itself: with these flags (R, S, O) and this address.
fn advertise(host: &mut Host, now: Instant, [router, solicited, overriding]: [bool; 3], mac: Option<MacAddr>) {
    let buf = options(mac, true);
    let message = Message::NeighborAdvertisement { target: PEER, router, solicited, overriding, options: buf.options() };
    hear(host, now, (PEER, if solicited { US } else { ipv6::ALL_NODES }), &message);
}

fn solicit(host: &mut Host, now: Instant, src: Ipv6Addr, target: Ipv6Addr, buf: &OptionsBuf) {
    hear(host, now, (src, ipv6::solicited_node(target)), &Message::NeighborSolicitation { target, options: buf.options() });
}

fn state(host: &Host, now: Instant) -> Option<NeighbourState> {
    host.cache().state(now, PEER)
}

/// A host that knows PEER by an answer that it asked for.
fn acquainted(now: Instant) -> Host {
    let mut host = host();
    assert_eq!(host.lookup(now, US, PEER), Lookup::Asked);
    advertise(&mut host, now, [false, true, true], Some(MAC));
    assert_eq!(actions(&mut host), [ask_all(PEER), resolved(MAC, &[])]);
    assert_eq!(state(&host, now), Some(Reachable));
    host
}

/// Lets the host's own deadlines pass up to `until`; gives what it did, and when.
fn pass(host: &mut Host, until: Instant) -> Vec<(Instant, Action<u32>)> {
    let mut done = vec![];
    while let Some(at) = host.next_deadline().filter(|&at| at <= until) {
        host.on_timer(at);
        done.extend(actions(host).into_iter().map(|action| (at, action)));
        assert!(host.next_deadline().is_none_or(|next| next > at), "a deadline is met once");
    }
    done
}

/// RFC 4861 s7.2.2: to the solicited-node group, once a second, three times.
#[test]
fn a_neighbour_is_asked_for_three_times() {
    let mut host = host();
    assert_eq!(host.lookup(START, US, PEER), Lookup::Asked);
    assert_eq!(host.hold(PEER, 1), None);
    assert_eq!(host.lookup(START, US, PEER), Lookup::Asked, "asked for once");
    assert_eq!(host.hold(PEER, 2), None);
    assert_eq!(actions(&mut host), [ask_all(PEER)]);
    let at = |seconds: u32| START + SECOND * seconds;
    let expected = [(at(1), ask_all(PEER)), (at(2), ask_all(PEER)), (at(3), unreachable(&[1, 2]))];
    assert_eq!(pass(&mut host, at(100)), expected);
    assert_eq!((state(&host, at(3)), host.next_deadline()), (None, None));
    // "Subsequent traffic … begins anew."
    assert_eq!(host.lookup(at(4), US, PEER), Lookup::Asked);
    assert_eq!(actions(&mut host), [ask_all(PEER)]);
    assert_eq!(host.lookup(at(4), US, ipv6::ALL_NODES), Lookup::Known(MacAddr([0x33, 0x33, 0, 0, 0, 1])), "a group is nobody to ask for");
}

/// RFC 4861 s7.2.2: "the new arrival SHOULD replace the oldest entry".
#[test]
fn few_packets_wait_and_the_oldest_goes() {
    let mut host = host();
    assert_eq!(host.hold(PEER, 9), Some(9), "nobody was asked for");
    host.lookup(START, US, PEER);
    let back: Vec<_> = (0..5).filter_map(|packet| host.hold(PEER, packet)).collect();
    assert_eq!(back, [0, 1]);
    advertise(&mut host, START, [false, true, false], Some(MAC));
    assert_eq!(actions(&mut host), [ask_all(PEER), resolved(MAC, &[2, 3, 4])]);
    assert_eq!(host.lookup(START, US, PEER), Lookup::Known(MAC));
    assert_eq!(host.hold(PEER, 9), Some(9), "it need not wait");
}

/// RFC 4861 s7.2.5, for an INCOMPLETE entry: the override flag is ignored, an answer without an address is none.
#[test]
fn answers_to_the_first_question() {
    for (flags, expected) in [([false, true, true], Reachable), ([false, true, false], Reachable), ([true, false, false], Stale)] {
        let mut host = host();
        host.lookup(START, US, PEER);
        advertise(&mut host, START, flags, None);
        assert_eq!((state(&host, START), actions(&mut host)), (Some(Incomplete), vec![ask_all(PEER)]));
        advertise(&mut host, START, flags, Some(MAC));
        assert_eq!((state(&host, START), host.cache().known(PEER)), (Some(expected), Some(MAC)));
        assert_eq!(host.cache().is_router(PEER), flags[0]);
    }
    // What waited is sent to an address that nobody has confirmed: that is "the first packet" of s7.3.3.
    let mut host = host();
    host.lookup(START, US, PEER);
    host.hold(PEER, 1);
    advertise(&mut host, START, [false, false, true], Some(MAC));
    assert_eq!(actions(&mut host), [ask_all(PEER), resolved(MAC, &[1])]);
    assert_eq!(state(&host, START), Some(Delay));
    assert_eq!(host.next_deadline(), Some(START + SECOND), "no earlier than the question's own, which finds nothing");
    let after = pass(&mut host, START + SECOND * 5);
    assert_eq!(after, [(START + SECOND * 5, ask_one(PEER, MAC))]);
}

/// RFC 4861 s7.3.3: STALE, DELAY for 5 s, PROBE by unicast, and the end.
#[test]
fn who_was_not_heard_of_is_asked_alone() {
    let mut host = acquainted(START);
    // RFC 4861 s6.3.2: between 0.5 and 1.5 of 30 s.
    assert_eq!(state(&host, START + SECOND * 14), Some(Reachable));
    let now = START + SECOND * 46;
    assert_eq!(state(&host, now), Some(Stale));
    pass(&mut host, now);
    assert_eq!(host.next_deadline(), None, "who is not used is not asked");
    assert_eq!(host.lookup(now, US, PEER), Lookup::Known(MAC));
    assert_eq!((state(&host, now), host.next_deadline()), (Some(Delay), Some(now + SECOND * 5)));
    assert_eq!(host.lookup(now + SECOND, US, PEER), Lookup::Known(MAC));
    let at = |seconds: u32| now + SECOND * seconds;
    let probes = pass(&mut host, at(7));
    assert_eq!(probes, [5, 6, 7].map(|seconds| (at(seconds), ask_one(PEER, MAC))));
    assert_eq!((state(&host, at(7)), host.lookup(at(7), US, PEER)), (Some(Probe), Lookup::Known(MAC)));
    assert_eq!(pass(&mut host, at(100)), [(at(8), unreachable(&[]))]);
    assert_eq!(state(&host, at(8)), None);
}

/// RFC 4861 s7.3.1: an upper layer's word is as good as an answer.
#[test]
fn upper_layers_save_the_question() {
    let mut host = acquainted(START);
    let now = START + SECOND * 46;
    for wait in [0, 4, 6] {
        let mut at = now + SECOND * 100 * wait;
        host.lookup(at, US, PEER);
        at += SECOND * wait;
        pass(&mut host, at);
        assert_eq!(state(&host, at), Some(if wait == 6 { Probe } else { Delay }));
        host.confirm(at, PEER);
        assert_eq!(state(&host, at), Some(Reachable));
        assert_eq!(pass(&mut host, at + SECOND * 20), []);
    }
    // Of nobody, or of who is still asked for, it says nothing.
    let stranger = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
    host.confirm(now, stranger);
    host.lookup(now, US, stranger);
    host.confirm(now, stranger);
    assert_eq!(host.cache().state(now, stranger), Some(Incomplete));
}

/// RFC 4861 s7.2.5 and appendix C, for all flags: state before, flags S and O, another address; state after, and whether it was taken over.
#[test]
fn advertisements_of_who_is_known() {
    let no = (None, false);
    let same = (Some(MAC), false);
    let other = (Some(OTHER_MAC), false);
    let taken = (Some(OTHER_MAC), true);
    for (before, solicited, overriding, (mac, is_taken), after) in [
        // I.: "If the Override flag is clear and the supplied link-layer address differs …".
        (Reachable, true, false, other, Stale),
        (Reachable, false, false, other, Stale),
        (Stale, true, false, other, Stale),
        (Delay, true, false, other, Delay),
        (Probe, true, false, other, Probe),
        // II.: with the flag, or the same address, or none.
        (Reachable, true, true, taken, Reachable),
        (Stale, true, true, taken, Reachable),
        (Probe, true, true, taken, Reachable),
        (Reachable, false, true, taken, Stale),
        (Delay, false, true, taken, Stale),
        (Probe, false, true, taken, Stale),
        (Probe, true, false, same, Reachable),
        (Delay, true, true, no, Reachable),
        (Probe, true, false, no, Reachable),
        (Reachable, false, true, same, Reachable),
        (Stale, false, true, same, Stale),
        (Probe, false, false, same, Probe),
        (Stale, false, false, no, Stale),
    ] {
        let mut host = acquainted(START);
        let mut now = START;
        if before != Reachable {
            now += SECOND * 46;
        }
        if matches!(before, Delay | Probe) {
            host.lookup(now, US, PEER);
        }
        if before == Probe {
            now += SECOND * 5;
            pass(&mut host, now);
        }
        assert_eq!(state(&host, now), Some(before));
        advertise(&mut host, now, [false, solicited, overriding], mac);
        let case = format!("{before:?} S={solicited} O={overriding} {mac:?}");
        assert_eq!(state(&host, now), Some(after), "{case}");
        assert_eq!(host.cache().known(PEER), Some(if is_taken { OTHER_MAC } else { MAC }), "{case}");
    }
}

/// RFC 4861 s7.2.5: "If no entry exists, the advertisement SHOULD be silently discarded."
#[test]
fn what_nobody_asked_for_enters_nothing() {
    let mut host = host();
    for flags in [[false, true, true], [true, false, true]] {
        advertise(&mut host, START, flags, Some(OTHER_MAC));
    }
    assert_eq!((host.cache().len(), actions(&mut host)), (0, vec![]));
    // What the owner said stays, whatever the neighbour says.
    assert!(host.set_neighbour(PEER, Some(MAC)));
    advertise(&mut host, START, [false, true, true], Some(OTHER_MAC));
    solicit(&mut host, START, PEER, US, &options(Some(OTHER_MAC), false));
    host.confirm(START, PEER);
    assert_eq!((state(&host, START), host.lookup(START, US, PEER)), (Some(Permanent), Lookup::Known(MAC)));
    assert!(host.set_neighbour(PEER, None));
    assert_eq!(state(&host, START), None);
    // Who waits for a question's answer is told, whoever gives it.
    for mac in [Some(MAC), None] {
        actions(&mut host);
        host.lookup(START, US, PEER);
        host.hold(PEER, 5);
        host.set_neighbour(PEER, mac);
        let expected = if mac.is_some() { resolved(MAC, &[5]) } else { unreachable(&[5]) };
        assert_eq!(actions(&mut host), [ask_all(PEER), expected]);
        host.set_neighbour(PEER, None);
    }
}

/// RFC 4861 s7.2.5: "If the IsRouter flag changes from TRUE to FALSE … remove that router from the Default Router List".
#[test]
fn a_router_that_is_none_any_more_is_told() {
    let mut host = acquainted(START);
    advertise(&mut host, START, [true, false, false], Some(MAC));
    assert!(host.cache().is_router(PEER));
    advertise(&mut host, START, [false, false, false], Some(OTHER_MAC));
    assert!(host.cache().is_router(PEER), "nothing is taken from one that is not believed");
    advertise(&mut host, START, [false, false, false], Some(MAC));
    assert_eq!(actions(&mut host), [Action::RouterLost(PEER)]);
    advertise(&mut host, START, [false, false, false], Some(MAC));
    assert_eq!(actions(&mut host), []);
}

/// RFC 4861 s7.2.3, s7.2.4.
#[test]
fn questions_for_us_are_answered_and_say_who_asks() {
    let mut host = host();
    solicit(&mut host, START, PEER, US, &options(Some(MAC), false));
    assert_eq!(actions(&mut host), [advertises(US, PEER, MAC, true)]);
    assert_eq!((state(&host, START), host.cache().known(PEER)), (Some(Stale), Some(MAC)));
    solicit(&mut host, START, PEER, US, &options(Some(OTHER_MAC), false));
    assert_eq!(actions(&mut host), [advertises(US, PEER, OTHER_MAC, true)]);
    assert_eq!(host.cache().known(PEER), Some(OTHER_MAC));
    // From nobody: to all nodes, not "solicited"; nothing is learnt.
    let mut host = self::host();
    solicit(&mut host, START, Ipv6Addr::UNSPECIFIED, US, &OptionsBuf::default());
    assert_eq!(actions(&mut host), [advertises(US, ipv6::ALL_NODES, MacAddr::of_group_v6(ipv6::ALL_NODES), false)]);
    // Without an address: to where the frame came from. For others: not at all.
    hear(&mut host, START, (PEER, US), &Message::NeighborSolicitation { target: US, options: Options::default() });
    assert_eq!(actions(&mut host), [advertises(US, PEER, MAC, true)]);
    solicit(&mut host, START, PEER, PEER, &options(Some(MAC), false));
    assert_eq!((actions(&mut host), host.cache().len()), (vec![], 0));
    // Who claims to be us learns nothing about us.
    solicit(&mut host, START, US, US, &options(Some(OTHER_MAC), false));
    assert_eq!(host.cache().len(), 0);
}

/// Appendix C: INCOMPLETE, and a solicitation that has its sender's address.
#[test]
fn a_question_may_be_the_answer() {
    let mut host = host();
    host.lookup(START, US, PEER);
    solicit(&mut host, START, PEER, US, &options(Some(MAC), false));
    assert_eq!(state(&host, START), Some(Stale));
    let done = actions(&mut host);
    assert!(done.contains(&resolved(MAC, &[])) && done.contains(&advertises(US, PEER, MAC, true)), "{done:?}");
    // In a state that is known, another address is taken over as stale, and the same one changes nothing.
    let mut host = acquainted(START);
    solicit(&mut host, START, PEER, US, &options(Some(MAC), false));
    assert_eq!(state(&host, START), Some(Reachable));
    solicit(&mut host, START, PEER, US, &options(Some(OTHER_MAC), false));
    assert_eq!((state(&host, START), host.cache().known(PEER)), (Some(Stale), Some(OTHER_MAC)));
}

#[test]
fn answers_that_nobody_fetches_are_few() {
    let mut host = host();
    for n in 0..1000u16 {
        let src = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, n);
        solicit(&mut host, START, src, US, &options(Some(MAC), false));
        solicit(&mut host, START, src, US, &options(Some(MAC), false));
    }
    assert_eq!(actions(&mut host).len(), ANSWERS_MAX);
}

fn advert(router: Router, mac: MacAddr) -> impl Fn(&mut Host, Instant) {
    move |host, now| {
        let buf = options(Some(mac), false);
        hear(host, now, (PEER, ipv6::ALL_NODES), &Message::RouterAdvertisement { router, options: buf.options() });
    }
}

/// RFC 4861 s6.3.4.
#[test]
fn routers_say_how_long_things_take_within_limits() {
    let router = |reachable, retransmit| Router { hop_limit: 0, flags: 0, lifetime: SECOND, reachable, retransmit };
    for (retransmit, expected) in [
        (Duration::ZERO, SECOND),
        (Duration::from_millis(1), Duration::from_millis(10)),
        (Duration::from_millis(300), Duration::from_millis(300)),
        (Duration::from_millis(u32::MAX.into()), Duration::from_secs(60)),
    ] {
        let mut host = host();
        advert(router(Duration::ZERO, retransmit), MAC)(&mut host, START);
        assert!(host.cache().is_router(PEER));
        assert_eq!(state(&host, START), Some(Stale));
        host.lookup(START, US, Ipv6Addr::LOCALHOST);
        assert_eq!(host.next_deadline(), Some(START + expected));
    }
    let mut host = acquainted(START);
    advert(router(SECOND * 2, Duration::ZERO), MAC)(&mut host, START);
    host.confirm(START, PEER);
    assert_eq!(state(&host, START + Duration::from_millis(999)), Some(Reachable));
    assert_eq!(state(&host, START + SECOND * 3), Some(Stale));
}

/// RFC 4861 s8.3.
#[test]
fn redirects_say_who_the_target_is() {
    let mut host = host();
    let buf = options(Some(OTHER_MAC), true);
    for (target, is_router) in [(PEER, true), (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7), false)] {
        let destination = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
        let message = Message::Redirect { target, destination, options: buf.options() };
        hear(&mut host, START, (PEER, US), &message);
        assert_eq!(host.cache().known(target), None, "only its reader knows whether the router is in use");
        host.redirected(START, &message);
        assert_eq!((host.cache().known(target), host.cache().is_router(target)), (Some(OTHER_MAC), is_router));
        assert_eq!(host.cache().state(START, target), Some(Stale));
    }
}

const NEW: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// A host with a tentative address that has asked for it; and its nonce.
fn asking() -> (Host, Instant, [u8; 6]) {
    let mut host = host();
    host.add_address(START, NEW, true).unwrap();
    assert!(host.addresses().is_tentative(NEW) && !host.addresses().is_ours(NEW));
    let at = host.next_deadline().unwrap();
    // RFC 4862 s5.4.2: a random delay of up to a second.
    assert!(at > START && at < START + SECOND);
    host.on_timer(at);
    let asked = actions(&mut host);
    let [Action::Transmit(Transmit { src: Ipv6Addr::UNSPECIFIED, what: Saying::Solicitation { target: NEW, nonce: Some(nonce) }, .. })] =
        asked[..]
    else {
        panic!("{asked:?}")
    };
    (host, at, nonce)
}

/// RFC 4862 s5.4: one question, and a second without an answer.
#[test]
fn an_address_that_nobody_has_is_ours_a_second_later() {
    let (mut host, at, _) = asking();
    // s5.4.3: who wants to talk to it has to wait.
    solicit(&mut host, at, PEER, NEW, &options(Some(MAC), false));
    assert_eq!((actions(&mut host), host.cache().len()), (vec![], 0));
    assert_eq!(pass(&mut host, at + SECOND * 9), [(at + SECOND, Action::AddressReady(NEW))]);
    assert!(host.addresses().is_ours(NEW));
    solicit(&mut host, at, PEER, NEW, &options(Some(MAC), false));
    assert_eq!(actions(&mut host), [advertises(NEW, PEER, MAC, true)]);
    // s5.4.4: from now on a claim is worth a line in a log, once.
    for _ in 0..3 {
        let buf = options(Some(MAC), true);
        let message =
            Message::NeighborAdvertisement { target: NEW, router: false, solicited: false, overriding: true, options: buf.options() };
        hear(&mut host, at, (NEW, ipv6::ALL_NODES), &message);
    }
    assert_eq!(actions(&mut host), [Action::AddressConflict(NEW)]);
    assert!(host.addresses().is_ours(NEW) && host.cache().known(NEW).is_none());
    assert!(host.remove_address(NEW) && !host.addresses().is_ours(NEW));
}

/// RFC 4862 s5.4.3, s5.4.4, RFC 7527 s4.2.
#[test]
fn an_address_that_somebody_has_or_wants_is_not_ours() {
    let claim = |host: &mut Host, at| {
        let options = Options::default();
        let message = Message::NeighborAdvertisement { target: NEW, router: false, solicited: false, overriding: true, options };
        hear(host, at, (NEW, ipv6::ALL_NODES), &message);
    };
    let want = |host: &mut Host, at| solicit(host, at, Ipv6Addr::UNSPECIFIED, NEW, &OptionsBuf::default());
    for lose in [&claim as &dyn Fn(&mut Host, Instant), &want] {
        let (mut host, at, nonce) = asking();
        // Our own question, come back.
        solicit(&mut host, at, Ipv6Addr::UNSPECIFIED, NEW, &OptionsBuf::default().nonce(nonce));
        assert!(host.addresses().is_tentative(NEW));
        lose(&mut host, at);
        assert_eq!(actions(&mut host), [Action::AddressDuplicate(NEW)]);
        lose(&mut host, at);
        assert_eq!(pass(&mut host, at + SECOND * 100), [], "it is said once, and never ours");
        assert!(!host.addresses().is_ours(NEW));
        assert_eq!(host.add_address(at, NEW, true), Err(AddError::Exists));
        assert!(host.remove_address(NEW));
        assert_eq!(host.add_address(at, NEW, true), Ok(()));
    }
}

#[test]
fn addresses_that_no_host_on_a_link_can_have() {
    let mut host = host();
    for unfit in ["::", "::1", "ff02::1", "::ffff:10.0.0.1"] {
        assert_eq!(host.add_address(START, unfit.parse().unwrap(), false), Err(AddError::Unfit), "{unfit}");
    }
    let results: Vec<_> = (0..300).map(|n| host.add_address(START, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 1, n), n % 2 == 0)).collect();
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 255);
    assert_eq!(results[299], Err(AddError::Full));
}

/// RFC 4861 s7.2.6.
#[test]
fn a_new_mac_address_is_announced() {
    let mut host = host();
    host.announce(NEW, OTHER_MAC);
    assert_eq!(actions(&mut host), [], "not ours");
    host.announce(US, OTHER_MAC);
    assert_eq!(actions(&mut host), [advertises(US, ipv6::ALL_NODES, MacAddr([0x33, 0x33, 0, 0, 0, 1]), false)]);
    // It comes back to us, which is no conflict.
    let buf = options(Some(OTHER_MAC), true);
    let message = Message::NeighborAdvertisement { target: US, router: false, solicited: false, overriding: true, options: buf.options() };
    hear(&mut host, START, (US, ipv6::ALL_NODES), &message);
    assert_eq!(actions(&mut host), []);
}

/// What we send is, byte for byte, what Linux sends in the same place (conformance/data/README.md).
#[test]
fn linux_says_the_same() {
    let (mut asked, mut detected, mut answered) = (0, 0, 0);
    let mut emitted = [0; NEIGHBOR_PACKET_MAX];
    let mut last = None;
    for frame in crate::capture::ipv6() {
        let (header, _) = ipv6::Header::parse(&frame[14..]).unwrap();
        let Ok(message) = Message::parse(&header, &frame[14 + ipv6::LEN..]) else { continue };
        let mac = |at: usize| MacAddr(*frame[at..].first_chunk().unwrap());
        let (to, from) = (mac(0), mac(6));
        let transmit = |what| Transmit { src: header.src, dst: header.dst, to, what };
        match message {
            Message::NeighborSolicitation { target, options } => {
                last = Some((header, message, from));
                let transmit = transmit(Saying::Solicitation { target, nonce: options.nonce() });
                let len = transmit.emit(from, &mut emitted);
                assert_eq!(emitted[..len], frame[14..]);
                let to_all = super::ask_all::<u32>(header.src, target, options.nonce());
                if header.dst.is_multicast() {
                    assert_eq!(to_all, Action::Transmit(transmit));
                }
                if header.src.is_unspecified() { detected += 1 } else { asked += 1 }
            }
            // (Routers' answers have a flag that ours never have; and Linux leaves its address out for who asks it alone.)
            Message::NeighborAdvertisement { target, router: false, options, .. } if options.target().is_some() => {
                let (asker, question, asker_mac) = last.unwrap();
                let mut host = Host::new(from, Config::default(), 1);
                host.add_address(START, target, false).unwrap();
                actions(&mut host);
                host.on_message(START, asker_mac, &asker, &question);
                let said = actions(&mut host);
                let [Action::Transmit(answer)] = said[..] else { panic!("{said:?}") };
                let len = answer.emit(from, &mut emitted);
                assert_eq!((&emitted[..len], answer.to), (&frame[14..], to));
                answered += 1;
            }
            _ => {}
        }
    }
    assert_eq!((detected, asked, answered), (8, 8, 2));
}
