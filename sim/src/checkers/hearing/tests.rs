//! What came is read, and what was refused is told; and what happens where it is not.

use super::*;

fn moment() -> Moment {
    Moment::after(1000)
}

fn datagram(bytes: &[u8]) -> Datagram {
    Datagram::new("10.0.0.2:90".parse().unwrap(), "10.0.0.1:80".parse().unwrap(), bytes)
}

/// A socket with so much room, for which these came; they were polled, and an event says so.
fn socket(room: usize, came: &[&[u8]]) -> State {
    let mut state = State::open(UdpOptions { rcvbuf: room, ..UdpOptions::default() }, false, Instant::ZERO, false);
    came.iter().for_each(|bytes| state.expect(Instant::ZERO, datagram(bytes), true, false));
    state.raised();
    state.polled(&moment(), true);
    state
}

#[test]
fn what_came_is_read_in_its_order_unless_there_was_no_room_for_it() {
    let mut state = socket(600, &[b"one", b"two", b"there was no room for this one"]);
    state.read(&moment(), &datagram(b"one"), true, true);
    state.read(&moment(), &datagram(b"one"), false, true);
    state.read(&moment(), &datagram(b"two"), false, true);
    state.empty(&moment(), true);
    assert_eq!((state.queued, state.awaited.len()), (0, 0));
    state.expect(moment().at, datagram(b"under way"), true, false);
    state.empty(&moment(), true);
    assert_eq!(state.awaited.len(), 1, "it need not have been polled yet");
}

#[test]
fn of_two_that_are_alike_it_is_not_known_which_was_dropped() {
    // There is room for two.
    let mut state = socket(600, &[b"one", b"two", b"", b"three"]);
    state.read(&moment(), &datagram(b"one"), false, true);
    state.read(&moment(), &datagram(b"two"), false, true);
    state.polls();
    state.expect(moment().at, datagram(b""), true, true);
    state.expect(moment().at, datagram(b"four"), true, true);
    state.awaited.iter_mut().skip(2).for_each(|awaited| awaited.droppable = false);
    state.read(&moment(), &datagram(b""), false, true);
    state.read(&moment(), &datagram(b"four"), false, true);
}

/// What was on its way to a group when the socket joined it may take room that what comes then does not find (as in the seed 71446498).
#[test]
fn what_was_under_way_to_a_group_takes_room() {
    let reads_the_last_of_three = |joins: bool| {
        let mut state = socket(600, &[]);
        if joins {
            // (It is known already, if the socket was a member before.)
            (0..2).for_each(|_| state.perhaps(moment().at, datagram(b"to the group")));
        }
        let came = moment().at + Duration::from_micros(50);
        [b"one", b"two"].iter().for_each(|&bytes| state.expect(came, datagram(bytes), true, false));
        state.expect(came, datagram(b"last"), true, false);
        state.awaited.back_mut().unwrap().droppable = false;
        state.read(&moment(), &datagram(b"one"), false, true);
        state.read(&moment(), &datagram(b"last"), false, true);
        state
    };
    let state = reads_the_last_of_three(true);
    assert_eq!((state.queued, state.awaited.len()), (0, 0));
    assert!(std::panic::catch_unwind(|| reads_the_last_of_three(false)).is_err(), "there was room for two");
}

#[test]
#[should_panic(expected = "which came before, was not")]
fn one_is_lost_before_another() {
    socket(6000, &[b"one", b"two"]).read(&moment(), &datagram(b"two"), false, true);
}

#[test]
#[should_panic(expected = "cannot be read")]
fn one_is_lost() {
    // (However little room there is, for one there is some.)
    socket(10, &[b"longer than that"]).empty(&moment(), true);
}

#[test]
#[should_panic(expected = "and no event says so")]
fn one_comes_in_silence() {
    let mut state = socket(6000, &[]);
    state.expect(Instant::ZERO, datagram(b"one"), true, false);
    state.polled(&moment(), true);
}

#[test]
#[should_panic(expected = "2 datagrams waited, that take 512 of 300 bytes")]
fn more_wait_than_there_is_room_for() {
    let mut state = socket(300, &[b"", b""]);
    (0..2).for_each(|_| state.read(&moment(), &datagram(b""), false, true));
}

/// An error came for it.
fn refused(state: &mut State) {
    (state.errors, state.error_came) = (state.errors + 1, true);
}

#[test]
#[should_panic(expected = "connection refused is told, and nothing came about what was sent to its peer")]
fn an_error_is_told_once() {
    let mut state = socket(600, &[]);
    refused(&mut state);
    state.told(&moment(), None, true);
    state.polled(&moment(), true);
    state.told(&moment(), Some(Error::Refused), true);
    state.told(&moment(), None, true);
    state.told(&moment(), Some(Error::Refused), true);
}

#[test]
#[should_panic(expected = "what was sent was refused, and its program is not told")]
fn an_error_is_not_told() {
    let mut state = socket(600, &[]);
    refused(&mut state);
    state.polled(&moment(), true);
    state.told(&moment(), None, true);
}

#[test]
fn that_a_host_cannot_be_reached_may_have_been_said_by_a_send() {
    let mut state = socket(600, &[]);
    refused(&mut state);
    state.polled(&moment(), true);
    state.perhaps_told();
    state.told(&moment(), None, true);
}
