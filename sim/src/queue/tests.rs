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
