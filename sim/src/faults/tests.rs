use super::episodes::Plan;
use super::*;
use crate::random::{Purpose, RandomStream};

#[test]
fn every_class_has_a_name_that_reads_back() {
    assert_eq!(FaultSet::all().bits(), (1 << 27) - 1);
    for (name, class) in FaultSet::all().iter_names() {
        assert_eq!(class.to_string(), name.to_ascii_lowercase());
        assert_eq!(class.to_string().parse(), Ok(class));
    }
    assert_eq!("one_way+icmp".parse(), Ok(FaultSet::ONE_WAY | FaultSet::ICMP));
    assert_eq!(FaultSet::empty().to_string().parse(), Ok(FaultSet::empty()));
}

/// With no class kept, nothing that strikes is left; with all of them, everything is as it was.
#[test]
fn only_keeps_what_it_is_told_to() {
    let mut stream = RandomStream::new(1, Purpose::Options, 0, 0);
    for _ in 0..100 {
        let (link, host) = (Faults::draw(&mut stream), HostFaults::draw(&mut stream));
        assert_eq!((link.only(FaultSet::all()), host.only(FaultSet::all())), (link, host));
        let (none, nobody) = (link.only(FaultSet::empty()), host.only(FaultSet::empty()));
        let ppm = [none.loss_ppm, none.duplication_ppm, none.reordering_ppm, none.corruption_ppm, none.burst_ppm];
        assert_eq!(ppm, [0; 5]);
        assert_eq!((none.hidden_corruption_ppm, none.icmp_delay_ppm, none.mark_ppm), (0, 0, 0));
        let link_episodes = [none.delay, none.bandwidth, none.mtu, none.partition, none.one_way, none.flap];
        let host_episodes = [nobody.clock, nobody.pause, nobody.crash, nobody.neighbour, nobody.icmp];
        assert_eq!(nobody.forge_ppm, 0);
        assert!(link_episodes.iter().chain(&host_episodes).all(Episodes::never));
    }
}

#[test]
fn every_drawn_class_strikes() {
    let mut stream = RandomStream::new(2, Purpose::Options, 0, 0);
    for _ in 0..200 {
        let (link, host) = (Faults::draw(&mut stream), HostFaults::draw(&mut stream));
        let drawn = [link.delay, link.bandwidth, link.mtu, link.partition, link.one_way, link.flap];
        let host_drawn = [host.clock, host.pause, host.crash, host.neighbour, host.icmp];
        let lasts = |e: &Episodes| !e.never() && e.length_max >= core::time::Duration::from_millis(1);
        // (A clock may drift, by tiny steps.)
        assert!(drawn.iter().chain(&host_drawn[1..]).all(lasts) && !host.clock.never() && !host.clock.length_max.is_zero());
        assert!(
            link.burst_ppm > 0 && link.burst_frames > 1 && link.hidden_corruption_ppm > 0 && link.icmp_delay_ppm > 0 && host.forge_ppm > 0
        );
        assert!((576..=1400).contains(&link.mtu_min));
    }
}

#[test]
fn episodes_are_as_long_and_as_far_apart_as_they_should() {
    let episodes = Episodes { every: core::time::Duration::from_millis(100), length_max: core::time::Duration::from_millis(64) };
    let mut course = Course::new(3, Purpose::Flap, 0);
    let plans: Vec<Plan> = (0..2000).map(|_| course.next(episodes)).collect();
    let millis = |d: core::time::Duration| d.as_secs_f64() * 1e3;
    assert!(plans.iter().all(|p| (50.0..150.0).contains(&millis(p.after)) && (0.99..=64.0).contains(&millis(p.length))));
    let mean = plans.iter().map(|p| millis(p.after)).sum::<f64>() / 2000.0;
    assert!((95.0..105.0).contains(&mean), "{mean}");
    assert!(plans.iter().any(|p| millis(p.length) < 2.0) && plans.iter().any(|p| millis(p.length) > 32.0));
}

#[test]
fn attackers_differ_in_zeal_and_scruples() {
    let drawn: Vec<_> = (0..100).map(|seed| HostFaults::draw(&mut RandomStream::new(seed, Purpose::Options, 0, 0))).collect();
    assert!(drawn.iter().all(|faults| (2_000..=250_000).contains(&faults.forge_ppm)));
    let liars = drawn.iter().filter(|faults| faults.forge_lies).count();
    assert!((5..=50).contains(&liars), "{liars}");
    let texts: Vec<_> = Forgery::ALL.iter().map(ToString::to_string).collect();
    let distinct: std::collections::BTreeSet<_> = texts.iter().collect();
    assert_eq!(distinct.len(), Forgery::ALL.len());
}
