use super::ranges::Ranges;

#[test]
fn ranges_join_and_fill() {
    let mut ranges = Ranges::from(u32::MAX - 1);
    ranges.add(5, 10);
    ranges.add(20, 30);
    assert!(ranges.has(5, 10) && !ranges.has(5, 11) && !ranges.has(u32::MAX, 0));
    ranges.add(10, 20);
    assert!(ranges.has(5, 30));
    assert_eq!(ranges.next, u32::MAX - 1);
    ranges.add(u32::MAX - 3, 5);
    assert_eq!(ranges.next, 30);
    assert!(ranges.has(1, 30) && !ranges.has(1, 31));
}
