//! A ring that a broker has lent.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use ringway_stack::device::{Device as _, FlowRule, Protocol, QueueId, RuleError, Target};
use ringway_xdp::broker::{Broker, BrokerSettings, Users};
use ringway_xdp::{AttachError, Settings, XdpDevice};

use crate::link::Cable;
use crate::peers::{both_streams, comes_by_four_queues};
use crate::world::{World, in_world_with};

/// A broker of `a0`, in the calling thread's namespace.
struct Serving {
    socket: PathBuf,
    stop: UnixStream,
    thread: JoinHandle<Vec<String>>,
}

impl Serving {
    fn begin(settings: &Settings) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let name = format!("ringway-xdp-{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let socket = std::env::temp_dir().join(name);
        let settings = BrokerSettings { interfaces: vec![settings.clone()], users: Users::default(), socket: socket.clone() };
        let mut broker = Broker::start(settings, &mut |event| panic!("{event}")).expect("a broker");
        let (stop, stopped) = UnixStream::pair().expect("a pair");
        let thread = std::thread::spawn(move || {
            let mut events = Vec::new();
            broker.run(stopped.as_fd(), &mut |event| events.push(event.to_string())).expect("it waits");
            events
        });
        Self { socket, stop, thread }
    }

    /// What it has told.
    fn end(self) -> Vec<String> {
        drop(self.stop);
        self.thread.join().expect("a broker")
    }
}

/// Runs a test with a ring that a broker has lent, of an interface with these frames.
pub(crate) fn by_broker(cable: Cable, settings: &Settings, test: impl Fn(&mut World) + Sync) {
    let serving = std::sync::Mutex::new(None);
    let attach = || {
        let begun = Serving::begin(settings);
        let device = XdpDevice::attach_by(&begun.socket, &Settings::new("a0")).expect("a ring");
        *serving.lock().expect("one thread") = Some(begun);
        device
    };
    in_world_with(cable, attach, |mut world| {
        test(&mut world);
        drop(world);
        let told = serving.lock().expect("one thread").take().expect("it has begun").end();
        let [lent, ..] = &told[..] else { panic!("{told:?}") };
        assert!(lent.contains("has the ring of a0"), "{told:?}");
    });
}

#[test]
fn it_has_all_queues_of_the_interface() {
    for is_v6 in [false, true] {
        by_broker(Cable { is_v6, queues: 4, ..Cable::default() }, &Settings::new("a0"), comes_by_four_queues);
    }
}

#[test]
fn it_has_as_many_frames_as_the_broker_says() {
    for (received_frames, sent_frames) in [(2048, 4), (16, 1024), (16, 4), (24, 12)] {
        let settings = Settings { received_frames, sent_frames, ..Settings::new("a0") };
        by_broker(Cable::default(), &settings, both_streams);
    }
}

#[test]
fn one_at_a_time_has_it_and_its_rules_are_nobody_elses() {
    by_broker(Cable::default(), &Settings::new("a0"), |world| {
        let rule = |port| FlowRule::flow(Protocol::Tcp, (world.link.local, port).into(), None);
        let target = Target::Queue(QueueId(0));
        let attached = world.device.attach(&rule(9000), target).expect("a rule");
        assert_eq!(world.device.attach(&rule(9000), target).map(drop), Err(RuleError::Taken));
        world.device.detach(attached.rule);
        world.device.attach(&rule(9000), target).expect("it is free again");
        assert_eq!(
            world.device.attach(&FlowRule::flow(Protocol::Tcp, "192.0.2.1:9000".parse().expect("an address"), None), target).map(drop),
            Err(RuleError::Full)
        );
        assert!(matches!(XdpDevice::attach(&Settings::new("a0")), Err(AttachError::Taken { .. })));
    });
}
