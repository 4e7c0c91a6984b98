//! Groups on an interface: whoever hears them hears all, in order, each once, whether a ring brings it or the kernel.

use std::path::PathBuf;
use std::process::Command;
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use crate::broker::serving::{NOBODY, with_broker};
use crate::cable::{Cable, PORT, Running, on_cable};
use crate::kernels;
use crate::kills::group_rules_of;
use crate::namespaces::ip;
use crate::programs::compile;

const GROUPS: [&str; 2] = ["239.78.0.7", "ff15::78:7"];
struct Club<'a> {
    cable: &'a Cable,
    program: PathBuf,
    group: &'static str,
}

/// Runs a test with a group of each family.
fn with_group(test: impl Fn(&Club<'_>) + Send + 'static) {
    on_cable(move |cable| {
        for group in GROUPS {
            test(&Club { cable, program: compile("tests/c/groups.c"), group });
        }
    });
}

impl Club<'_> {
    /// Who speaks at the other end: so many datagrams, so many a second.
    fn told(&self, count: u32, rate: u32) -> JoinHandle<()> {
        self.told_from(0, count, rate)
    }

    /// The same, numbered from there on.
    fn told_from(&self, first: u32, count: u32, rate: u32) -> JoinHandle<()> {
        let [first, count, rate] = [first, count, rate].map(|number| number.to_string());
        self.cable.there_of(&self.program, &["tell", self.group, PORT, "b0", &count, &rate, &first])
    }

    /// A member at our end, with the library.
    fn member(&self, word: &str, count: u32) -> Running {
        self.cable.here_of(&self.program, &[word, self.group, PORT, "a0", &count.to_string()])
    }

    /// One that is ready to hear.
    fn ready(&self, word: &str, count: u32) -> Running {
        let mut member = self.member(word, count);
        member.await_ready();
        member
    }

    /// One at our end that is the kernel's.
    fn kernels_member(&self, word: &str, count: u32) -> Running {
        let mut command = Command::new("timeout");
        command.arg("60").arg(&self.program).args([word, self.group, PORT, "a0", &count.to_string()]);
        Running::start(command)
    }
}

#[test]
fn all_members_of_a_process_hear_by_the_ring_whom_they_want_to_hear() {
    with_group(|club| {
        let before = kernels();
        let members = club.ready("several", 300);
        assert_eq!(group_rules_of(members.pid()), 1, "one rule is for all");
        club.told(300, 3000).join().expect("the speaker");
        members.ends_well();
        assert_eq!(kernels()[1], before[1], "the kernel saw none of it");
    });
}

#[test]
fn one_that_is_bound_to_the_groups_address_hears_by_the_ring() {
    with_group(|club| {
        let before = kernels();
        let member = club.ready("read", 2000);
        club.told(2000, 10_000).join().expect("the speaker");
        member.ends_well();
        assert_eq!(kernels()[1], before[1], "the kernel saw none of it");
    });
}

#[test]
fn what_came_before_a_member_left_is_read_and_nothing_later() {
    with_group(|club| {
        let mut member = club.ready("leaves", 400);
        club.told(400, 4000).join().expect("the speaker");
        member.await_ready();
        club.told(400, 4000).join().expect("the speaker");
        member.ends_well();
    });
}

/// Who speaks on this machine is heard by the kernel's half of a member, as its IP_MULTICAST_LOOP says; whoever else is on the link hears it as well.
#[test]
fn who_speaks_on_this_machine_is_heard_as_it_says() {
    with_group(|club| {
        let there = club.cable.start_there(&club.program, &["later", club.group, PORT, "b0", "3"]);
        club.cable.await_sockets(false, "udp", " 07 ", 1);
        club.ready("loops", 0).ends_well();
        there.ends_well();
        // A ring has the group, and a program of the kernel's speaks.
        let member = club.ready("hear", 100);
        assert_eq!(group_rules_of(member.pid()), 1);
        let mut speaker = Command::new("timeout");
        speaker.arg("60").arg(&club.program).args(["tell", club.group, PORT, "a0", "100", "2000", "0"]);
        Running::start(speaker).ends_well();
        member.ends_well();
    });
}

#[test]
fn a_member_of_the_kernels_comes_and_goes_and_all_hear_all_of_it_once() {
    with_group(|club| {
        let (count, rate) = (12_000, 2000);
        let member = club.ready("hear", count);
        let before = kernels()[1];
        let speaker = club.told(count, rate);
        sleep(Duration::from_millis(800));
        assert_eq!((kernels()[1], group_rules_of(member.pid())), (before, 1), "it comes by the ring");
        // (Another one, somewhere else, hears nothing of it for a moment.)
        club.kernels_member("later", 1000).ends_well();
        assert!(kernels()[1] > before + 1000, "it came by the kernel");
        sleep(Duration::from_millis(2000));
        let later = kernels()[1];
        sleep(Duration::from_millis(500));
        assert_eq!((kernels()[1], group_rules_of(member.pid())), (later, 1), "it comes by the ring again");
        speaker.join().expect("the speaker");
        member.ends_well();
    });
}

#[test]
fn a_group_that_somebody_else_hears_already_is_the_kernels() {
    with_group(|club| {
        let mut other = club.kernels_member("hear", 500);
        other.await_ready();
        let member = club.ready("hear", 500);
        assert_eq!(group_rules_of(member.pid()), 0);
        club.told(500, 3000).join().expect("the speaker");
        member.ends_well();
        other.ends_well();
    });
}

#[test]
fn a_child_makes_it_the_kernels_and_nothing_is_lost() {
    with_group(|club| {
        let member = club.ready("forks", 4000);
        let speaker = club.told(4000, 4000);
        sleep(Duration::from_millis(200));
        assert_eq!(group_rules_of(member.pid()), 1);
        speaker.join().expect("the speaker");
        member.ends_well();
    });
}

#[test]
fn an_interface_that_was_down_brings_it_again() {
    with_group(|club| {
        let member = club.ready("hear", 2000);
        club.told(1000, 5000).join().expect("the speaker");
        ip("link set a0 down\nlink set a0 up\n");
        let before = kernels()[1];
        // (The other end sees the carrier a moment later.)
        sleep(Duration::from_millis(500));
        club.told_from(1000, 1000, 5000).join().expect("the speaker");
        // (As far as it was seen: it was down for a moment.)
        let log = member.says();
        assert!(
            log.lines().all(|line| line.contains("a0 was set down") || line.contains("lost its carrier") || line.contains("up again")),
            "{log}"
        );
        assert_eq!(kernels()[1], before, "by the ring");
    });
}

/// A broker gives nobody a group, of which others may become members.
#[test]
fn a_program_with_a_brokers_ring_hears_by_the_kernel() {
    with_broker(NOBODY, |cable, broker| {
        let program = compile("tests/c/groups.c");
        for group in GROUPS {
            let before = kernels()[1];
            let mut member = broker.start(&program, &["read", group, PORT, "a0", "300"]);
            member.await_ready();
            cable.there_of(&program, &["tell", group, PORT, "b0", "300", "3000", "0"]).join().expect("the speaker");
            member.ends_well();
            assert_eq!(kernels()[1], before + 300);
        }
        assert_eq!(broker.said("group"), 0, "it is not even asked");
    });
}
