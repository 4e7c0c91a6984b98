//! What a program hands in, wrong in every way, from the outside: `extra/fuzz.c`, preloaded. (Its parts that parse have their properties beside
//! them: `cmsg/tests.rs`, `extra/ioctl/tests.rs`.)

#[path = "extra/programs.rs"]
mod programs;

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use programs::{compile, finds_nothing_wrong, run};

const ON: (&str, &str) = ("VMA_SOCKETXTREME", "1");

/// Some that are the same for everyone, and one that no earlier run had; a failure names it.
fn seeds() -> Vec<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_nanos() as u64;
    [1, 2, 3, now].map(|seed| seed.to_string()).to_vec()
}

#[test]
fn no_control_message_option_or_name_of_a_packet_does_damage() {
    for seed in seeds() {
        finds_nothing_wrong("fuzz", &[&seed, "zcopy"], &[]);
        finds_nothing_wrong("fuzz", &[&seed, "xtreme"], &[ON]);
    }
}

/// sendmsg on a connection refuses the control messages that the kernel refuses.
#[test]
fn control_messages_are_refused_as_the_kernel_refuses_them() {
    let program = compile("tests/extra/fuzz.c");
    for seed in seeds() {
        let kernel = Command::new(&program).args([&seed, "told"]).env_remove("LD_PRELOAD").output().expect("it was just compiled");
        let ring = run(&program, &[&seed, "told"], &[]);
        let (kernel_says, ring_says) = (String::from_utf8_lossy(&kernel.stdout), String::from_utf8_lossy(&ring.stdout));
        assert!(kernel.status.success() && ring.status.success(), "{seed}:\n{kernel_says}\n{ring_says}");
        assert!(kernel_says.lines().count() > 500, "{seed}: {kernel_says}");
        assert!(kernel_says == ring_says, "seed {seed}: the kernel says\n{kernel_says}\nand the ring\n{ring_says}");
    }
}
