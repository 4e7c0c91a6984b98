use super::super::tests::{A, B, Cable, Pair, read, write};
use super::*;
use crate::device::DeviceEvent;

/// A connection of A's with B, each of which has a kernel that the other one's ring hears nothing of, and its addresses as A has it.
struct Scene {
    pair: Pair,
    client: FlowId,
    server: FlowId,
    local: SocketAddr,
    remote: SocketAddr,
    /// B's end, once it has left.
    followed: Option<Handover<Cable>>,
}

impl Scene {
    fn new() -> Self {
        let mut pair = Pair::new();
        for ring in [&mut pair.a, &mut pair.b] {
            ring.output.caps.leaves_at_both_ends = true;
        }
        let (client, server, _) = pair.connected();
        Self { pair, client, server, local: SocketAddr::new(A, 5000), remote: SocketAddr::new(B, 80), followed: None }
    }

    /// A's end leaves, and asks.
    fn ask(&mut self) -> Handover<Cable> {
        let Self { pair, client, local, remote, .. } = self;
        let handover = pair.a.detach_stream(pair.now, *client).unwrap();
        pair.a.tcp_keep_late(*local, *remote);
        pair.a.tcp_ask_to_leave(pair.now, &handover).unwrap();
        handover
    }

    fn answer(&mut self) -> Answer {
        self.pair.a.tcp_answer(self.pair.now, self.local, self.remote)
    }

    /// B's end follows, or stays. `false`: nobody has asked.
    fn follow(&mut self, leaves: bool) -> bool {
        let Self { pair, server, local, remote, .. } = self;
        pair.settle();
        let Some(leaver) = pair.b.tcp_take_leaver() else { return false };
        assert_eq!(leaver, *server);
        if !leaves {
            pair.b.tcp_has_parted(pair.now, *remote, *local, false);
            return true;
        }
        let handover = pair.b.detach_stream(pair.now, leaver).unwrap();
        pair.b.tcp_keep_late(*remote, *local);
        pair.b.tcp_ask_to_leave(pair.now, &handover).unwrap();
        self.followed = Some(handover);
        true
    }

    /// What B's end has heard, which has followed.
    fn answer_to_b(&mut self) -> Answer {
        self.pair.settle();
        self.pair.b.tcp_answer(self.pair.now, self.remote, self.local)
    }

    fn take_back(&mut self, handover: Handover<Cable>) {
        self.pair.a.tcp_has_parted(self.pair.now, self.local, self.remote, false);
        self.client = self.pair.a.adopt(self.pair.now, handover).map_err(|(error, _)| error).unwrap();
    }

    /// Bytes go both ways by the rings.
    fn goes_on(&mut self) {
        let Self { pair, client, server, .. } = self;
        write(&mut pair.a, pair.now, *client, b"ping").unwrap();
        write(&mut pair.b, pair.now, *server, b"pong").unwrap();
        pair.pass(Duration::from_secs(3));
        assert_eq!(read(&mut pair.b, pair.now, *server, 9), Ok(b"ping".to_vec()));
        assert_eq!(read(&mut pair.a, pair.now, *client, 9), Ok(b"pong".to_vec()));
    }

    /// What is on its way to B, or to A, is lost; how many frames it was.
    fn lose(&mut self) -> usize {
        let lost = |ring: &mut Ring<Cable>| ring.queues.inward.lock().unwrap().drain(..).count();
        lost(&mut self.pair.a) + lost(&mut self.pair.b)
    }

    /// What is on its way to B.
    fn to_b(&self) -> Vec<Vec<u8>> {
        self.pair.b.queues.inward.lock().unwrap().iter().cloned().collect()
    }

    fn bring_to_b(&mut self, frame: &[u8]) {
        self.pair.b.queues.inward.lock().unwrap().push_back(frame.to_vec());
        self.pair.settle();
    }

    /// Says something in A's name, whatever A knows.
    fn forge(&mut self, (seq, ack): (SeqNumber, SeqNumber), said: Parting) {
        let to = Envelope { src: self.local.ip(), dst: self.remote.ip(), mac: self.pair.b.queues.mac, ttl: 64, tos: 0 };
        self.pair.a.say_to(&to, (self.local.port(), self.remote.port()), (seq, ack), said);
        self.pair.settle();
    }

    /// What A has sent and expects.
    fn numbers(&mut self) -> (SeqNumber, SeqNumber) {
        let stream = self.pair.a.slots.stream_at(self.client.index).unwrap();
        (stream.connection.sent_up_to(), stream.connection.received_up_to())
    }
}

#[test]
fn who_is_asked_follows_and_says_so() {
    let mut scene = Scene::new();
    write(&mut scene.pair.b, scene.pair.now, scene.server, b"on its way").unwrap();
    let _left = scene.ask();
    assert_eq!(scene.answer(), Answer::Awaited);
    assert!(scene.follow(true) && !scene.follow(true), "once");
    assert_eq!((scene.answer_to_b(), scene.answer()), (Answer::There, Answer::There));
    scene.pair.b.tcp_has_parted(scene.pair.now, scene.remote, scene.local, true);
    scene.pair.a.tcp_has_parted(scene.pair.now, scene.local, scene.remote, true);
    assert_eq!(scene.pair.a.tcp_end_late(scene.local, scene.remote).len(), 1, "what is said of leaving is no segment of the stream");
    assert_eq!([scene.pair.a.usage().addresses, scene.pair.b.usage().addresses], [0, 1], "a listener is left");
}

#[test]
fn a_question_that_is_lost_is_asked_again_and_so_is_one_whose_answer_is() {
    let mut scene = Scene::new();
    let _left = scene.ask();
    assert_eq!(scene.lose(), 1);
    assert_eq!((scene.answer(), scene.lose()), (Answer::Awaited, 0), "not at once");
    scene.pair.now += AGAIN_MIN;
    assert_eq!((scene.answer(), scene.follow(true)), (Answer::Awaited, true));
    assert_eq!(scene.lose(), 1, "the other end's question");
    scene.pair.now += AGAIN_MIN * 2;
    assert_eq!((scene.answer(), scene.answer_to_b()), (Answer::Awaited, Answer::Awaited), "what was followed is no answer");
    assert_eq!((scene.answer_to_b(), scene.answer()), (Answer::There, Answer::There), "and the other end's question is one");
}

#[test]
fn who_hears_nothing_takes_the_connection_back_and_it_goes_on() {
    let mut scene = Scene::new();
    let left = scene.ask();
    write(&mut scene.pair.b, scene.pair.now, scene.server, b"meanwhile").unwrap();
    let (mut asked, mut answer) = (0, Answer::Awaited);
    while answer == Answer::Awaited {
        asked += scene.to_b().len();
        scene.pair.b.queues.inward.lock().unwrap().clear();
        scene.pair.a.poll(scene.pair.now);
        scene.pair.now += Duration::from_millis(10);
        answer = scene.answer();
    }
    assert_eq!(answer, Answer::Silent);
    assert!((10..40).contains(&asked), "{asked} questions");
    scene.take_back(left);
    assert_eq!(read(&mut scene.pair.a, scene.pair.now, scene.client, 9), Ok(b"meanwhile".to_vec()));
    scene.goes_on();
}

#[test]
fn who_stays_says_so_and_the_connection_goes_on() {
    let mut scene = Scene::new();
    let left = scene.ask();
    write(&mut scene.pair.b, scene.pair.now, scene.server, b"meanwhile").unwrap();
    assert!(scene.follow(false));
    scene.pair.settle();
    assert_eq!(scene.answer(), Answer::Stays);
    scene.take_back(left);
    assert_eq!(read(&mut scene.pair.a, scene.pair.now, scene.client, 9), Ok(b"meanwhile".to_vec()));
    scene.goes_on();
    // The next question is another one: what was said of the first one does not answer it.
    let _left = scene.ask();
    assert!(scene.follow(true));
    scene.pair.settle();
    assert_eq!(scene.answer(), Answer::There);
}

#[test]
fn both_may_ask_at_once() {
    for lost in [None, Some(0), Some(1)] {
        let mut scene = Scene::new();
        let _left = scene.ask();
        let Scene { pair, server, local, remote, .. } = &mut scene;
        let other = pair.b.detach_stream(pair.now, *server).unwrap();
        pair.b.tcp_keep_late(*remote, *local);
        pair.b.tcp_ask_to_leave(pair.now, &other).unwrap();
        match lost {
            Some(0) => pair.b.queues.inward.lock().unwrap().clear(),
            Some(_) => pair.a.queues.inward.lock().unwrap().clear(),
            None => {}
        }
        pair.settle();
        // Whose question came through has its answer at once; the other one asks again, unless the answer to the first tells it.
        pair.now += AGAIN_MIN;
        for _ in 0..2 {
            pair.a.tcp_answer(pair.now, *local, *remote);
            pair.b.tcp_answer(pair.now, *remote, *local);
            pair.settle();
        }
        let answers = [pair.a.tcp_answer(pair.now, *local, *remote), pair.b.tcp_answer(pair.now, *remote, *local)];
        assert_eq!(answers, [Answer::There; 2], "{lost:?}");
    }
}

#[test]
fn of_a_connection_that_is_not_there_nobody_leaves() {
    let mut scene = Scene::new();
    scene.pair.b.close(scene.pair.now, scene.server, true);
    scene.lose();
    let left = scene.ask();
    scene.pair.settle();
    assert!(!scene.pair.b.has_leavers());
    assert_eq!(scene.answer(), Answer::Stays);
    scene.take_back(left);
    scene.pair.pass(Duration::from_secs(1));
    write(&mut scene.pair.a, scene.pair.now, scene.client, b"anybody").unwrap();
    scene.pair.settle();
    assert_eq!(read(&mut scene.pair.a, scene.pair.now, scene.client, 9), Err(Error::Reset));
}

#[test]
fn who_is_not_accepted_yet_is_asked_again() {
    let mut scene = Scene::new();
    scene.client = scene.pair.connect(5001);
    scene.local = SocketAddr::new(A, 5001);
    scene.pair.settle();
    let _left = scene.ask();
    assert!(!scene.follow(true));
    assert_eq!(scene.answer(), Answer::Awaited);
    let listener = scene.pair.b.open_flows().into_iter().find(|flow| scene.pair.b.info(*flow).unwrap().remote.is_none()).unwrap();
    scene.server = scene.pair.b.tcp_accept(listener).unwrap();
    scene.pair.now += AGAIN_MIN;
    assert_eq!((scene.answer(), scene.follow(true)), (Answer::Awaited, true));
    scene.pair.settle();
    assert_eq!(scene.answer(), Answer::There);
}

#[test]
fn words_that_come_late_or_twice_change_nothing() {
    let mut scene = Scene::new();
    let left = scene.ask();
    let question = scene.to_b().remove(0);
    assert!(scene.follow(false));
    scene.pair.settle();
    scene.take_back(left);
    // A copy of a question that was taken back: B's end leaves, says nothing, and asks; and A's, which hears that, stays, or follows.
    scene.bring_to_b(&question);
    assert!(scene.follow(true));
    assert_eq!(scene.answer_to_b(), Answer::Awaited);
    // Nor is one more copy the answer.
    scene.bring_to_b(&question);
    assert_eq!(scene.answer_to_b(), Answer::Awaited);
    assert_eq!(scene.pair.a.tcp_take_leaver(), Some(scene.client));
    scene.pair.a.tcp_has_parted(scene.pair.now, scene.local, scene.remote, false);
    assert_eq!(scene.answer_to_b(), Answer::Stays);
    scene.pair.b.tcp_has_parted(scene.pair.now, scene.remote, scene.local, false);
    let followed = scene.followed.take().unwrap();
    scene.server = scene.pair.b.adopt(scene.pair.now, followed).map_err(|(error, _)| error).unwrap();
    scene.goes_on();
    // And of one that both have left.
    let _left = scene.ask();
    let question = scene.to_b().remove(0);
    assert!(scene.follow(true));
    assert_eq!((scene.answer_to_b(), scene.answer()), (Answer::There, Answer::There));
    scene.pair.a.tcp_has_parted(scene.pair.now, scene.local, scene.remote, true);
    scene.pair.b.tcp_has_parted(scene.pair.now, scene.remote, scene.local, true);
    let before = scene.pair.b.counters().tx_packets;
    scene.bring_to_b(&question);
    assert!(!scene.pair.a.has_leavers() && !scene.pair.b.has_leavers());
    assert_eq!(scene.pair.b.counters().tx_packets - before, 1, "it is answered again");
}

#[test]
fn who_does_not_know_the_connections_numbers_has_nobody_leave() {
    let mut scene = Scene::new();
    let (seq, ack) = scene.numbers();
    let window = scene.pair.b.slots.stream_at(scene.server.index).unwrap().connection.plausible();
    let beyond = (1..1 << 26).step_by(1 << 10).map(|by| seq + by).find(|seq| !window.includes((*seq, ack))).unwrap();
    let before = scene.pair.b.counters().tx_packets;
    for numbers in [(seq - 1, ack), (beyond, ack), (seq, ack - 1), (seq, ack + 1), (ack, seq)] {
        for word in [Word::Leave, Word::There, Word::Stay] {
            scene.forge(numbers, Parting { word, number: 1 });
        }
    }
    scene.forge((seq, ack), Parting { word: Word::Stay, number: 1 });
    assert!(!scene.pair.b.has_leavers() && scene.pair.b.partings.known.is_empty());
    assert_eq!(scene.pair.b.counters().tx_packets, before, "and nobody is answered");
    scene.goes_on();
    // It is no segment of the stream, either, whatever its flags.
    let (seq, ack) = scene.numbers();
    scene.forge((seq, ack), Parting { word: Word::Leave, number: 1 });
    assert!(scene.pair.b.has_leavers(), "who knows them is heard");
}

#[test]
fn an_answer_that_names_another_question_is_none() {
    let mut scene = Scene::new();
    let _left = scene.ask();
    let numbers = scene.pair.a.partings.known[&(scene.local, scene.remote)].plausible;
    for word in [Word::There, Word::Stay] {
        let to = Envelope { src: scene.remote.ip(), dst: scene.local.ip(), mac: scene.pair.a.queues.mac, ttl: 64, tos: 0 };
        let (seq, ack) =
            scene.pair.b.slots.stream_at(scene.server.index).map(|s| (s.connection.sent_up_to(), s.connection.received_up_to())).unwrap();
        assert!(numbers.includes((seq, ack)));
        scene.pair.b.say_to(&to, (80, 5000), (seq, ack), Parting { word, number: 1 });
        scene.pair.a.poll(scene.pair.now);
        assert_eq!(scene.answer(), Answer::Awaited);
    }
}

#[test]
fn a_device_beside_whose_kernel_peers_are_takes_no_notice() {
    let mut scene = Scene::new();
    scene.pair.b.output.caps.leaves_at_both_ends = false;
    let (seq, ack) = scene.numbers();
    scene.forge((seq, ack), Parting { word: Word::Leave, number: 1 });
    assert!(!scene.pair.b.has_leavers());
    scene.goes_on();
}

#[test]
fn of_a_peer_that_is_gone_no_answer_is_awaited() {
    let mut scene = Scene::new();
    let _left = scene.ask();
    let other = FiveTuple { protocol: Protocol::Tcp, local: scene.local, remote: Some(SocketAddr::new(B, 81)) };
    let ours = FiveTuple { remote: Some(scene.remote), ..other };
    for (gone, answer) in [(other, Answer::Awaited), (ours, Answer::Gone)] {
        scene.pair.a.queues_mut().gone = vec![gone];
        scene.pair.a.queues_mut().tell(DeviceEvent::PeersGone);
        scene.pair.a.poll(scene.pair.now);
        assert_eq!(scene.answer(), answer);
    }
    let mut scene = Scene::new();
    let _left = scene.ask();
    scene.pair.a.queues_mut().tell(DeviceEvent::Gone);
    scene.pair.a.poll(scene.pair.now);
    assert_eq!(scene.answer(), Answer::Gone);
}

#[test]
fn who_has_left_hears_that_the_other_end_is_gone_as_long_as_it_is_remembered() {
    let mut scene = Scene::new();
    let _left = scene.ask();
    assert!(scene.follow(true));
    assert_eq!((scene.answer_to_b(), scene.answer()), (Answer::There, Answer::There));
    let (local, remote) = (scene.local, scene.remote);
    let other = FiveTuple { protocol: Protocol::Tcp, local, remote: Some(SocketAddr::new(B, 81)) };
    let ours = FiveTuple { remote: Some(remote), ..other };
    for (has_left, gone, bereft) in
        [(false, ours, vec![]), (true, other, vec![]), (true, ours, vec![(local, remote)]), (true, ours, vec![])]
    {
        if has_left {
            scene.pair.a.tcp_has_parted(scene.pair.now, local, remote, true);
        }
        scene.pair.a.queues_mut().gone = vec![gone];
        scene.pair.a.queues_mut().tell(DeviceEvent::PeersGone);
        scene.pair.a.poll(scene.pair.now);
        assert_eq!(scene.pair.a.tcp_take_bereft(), bereft, "{gone:?}");
    }
}

#[test]
fn no_more_is_remembered_than_there_is_room_for() {
    let mut scene = Scene::new();
    let _left = scene.ask();
    assert!(scene.follow(true));
    let plausible = Plausible::default();
    let (seq, ack, hop) = (SeqNumber(0), SeqNumber(0), NextHop::Neighbour(A));
    for n in 0..2 * PARTINGS_MAX {
        assert!(scene.pair.b.partings.has_room(scene.pair.now), "what has left makes room");
        let ends = (scene.remote, SocketAddr::new(A, 10_000 + n as u16));
        let stage = Stage::Left { until: scene.pair.now + REMEMBERED };
        scene.pair.b.partings.known.insert(ends, Known { stage, plausible, seq, ack, hop });
    }
    for known in scene.pair.b.partings.known.values_mut() {
        known.stage = Stage::Wanted { number: 1, until: scene.pair.now + ASKED_FOR };
    }
    assert!(!scene.pair.b.partings.has_room(scene.pair.now), "what is under way does not");
    assert_eq!(scene.pair.b.partings.known.len(), PARTINGS_MAX);
    // Questions that nobody has heard, for their connections have ended, are forgotten.
    assert!(scene.pair.b.partings.has_room(scene.pair.now + ASKED_FOR));
}

#[test]
fn who_asks_about_a_connection_that_ends_then_is_told_that_it_stays() {
    let mut scene = Scene::new();
    let _left = scene.ask();
    assert_eq!(scene.pair.b.tcp_take_leaver(), None);
    scene.pair.settle();
    assert_eq!(scene.pair.b.tcp_take_leaver(), Some(scene.server));
    scene.pair.b.tcp_stays(scene.pair.now, scene.remote, scene.local);
    scene.pair.settle();
    assert_eq!((scene.answer(), scene.pair.b.partings.known.len()), (Answer::Stays, 0));
}
