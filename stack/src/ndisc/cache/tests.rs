//! Bounds, floods, and what holds whatever happens.

use proptest::prelude::*;
use rand_core::SeedableRng;

use super::*;

const US: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const START: Instant = Instant::from_nanos(1_000_000_000);
const SECOND: Duration = Duration::from_secs(1);

struct Bench {
    cache: Cache<u32>,
    random: ChaCha8Rng,
    actions: VecDeque<Action<u32>>,
}

impl Bench {
    fn new(neighbours_max: usize) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let config = Config { neighbours_max, ..Config::default() };
        Self { cache: Cache::new(config, &mut random), random, actions: VecDeque::new() }
    }

    fn lookup(&mut self, now: Instant, ip: Ipv6Addr) -> Lookup {
        self.cache.lookup(now, US, ip, &mut self.actions)
    }

    fn advertise(&mut self, now: Instant, ip: Ipv6Addr, advertised: Advertised) {
        self.cache.on_advertisement(now, ip, advertised, &mut self.random, &mut self.actions);
    }

    /// Has our own program get to know somebody.
    fn meet(&mut self, now: Instant, ip: Ipv6Addr) {
        self.lookup(now, ip);
        self.advertise(now, ip, answer(mac(1)));
    }

    /// The lists are the table's, and the table is no larger than it may be.
    fn check(&self) {
        let Cache { table, unasked, incomplete, config, .. } = &self.cache;
        assert!(table.len() <= config.neighbours_max && unasked.len() <= config.neighbours_max / 4);
        for (order, ip) in unasked {
            let entry = &table[ip];
            assert!(entry.order == *order && matches!(entry.state, State::Known { .. }));
        }
        for (order, ip) in incomplete {
            assert!(table[ip].order == *order);
        }
        let asked_for = table.values().filter(|entry| matches!(entry.state, State::Incomplete { .. })).count();
        assert_eq!(asked_for, incomplete.len());
        assert_eq!(table.values().filter(|entry| entry.order != 0).count(), incomplete.len() + unasked.len());
        let earliest = table.values().filter_map(Entry::deadline).min();
        assert!(earliest.is_none_or(|at| self.cache.due.is_some_and(|due| due <= at)), "no timer is forgotten");
    }
}

const fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

const fn ip(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, n)
}

const fn answer(mac: MacAddr) -> Advertised {
    Advertised { router: false, solicited: true, overriding: true, mac: Some(mac) }
}

/// Solicitations from ever other addresses, each with an address of its own; and, worse, advertisements that vouch for them.
#[test]
fn strangers_who_introduce_themselves_displace_nobody() {
    let mut bench = Bench::new(64);
    for n in 0..60 {
        bench.meet(START, ip(n));
    }
    // All of them are stale by now.
    let now = START + SECOND * 100;
    for n in 1000..20_000 {
        bench.cache.learn(now, ip(n), mac(9), None, &mut bench.actions);
        bench.advertise(now, ip(n), answer(mac(9)));
        bench.check();
    }
    assert!((0..60).all(|n| bench.cache.known(ip(n)) == Some(mac(1))));
    assert_eq!(bench.cache.len(), 64);
    assert!(bench.cache.known(ip(19_999)).is_some() && bench.cache.known(ip(19_995)).is_none(), "the newest of them stay");
    // Whom our own program wants to talk to finds room among them; and one that it has talked to is a stranger no longer.
    bench.lookup(now, ip(19_999));
    for n in 60..63 {
        bench.meet(now, ip(n));
    }
    bench.check();
    assert_eq!(bench.cache.unasked.len(), 0);
    assert!((0..63).chain([19_999]).all(|n| bench.cache.known(ip(n)).is_some()));
    bench.cache.learn(now, ip(5), mac(9), None, &mut bench.actions);
    bench.cache.learn(now, ip(777), mac(9), None, &mut bench.actions);
    assert_eq!((bench.cache.known(ip(5)), bench.cache.known(ip(777))), (Some(mac(9)), None), "the table is full of acquaintances");
}

#[test]
fn strangers_have_a_quarter_of_an_empty_table() {
    let mut bench = Bench::new(64);
    for n in 0..1000 {
        bench.cache.learn(START, ip(n), mac(9), None, &mut bench.actions);
    }
    bench.check();
    assert_eq!(bench.cache.len(), 16);
}

/// Packets to ever other addresses that nobody has: such as answers to SYNs from forged ones.
#[test]
fn questions_that_nobody_answers_displace_one_neighbour() {
    let mut bench = Bench::new(64);
    for n in 0..64 {
        bench.meet(START + SECOND * n, ip(n as u16));
    }
    bench.actions.clear();
    let now = START + SECOND * 200;
    for n in 1000..20_000 {
        assert_eq!(bench.lookup(now, ip(n)), Lookup::Asked);
        assert_eq!(bench.cache.hold(ip(n), u32::from(n)), None);
        bench.check();
    }
    let forgotten: Vec<_> = (0..64).filter(|&n| bench.cache.known(ip(n)).is_none()).collect();
    assert_eq!(forgotten, [0], "the one that was used the longest ago");
    // Each of the others is told that it has to give way, with what it held.
    let gave_way: Vec<_> = bench.actions.iter().filter(|action| matches!(action, Action::Unreachable { .. })).collect();
    assert_eq!(gave_way.len(), 18_999);
    let expected = Action::Unreachable { neighbour: ip(1000), packets: [1000].into_iter().collect() };
    assert_eq!(*gave_way[0], expected);
}

#[test]
fn who_was_heard_of_lately_stays_longest() {
    let mut bench = Bench::new(4);
    for n in 0..4 {
        bench.meet(START, ip(n));
    }
    let now = START + SECOND * 100;
    bench.cache.confirm(now, ip(0), &mut bench.random);
    bench.lookup(now, ip(1));
    bench.lookup(now + SECOND, ip(2));
    // 3 is stale; then 0 is reachable, though it was used the longest ago of all; 1 and 2 are waited for.
    for (newcomer, goes) in [(10, 3), (11, 0), (12, 1)] {
        bench.meet(now + SECOND * 2, ip(newcomer));
        assert!(bench.cache.known(ip(goes)).is_none(), "{goes} goes for {newcomer}");
        assert_eq!(bench.cache.len(), 4);
    }
}

#[test]
fn what_the_owner_said_is_never_forgotten() {
    let mut bench = Bench::new(4);
    for n in 0..4 {
        assert!(bench.cache.set(ip(n), Some(mac(7)), &mut bench.actions));
    }
    assert!(!bench.cache.set(ip(4), Some(mac(7)), &mut bench.actions));
    assert!(bench.cache.set(ip(3), Some(mac(8)), &mut bench.actions));
    assert_eq!(bench.lookup(START, ip(4)), Lookup::Full);
    bench.cache.learn(START, ip(5), mac(9), None, &mut bench.actions);
    bench.check();
    assert_eq!((bench.cache.len(), bench.cache.known(ip(3)), bench.cache.known(ip(5))), (4, Some(mac(8)), None));
    assert!(bench.actions.is_empty());
}

/// A flag that changes with every message is heard as often as somebody listens.
#[test]
fn a_router_that_changes_its_mind_fills_nothing() {
    let mut bench = Bench::new(4);
    bench.meet(START, ip(0));
    for n in 0..10_000 {
        bench.advertise(START, ip(0), Advertised { router: n % 2 == 0, ..answer(mac(1)) });
    }
    assert!(bench.actions.len() <= 4);
}

#[derive(Clone, Debug)]
enum Step {
    Lookup(u16),
    Hold(u16),
    Advertise(u16, u8, [bool; 3], bool),
    Learn(u16, u8, Option<bool>),
    Confirm(u16),
    Set(u16, bool),
    Pass(u64),
    Configure(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..12u16;
    prop_oneof![
        4 => who.clone().prop_map(Step::Lookup),
        4 => who.clone().prop_map(Step::Hold),
        4 => (who.clone(), 0..3u8, any::<[bool; 3]>(), any::<bool>()).prop_map(|(n, mac, flags, has)| Step::Advertise(n, mac, flags, has)),
        4 => (who.clone(), 0..3u8, any::<Option<bool>>()).prop_map(|(n, mac, router)| Step::Learn(n, mac, router)),
        2 => who.clone().prop_map(Step::Confirm),
        1 => (who, any::<bool>()).prop_map(|(n, known)| Step::Set(n, known)),
        4 => prop_oneof![0..2000u64, 0..60_000u64].prop_map(Step::Pass),
        1 => (0..10_000u64, 0..3000u64).prop_map(|(reachable, retransmit)| Step::Configure(reachable, retransmit)),
    ]
}

/// Runs `steps`; gives everything that happened.
fn run(steps: &[Step]) -> Vec<String> {
    let mut bench = Bench::new(8);
    let (mut now, mut held, mut back) = (START, 0, vec![]);
    let mut log = vec![];
    for step in steps {
        match *step {
            Step::Lookup(n) => log.push(format!("{:?}", bench.lookup(now, ip(n)))),
            Step::Hold(n) => {
                back.extend(bench.cache.hold(ip(n), held));
                held += 1;
            }
            Step::Advertise(n, m, [router, solicited, overriding], has) => {
                bench.advertise(now, ip(n), Advertised { router, solicited, overriding, mac: has.then(|| mac(m)) });
            }
            Step::Learn(n, m, router) => bench.cache.learn(now, ip(n), mac(m), router, &mut bench.actions),
            Step::Confirm(n) => bench.cache.confirm(now, ip(n), &mut bench.random),
            Step::Set(n, known) => {
                bench.cache.set(ip(n), known.then(|| mac(7)), &mut bench.actions);
            }
            Step::Pass(millis) => {
                now += Duration::from_millis(millis);
                bench.cache.on_timer(now, &mut bench.actions);
                assert!(bench.cache.next_deadline().is_none_or(|at| at > now));
            }
            Step::Configure(reachable, retransmit) => {
                let (reachable, retransmit) = (Duration::from_millis(reachable), Duration::from_millis(retransmit));
                bench.cache.configure(now, reachable, retransmit, &mut bench.random);
            }
        }
        bench.check();
        for action in bench.actions.drain(..) {
            log.push(format!("{now:?} {action:?}"));
            match action {
                Action::Resolved { neighbour, mac, packets } => {
                    assert_eq!(bench.cache.known(neighbour), Some(mac));
                    back.extend(packets);
                }
                Action::Unreachable { packets, .. } => back.extend(packets),
                _ => {}
            }
        }
    }
    // Whoever still waits is told in the end: no packet is lost, and none comes twice.
    for _ in 0..4 {
        now += SECOND * 60;
        bench.cache.on_timer(now, &mut bench.actions);
    }
    for action in bench.actions {
        if let Action::Unreachable { packets, .. } = action {
            back.extend(packets);
        }
    }
    back.sort_unstable();
    assert_eq!(back, (0..held).collect::<Vec<_>>());
    log
}

proptest! {
    #[test]
    fn whatever_happens_packets_come_back_once_and_lists_agree(steps in proptest::collection::vec(step(), 0..120)) {
        prop_assert_eq!(run(&steps), run(&steps), "the same seed, the same story");
    }
}
