use clap::CommandFactory as _;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Arguments::command().debug_assert();
}

#[test]
fn the_subcommands_are_those_of_the_readme() {
    // xtask's tidy holds the README against this list.
    let names: Vec<_> = Arguments::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
    let sim = if cfg!(feature = "sim") { &["sim"][..] } else { &[] };
    assert_eq!(names, [&["run", "stats", "doctor"], sim].concat());
}

#[test]
fn what_follows_the_program_is_the_programs() {
    let Command::Run(options) = Arguments::parse_from(["ringway", "run", "--device", "shm", "--", "redis-server", "--port", "7"]).command
    else {
        panic!("not run");
    };
    assert_eq!(options.program, ["redis-server", "--port", "7"]);
}

#[test]
fn the_doctor_is_asked_one_thing_at_a_time() {
    let parses = |words: &[&str]| Arguments::try_parse_from([&["ringway", "doctor"], words].concat()).is_ok();
    assert!(parses(&["--params"]) && parses(&["--params", "--json"]) && parses(&["--params", "--man"]));
    assert!(parses(&["--rules", "redis-server", "127.0.0.1:6379", "--role", "tcp_server"]));
    assert!(
        !parses(&["--man"]) && !parses(&["--params", "7"]) && !parses(&["--rules", "redis-server"]) && !parses(&["--role", "tcp_server"])
    );
}
