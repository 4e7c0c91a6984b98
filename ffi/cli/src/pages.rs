//! What an installation has beside the program, made from its command line: completions for shells, and a manual page for each command.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::Arguments;

/// For which shell.
#[derive(clap::Args)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Of which command.
#[derive(clap::Args)]
pub(crate) struct Manual {
    /// The command, such as run.
    command: String,
}

/// Prints completions.
///
/// # Errors
/// Nobody reads them.
pub(crate) fn complete(options: &Completions) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut Arguments::command(), "ringway", &mut text);
    Ok(io::stdout().write_all(&text)?)
}

/// Prints the manual page `ringway-COMMAND(1)`.
///
/// # Errors
/// There is no such command, or nobody reads it.
pub(crate) fn manual(options: &Manual) -> Result<()> {
    Ok(io::stdout().write_all(&page(&options.command)?)?)
}

fn page(name: &str) -> Result<Vec<u8>> {
    let whole = Arguments::command();
    let commands = || whole.get_subcommands();
    let names: Vec<_> = commands().map(clap::Command::get_name).collect();
    let command = commands().find(|c| c.get_name() == name).with_context(|| format!("no command {name:?}: {}", names.join(", ")))?;
    let usage = format!("ringway {name}");
    let title: &'static str = Box::leak(format!("ringway-{name}").into_boxed_str());
    let manual = clap_mangen::Man::new(command.clone().name(title).bin_name(usage));
    let mut text = Vec::new();
    manual.source(concat!("Ringway ", env!("CARGO_PKG_VERSION"))).manual("Ringway").render(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_with_its_options() {
        for command in Arguments::command().get_subcommands() {
            let text = String::from_utf8(page(command.get_name()).expect("a page")).expect("text");
            assert!(text.contains(&format!(".TH ringway-{} 1", command.get_name())), "{text}");
            for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(text.contains(&format!("\\-\\-{}", option.replace('-', "\\-"))), "{option} is not in\n{text}");
            }
        }
        assert!(page("fly").is_err());
    }
}
