use ringway_sim::Family;

use super::super::program::Target;
use super::super::ringway::Ringway;
use super::*;

const A0: Slot = Slot::new(Host::A, 0);
const B0: Slot = Slot::new(Host::B, 0);
const B3: Slot = Slot::new(Host::B, 3);

fn compare(left: &mut Ringway, right: &mut Ringway, ops: &[Op]) -> Run {
    run(left, right, &mut ops.iter().copied(), 0, &mut |_| Verdict::Bug)
}

#[test]
fn two_worlds_of_different_seeds_are_alike_to_programs() {
    let ops = [
        Op::Socket(Host::B, Kind::Tcp),
        Op::Listen(B0, 1),
        Op::Socket(Host::A, Kind::Tcp),
        Op::Connect(A0, Target::Of(B0)),
        Op::Accept(B0),
        Op::Send(A0, 10, false),
        Op::Fill(A0),
        Op::Close(A0),
    ];
    let run = compare(&mut Ringway::new(1, Family::V4), &mut Ringway::new(2, Family::V4), &ops);
    assert_eq!((run.bug, run.steps.len()), (None, ops.len()), "{run}");
}

#[test]
fn a_call_that_ends_otherwise_is_noticed_and_ends_the_program() {
    let mut right = Ringway::new(1, Family::V4);
    right.socket(B3, Kind::Tcp).unwrap();
    right.bind(B3, 5001).unwrap();
    let ops = [Op::Socket(Host::B, Kind::Tcp), Op::Bind(B0, 5001), Op::Listen(B0, 1)];
    let run = compare(&mut Ringway::new(1, Family::V4), &mut right, &ops);
    assert_eq!((run.bug, run.steps.len()), (Some(Where::Outcome), 2), "{run}");
    assert_eq!(run.steps[1].kernel.outcome, Outcome::Returned(Err(Errno::IN_USE), None));
}

#[test]
fn what_only_poll_shows_is_noticed() {
    let mut right = Ringway::new(1, Family::V4);
    // Somebody who has connected before the program does.
    let ops = [Op::Socket(Host::B, Kind::Tcp), Op::Bind(B0, 5001), Op::Listen(B0, 1), Op::Socket(Host::A, Kind::Udp)];
    let mut source = ops.iter().copied();
    let mut left = Ringway::new(1, Family::V4);
    assert_eq!(run(&mut left, &mut right, &mut (&mut source).take(3), 0, &mut |_| Verdict::Bug).bug, None);
    let stranger = Slot::new(Host::A, 3);
    right.socket(stranger, Kind::Tcp).unwrap();
    assert_eq!(right.connect(stranger, Address { host: Host::B, port: 5001 }), Err(Errno::IN_PROGRESS));
    right.pass(1);
    let mut worlds = Worlds { sim: World::new(&mut left), kernel: World::new(&mut right), roles: [None; SLOTS] };
    worlds.roles[B0.index()] = Some(Role::Listener);
    let (step, ending) = worlds.step(ops[3], 0, 0, &mut |_, _| Verdict::Bug).unwrap();
    assert!(matches!(ending, Ending::Bug(Where::Revents(slot)) if slot == B0), "{step:?}");
}
