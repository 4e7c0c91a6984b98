use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const HUP: u32 = libc::EPOLLHUP as u32;

fn item(socket: u32, events: u32) -> Item {
    Item { target: Target::Socket(socket), fd: i32::try_from(socket).expect("small"), events, data: u64::from(socket) + 100, kernel: None }
}

/// Reports of one collection: (data, events).
fn collect(interest: &mut Interest, max: usize, ready: &[u32]) -> Vec<(u64, u32)> {
    static ROUNDS: AtomicU32 = AtomicU32::new(1);
    let mut reports = Vec::new();
    interest.collect(
        ROUNDS.fetch_add(1, Ordering::Relaxed),
        0..max,
        |item| Some(ready_of(item, ready)),
        |_, data, events| reports.push((data, events)),
    );
    reports
}

fn ready_of(item: &Item, ready: &[u32]) -> u32 {
    match item.target {
        Target::Socket(socket) => ready[socket as usize],
        Target::KernelHalf(_) | Target::Epoll(_) | Target::Ring(_) | Target::Kernel => unreachable!("sockets only"),
    }
}

#[test]
fn level_is_reported_until_it_is_gone() {
    let mut interest = Interest::new();
    let a = interest.add(item(0, IN));
    assert_eq!(interest.edge(a, IN | OUT), Edge::New);
    assert_eq!(collect(&mut interest, 9, &[IN | OUT]), [(100, IN)]);
    assert_eq!(collect(&mut interest, 9, &[IN | HUP]), [(100, IN | HUP)]);
    assert_eq!(collect(&mut interest, 9, &[OUT]), []);
    assert!(!interest.may_be_ready());
}

#[test]
fn an_edge_is_reported_once() {
    let mut interest = Interest::new();
    let a = interest.add(item(0, IN | EDGE));
    interest.edge(a, IN);
    assert_eq!(collect(&mut interest, 9, &[IN]), [(100, IN)]);
    assert_eq!(collect(&mut interest, 9, &[IN]), []);
    interest.edge(a, IN);
    assert_eq!(collect(&mut interest, 9, &[IN]), [(100, IN)]);
}

#[test]
fn one_shot_waits_to_be_armed_again() {
    let mut interest = Interest::new();
    let a = interest.add(item(0, IN | ONE_SHOT));
    interest.edge(a, IN);
    assert_eq!(collect(&mut interest, 9, &[IN]), [(100, IN)]);
    assert_eq!(interest.edge(a, IN), Edge::Nothing);
    assert_eq!(interest.kernel_event(a, IN), None);
    interest.modify(a, IN | ONE_SHOT, 7);
    assert_eq!(interest.kernel_event(a, IN), Some((7, IN)));
    assert_eq!(interest.edge(a, IN), Edge::Nothing, "the kernel's report disarmed it as well");
}

#[test]
fn few_at_a_time_is_fair() {
    let mut interest = Interest::new();
    for socket in 0..3 {
        let index = interest.add(item(socket, IN));
        interest.edge(index, IN);
    }
    let order: Vec<u64> = (0..6).map(|_| collect(&mut interest, 1, &[IN; 3])[0].0).collect();
    assert_eq!(order, [100, 101, 102, 100, 101, 102]);
}

#[test]
fn a_removed_item_is_not_reported_and_its_slot_is_used_again() {
    let mut interest = Interest::new();
    let indices = [0, 1, 2].map(|socket| interest.add(item(socket, IN)));
    for index in indices {
        interest.edge(index, IN);
    }
    assert_eq!(interest.remove(indices[1]).map(|item| item.fd), Some(1));
    assert!(interest.remove(indices[1]).is_none());
    assert_eq!(collect(&mut interest, 9, &[IN; 3]), [(100, IN), (102, IN)]);
    assert_eq!(interest.add(item(1, IN)), indices[1]);
    assert_eq!(interest.len(), 3);
}

/// The plainest thing that could be right: a queue of sockets' numbers.
#[derive(Default)]
struct Model {
    items: BTreeMap<u32, (u32, bool)>,
    queue: VecDeque<u32>,
}

impl Model {
    fn edge(&mut self, socket: u32, edges: u32) {
        let Some(&(events, disarmed)) = self.items.get(&socket) else { return };
        if !disarmed && edges & ((events & !MANNER) | ALWAYS) != 0 && !self.queue.contains(&socket) {
            self.queue.push_back(socket);
        }
    }

    fn collect(&mut self, max: usize, ready: &[u32]) -> Vec<(u64, u32)> {
        let mut reports = Vec::new();
        for _ in 0..self.queue.len() {
            if reports.len() == max {
                break;
            }
            let socket = self.queue.pop_front().expect("counted");
            let (events, disarmed) = self.items.get_mut(&socket).expect("removal clears the queue");
            let found = ready[socket as usize] & ((*events & !MANNER) | ALWAYS);
            if found == 0 {
                continue;
            }
            reports.push((u64::from(socket) + 100, found));
            if *events & ONE_SHOT != 0 {
                *disarmed = true;
            } else if *events & EDGE == 0 {
                self.queue.push_back(socket);
            }
        }
        reports
    }
}

#[derive(Clone, Debug)]
enum Op {
    Add(u32, u32),
    Modify(u32, u32),
    Remove(u32),
    /// The socket's readiness becomes this, and it is announced.
    Ready(u32, u32),
    /// The program read: readiness goes without a word.
    Quiet(u32),
    Collect(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let socket = 0u32..5;
    let events = (0u32..4, prop::sample::select(vec![0, EDGE, ONE_SHOT, EDGE | ONE_SHOT]))
        .prop_map(|(bits, manner)| (if bits & 1 != 0 { IN } else { 0 }) | (if bits & 2 != 0 { OUT } else { 0 }) | manner);
    let ready = prop::sample::select(vec![0, IN, OUT, IN | OUT, HUP]);
    let op = prop_oneof![
        (socket.clone(), events.clone()).prop_map(|(s, e)| Op::Add(s, e)),
        (socket.clone(), events).prop_map(|(s, e)| Op::Modify(s, e)),
        socket.clone().prop_map(Op::Remove),
        (socket.clone(), ready).prop_map(|(s, r)| Op::Ready(s, r)),
        socket.prop_map(Op::Quiet),
        (1usize..4).prop_map(Op::Collect),
    ];
    prop::collection::vec(op, 0..120)
}

proptest! {
    #[test]
    fn it_does_as_the_model(ops in ops()) {
        let (mut interest, mut model) = (Interest::new(), Model::default());
        let mut index_of = BTreeMap::new();
        let mut ready = [0u32; 5];
        for op in ops {
            match op {
                Op::Add(socket, events) if !index_of.contains_key(&socket) => {
                    let index = interest.add(item(socket, events));
                    index_of.insert(socket, index);
                    model.items.insert(socket, (events, false));
                    interest.edge(index, ready[socket as usize]);
                    model.edge(socket, ready[socket as usize]);
                }
                Op::Modify(socket, events) if index_of.contains_key(&socket) => {
                    interest.modify(index_of[&socket], events, u64::from(socket) + 100);
                    interest.edge(index_of[&socket], ready[socket as usize]);
                    model.items.insert(socket, (events, false));
                    model.queue.retain(|&queued| queued != socket);
                    model.edge(socket, ready[socket as usize]);
                }
                Op::Remove(socket) => {
                    if let Some(index) = index_of.remove(&socket) {
                        prop_assert!(interest.remove(index).is_some());
                        model.items.remove(&socket);
                        model.queue.retain(|&queued| queued != socket);
                    }
                }
                Op::Ready(socket, readiness) => {
                    ready[socket as usize] = readiness;
                    if let Some(&index) = index_of.get(&socket) {
                        interest.edge(index, readiness);
                        model.edge(socket, readiness);
                    }
                }
                Op::Quiet(socket) => ready[socket as usize] = 0,
                Op::Collect(max) => prop_assert_eq!(collect(&mut interest, max, &ready), model.collect(max, &ready)),
                Op::Add(..) | Op::Modify(..) => {}
            }
            prop_assert_eq!(interest.len(), index_of.len());
            prop_assert_eq!(interest.may_be_ready(), !model.queue.is_empty());
        }
    }
}

#[test]
fn a_collection_that_is_ended_leaves_the_item_where_it_is() {
    let mut interest = Interest::new();
    let items: Vec<u32> = (0..3).map(|socket| interest.add(item(socket, IN))).collect();
    items.iter().for_each(|&item| assert_eq!(interest.edge(item, IN), Edge::New));
    let mut reports = Vec::new();
    let readiness = |item: &Item| (item.target != Target::Socket(1)).then_some(IN);
    assert_eq!(interest.collect(1, 0..8, readiness, |_, data, _| reports.push(data)), 1);
    assert_eq!(interest.collect(2, 0..8, readiness, |_, data, _| reports.push(data)), 0, "it is the first");
    assert_eq!(interest.collect(3, 0..8, |_| Some(IN), |_, data, _| reports.push(data)), 3);
    assert_eq!(reports, [100, 101, 102, 100]);
}

#[test]
fn parts_of_a_collection_report_each_item_once_and_place_after_place() {
    let mut interest = Interest::new();
    let items: Vec<u32> = (0..4).map(|socket| interest.add(item(socket, IN))).collect();
    items.iter().for_each(|&item| assert_eq!(interest.edge(item, IN), Edge::New));
    let of = |socket: u32| move |item: &Item| (item.target == Target::Socket(socket)).then_some(IN);
    let mut places = Vec::new();
    let mut part = |interest: &mut Interest, round, from, socket| {
        interest.collect(round, from..8, of(socket), |place, data, _| places.push((place, data)))
    };
    assert_eq!((part(&mut interest, 1, 0, 0), part(&mut interest, 1, 1, 0), part(&mut interest, 1, 1, 1)), (1, 0, 1));
    assert_eq!(interest.first(), Some(Target::Socket(2)));
    assert_eq!((part(&mut interest, 1, 2, 2), part(&mut interest, 1, 3, 3)), (1, 1));
    // (It is back at the head.)
    assert_eq!((interest.first(), part(&mut interest, 1, 4, 0)), (Some(Target::Socket(0)), 0));
    assert_eq!(part(&mut interest, 2, 0, 0), 1, "another collection");
    assert_eq!(places, [(0, 100), (1, 101), (2, 102), (3, 103), (0, 100)]);
    assert_eq!((interest.reported_in(1, items[1]), interest.reported_in(2, items[0])), (Some(1), Some(0)));
}
