//! Flow rules that take a while, and what a listener's connections come by.

use super::*;
use crate::device::{DeviceEvent, RuleId};

const LISTENS: SocketAddr = SocketAddr::new(B, 80);

/// Both ends are rings of devices that have several, whose rules steer when they are said to.
fn slow() -> Pair {
    let mut pair = Pair::new();
    for ring in [&mut pair.a, &mut pair.b] {
        ring.output.caps.rings_max = 2;
        ring.queues().table().is_slow = true;
    }
    pair
}

fn client_of(port: u16) -> SocketAddr {
    SocketAddr::new(A, port)
}

/// The rule for these addresses steers from now on.
fn steers(ring: &mut Ring<Cable>, local: SocketAddr, remote: Option<SocketAddr>) {
    let rule = ring.queues().rule_of(local, remote).expect("it was asked for");
    ring.queues_mut().tell(DeviceEvent::RuleReady(rule));
}

/// The same, with a connection that was accepted, by a rule that steers.
fn accepted() -> (Pair, FlowId, FlowId, FlowId) {
    let mut pair = slow();
    pair.a.output.caps.rings_max = 1;
    pair.b.queues().table().is_slow = false;
    let (client, server, listener) = pair.connected();
    pair.b.queues().table().is_slow = true;
    (pair, client, server, listener)
}

fn state(ring: &Ring<Cable>, flow: FlowId) -> Option<tcp::State> {
    ring.info(flow).and_then(|info| info.state)
}

#[test]
fn a_connection_says_nothing_until_its_rule_steers() {
    let mut pair = slow();
    pair.b.tcp_listen(LISTENS, 4, &tcp::Config::default()).unwrap();
    let client = pair.connect(5000);
    pair.pass(Duration::from_secs(10));
    assert!(pair.b.queues().inward.lock().unwrap().is_empty() && state(&pair.a, client) == Some(tcp::State::SynSent));
    steers(&mut pair.a, client_of(5000), Some(LISTENS));
    pair.settle();
    assert_eq!(state(&pair.a, client), Some(tcp::State::Established));
}

#[test]
fn a_connection_whose_rule_fails_ends_with_a_reason_and_can_be_opened_again() {
    let mut pair = slow();
    pair.b.tcp_listen(LISTENS, 4, &tcp::Config::default()).unwrap();
    let client = pair.connect(5000);
    let rule = pair.a.queues().rule_of(client_of(5000), Some(LISTENS)).unwrap();
    pair.a.queues().table().rules.clear();
    pair.a.queues_mut().tell(DeviceEvent::RuleFailed(rule, RuleError::Full));
    pair.settle();
    assert!(pair.a.readiness(client).contains(Readiness::ERR));
    assert_eq!(pair.a.take_error(client), Some(Error::NoBuffers));
    pair.a.close(pair.now, client, false);
    let again = pair.connect(5000);
    steers(&mut pair.a, client_of(5000), Some(LISTENS));
    pair.settle();
    assert_eq!(state(&pair.a, again), Some(tcp::State::Established));
}

#[test]
fn one_that_is_closed_before_its_rule_steers_leaves_none() {
    let mut pair = slow();
    let client = pair.connect(5000);
    let rule = pair.a.queues().rule_of(client_of(5000), Some(LISTENS)).unwrap();
    pair.a.close(pair.now, client, false);
    pair.settle();
    assert!(pair.a.queues().table().rules.is_empty());
    // (The news of it was under way.)
    pair.a.queues_mut().tell(DeviceEvent::RuleReady(rule));
    pair.settle();
    assert!(pair.b.queues().inward.lock().unwrap().is_empty());
}

#[test]
fn accepted_connections_come_by_their_listeners_rule() {
    let (mut pair, client, server, listener) = accepted();
    assert_eq!(pair.b.queues().table().rules.len(), 1, "one rule for the listener and all that it accepts");
    pair.b.close(pair.now, server, true);
    pair.settle();
    assert_eq!(pair.b.queues().table().rules.len(), 1, "it is the listener's still");
    pair.b.close(pair.now, listener, false);
    assert!(pair.b.queues().table().rules.is_empty());
    pair.a.close(pair.now, client, false);
}

#[test]
fn when_a_listener_ends_its_connections_get_rules_of_their_own_first() {
    let (mut pair, _, server, listener) = accepted();
    let any = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 80);
    pair.b.close(pair.now, listener, false);
    assert!(pair.b.queues().rule_of(any, None).is_some(), "it stays until the other one steers");
    steers(&mut pair.b, LISTENS, Some(client_of(5000)));
    pair.settle();
    assert!(pair.b.queues().rule_of(any, None).is_none(), "another may listen there");
    assert!(pair.b.queues().rule_of(LISTENS, Some(client_of(5000))).is_some());
    pair.b.close(pair.now, server, true);
    pair.settle();
    assert!(pair.b.queues().table().rules.is_empty());
}

#[test]
fn connections_for_which_there_is_no_room_keep_their_listeners_rule() {
    for fails_late in [false, true] {
        let (mut pair, client, server, listener) = accepted();
        pair.b.queues().table().is_full = !fails_late;
        pair.b.close(pair.now, listener, false);
        if fails_late {
            let rule = pair.b.queues().rule_of(LISTENS, Some(client_of(5000))).unwrap();
            pair.b.queues().table().rules.retain(|(_, id)| *id != rule);
            pair.b.queues_mut().tell(DeviceEvent::RuleFailed(rule, RuleError::Full));
            pair.settle();
        }
        assert_eq!(pair.b.queues().table().rules.len(), 1);
        assert_eq!(write(&mut pair.a, pair.now, client, b"still there"), Ok(11));
        pair.settle();
        assert_eq!(read(&mut pair.b, pair.now, server, 64), Ok(b"still there".to_vec()));
        pair.b.close(pair.now, server, true);
        pair.settle();
        assert!(pair.b.queues().table().rules.is_empty());
    }
}

#[test]
fn sockets_whose_rules_fail_say_so() {
    let mut pair = slow();
    let listener = pair.b.tcp_listen(LISTENS, 4, &tcp::Config::default()).unwrap();
    let socket = pair.b.udp_open(LISTENS, &crate::ring::UdpOptions::default()).unwrap();
    let rules: Vec<_> = pair.b.queues().table().rules.drain(..).map(|(_, id)| id).collect();
    for rule in rules {
        pair.b.queues_mut().tell(DeviceEvent::RuleFailed(rule, RuleError::Taken));
    }
    pair.settle();
    for flow in [listener, socket] {
        assert!(pair.b.readiness(flow).contains(Readiness::ERR));
        assert_eq!(pair.b.take_error(flow), Some(Error::AddressInUse));
        pair.b.close(pair.now, flow, false);
    }
}

#[test]
fn one_that_has_ended_keeps_no_rule_though_the_program_keeps_it() {
    let (mut pair, client, server, listener) = accepted();
    pair.a.close(pair.now, client, true);
    pair.settle();
    assert_eq!(pair.b.take_error(server), Some(Error::Reset));
    pair.b.close(pair.now, listener, false);
    assert!(pair.b.queues().table().rules.is_empty(), "another may listen there");
    pair.b.tcp_listen(SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 80), 4, &tcp::Config::default()).unwrap();
    pair.b.close(pair.now, server, false);
    assert_eq!(pair.b.queues().table().rules.len(), 1);
}

#[test]
fn of_rules_that_follow_each_other_one_may_fail() {
    for first_fails in [true, false] {
        let mut pair = slow();
        let any = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 80);
        let socket = pair.b.udp_open(any, &crate::ring::UdpOptions::default()).unwrap();
        steers(&mut pair.b, any, None);
        pair.settle();
        let hop = NextHop::Neighbour(A);
        pair.b.udp_connect(socket, B, Some((client_of(5000), hop))).unwrap();
        pair.b.udp_connect(socket, "10.0.0.9".parse().unwrap(), Some((client_of(5000), hop))).unwrap();
        let rules: Vec<RuleId> = pair.b.queues().table().rules.iter().map(|(_, id)| *id).collect();
        assert_eq!(rules.len(), 3, "the first stays until the last steers");
        let failed = rules[if first_fails { 1 } else { 2 }];
        pair.b.queues().table().rules.retain(|(_, id)| *id != failed);
        pair.b.queues_mut().tell(DeviceEvent::RuleFailed(failed, RuleError::Full));
        let ready = rules[if first_fails { 2 } else { 1 }];
        pair.b.queues_mut().tell(DeviceEvent::RuleReady(ready));
        pair.settle();
        let left: Vec<RuleId> = pair.b.queues().table().rules.iter().map(|(_, id)| *id).collect();
        assert_eq!(left, [ready], "{first_fails}");
        pair.b.close(pair.now, socket, false);
        assert!(pair.b.queues().table().rules.is_empty());
    }
}

#[test]
fn one_whose_receiving_side_is_shut_down_waits_for_no_rule() {
    let mut pair = slow();
    let client = pair.connect(5000);
    pair.a.shutdown_rx(client).unwrap();
    pair.pass(Duration::from_secs(1));
    assert!(pair.a.queues().table().rules.is_empty());
    pair.pass(Duration::from_secs(600));
    assert_eq!(pair.a.take_error(client), Some(Error::TimedOut), "its SYN is answered to nobody");
}

/// Found by the simulator (55001709/registration/9/idle+slow+handover): nothing steered the connection any more, and it timed out.
#[test]
fn one_that_has_moved_and_whose_rule_fails_asks_for_another() {
    let (mut pair, client, server, listener) = accepted();
    let handover = pair.b.detach_stream(pair.now, server).unwrap();
    let server = pair.b.adopt(pair.now, handover).map_err(|(error, _)| error).unwrap();
    let rule = pair.b.queues().rule_of(LISTENS, Some(client_of(5000))).expect("its own");
    {
        let mut table = pair.b.queues().table();
        (table.is_slow, table.is_full) = (false, true);
        table.rules.retain(|(_, id)| *id != rule);
    }
    pair.b.queues_mut().tell(DeviceEvent::RuleFailed(rule, RuleError::Full));
    pair.pass(Duration::from_millis(100));
    assert!(pair.b.queues().rule_of(LISTENS, Some(client_of(5000))).is_none());
    pair.b.queues().table().is_full = false;
    pair.pass(Duration::from_millis(100));
    assert!(pair.b.queues().rule_of(LISTENS, Some(client_of(5000))).is_some());
    pair.b.close(pair.now, server, true);
    pair.b.close(pair.now, listener, false);
    pair.a.close(pair.now, client, false);
    pair.settle();
    assert!(pair.b.queues().table().rules.is_empty());
}

/// Where the kernel has what no rule steers, a connection of a device's only ring has a rule, too: or its answers would come to the kernel.
#[test]
fn beside_the_kernel_a_connection_has_a_rule_whatever_rings_there_are() {
    for is_beside_kernel in [false, true] {
        let mut pair = Pair::new();
        (pair.a.output.caps.rings_max, pair.a.output.caps.is_beside_kernel) = (1, is_beside_kernel);
        pair.connected();
        assert_eq!(pair.a.queues().rule_of(client_of(5000), Some(LISTENS)).is_some(), is_beside_kernel);
    }
}
