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
    assert_eq!(names, [&["run", "stats", "sockets", "capture", "doctor", "broker", "route"], sim, &["completions", "man"]].concat());
}

#[test]
fn the_version_names_the_commit() {
    let said = Arguments::command().render_version();
    assert!(said.starts_with(concat!("ringway ", env!("CARGO_PKG_VERSION"), " (")) && said.trim_end().ends_with(')'), "{said}");
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
fn what_precedes_the_program_is_ours() {
    let refused = |words: &[&str]| match Arguments::try_parse_from([&["ringway", "run"], words].concat()) {
        Ok(_) => panic!("{words:?} was taken"),
        Err(error) => error.to_string(),
    };
    let said = refused(&["--devic", "shm", "redis-server"]);
    assert!(said.contains("--devic") && said.contains("a similar argument exists: '--device'"), "{said}");
    assert!(refused(&["-x", "redis-server"]).contains("-x"));
    let Ok(Arguments { command: Command::Run(options) }) = Arguments::try_parse_from(["ringway", "run", "sort", "-n", "--", "--device"])
    else {
        panic!("not run");
    };
    assert_eq!(options.program, ["sort", "-n", "--", "--device"]);
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

#[test]
fn the_manual_page_has_every_option() {
    let page = include_str!("../man/ringway.1");
    for command in Arguments::command().get_subcommands() {
        assert!(page.contains(&format!("\n.B {}\n", command.get_name())), "{}", command.get_name());
        // (The simulator's are many, and told by its --help.)
        let options = command.get_arguments().filter_map(clap::Arg::get_long).filter(|_| command.get_name() != "sim");
        for option in options.map(|option| format!("--{option}").replace('-', "\\-")) {
            assert!(page.contains(&option), "{} {option}", command.get_name());
        }
    }
}
