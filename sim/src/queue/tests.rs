use super::*;

#[test]
fn same_instant_keeps_the_order_of_insertion() {
    let mut queue = EventQueue::new();
    let (early, late) = (Instant::from_nanos(5), Instant::from_nanos(9));
    queue.push(late, "c");
    queue.push(early, "a");
    queue.push(late, "d");
    queue.push(early, "b");
    let order: Vec<_> = core::iter::from_fn(|| queue.pop_until(late)).map(|(_, e)| e).collect();
    assert_eq!(order, ["a", "b", "c", "d"]);
}

#[test]
fn later_events_stay() {
    let mut queue = EventQueue::new();
    queue.push(Instant::from_nanos(10), ());
    assert_eq!(queue.pop_until(Instant::from_nanos(9)), None);
    assert_eq!(queue.next_at(), Some(Instant::from_nanos(10)));
    assert!(queue.pop_until(Instant::from_nanos(10)).is_some());
    assert_eq!(queue.next_at(), None);
}

/// Whatever is pushed where, the order is that of one list sorted by time and age.
#[test]
fn lanes_change_no_order() {
    let mut random = crate::random::SplitMix(7);
    let mut queue = EventQueue::new();
    let mut expected = Vec::new();
    let (mut now, mut popped) = (0, Vec::new());
    for number in 0..10_000u32 {
        let at = Instant::from_nanos(now + random.next() % 50);
        let at = if number % 3 == 0 { Instant::from_nanos(now) } else { at };
        match random.next() % 5 {
            _ if number % 3 == 0 => queue.push_now(at, number),
            0 => queue.push(at, number),
            lane => queue.push_in(usize::try_from(lane).unwrap(), at, number),
        }
        expected.push((at, number));
        if random.next().is_multiple_of(2) {
            now += random.next() % 20;
            let until = Instant::from_nanos(now);
            popped.extend(core::iter::from_fn(|| queue.pop_until(until)));
        }
    }
    popped.extend(core::iter::from_fn(|| queue.pop_until(Instant::from_nanos(u64::MAX))));
    expected.sort();
    assert_eq!(popped, expected);
}
