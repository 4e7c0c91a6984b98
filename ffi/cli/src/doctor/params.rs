//! What a program started from this environment would use: every parameter, its value, and where that is from.

use anyhow::Result;
use ringway_params::{Effect, Settings, man};
use serde::Serialize;

use crate::table::table;

/// A parameter.
#[derive(Serialize)]
struct Parameter<'a> {
    name: &'static str,
    value: &'a str,
    default: &'static str,
    /// `default`, `environment`, `VMA_SPEC=…`, or the variable that it follows from.
    source: String,
    /// What may be set.
    allowed: String,
    meaning: &'static str,
    /// Why it changes nothing; `None`: it does.
    meaningless: Option<&'static str>,
}

/// All of them.
#[derive(Serialize)]
struct Parameters<'a> {
    parameters: Vec<Parameter<'a>>,
    /// What is wrong with the environment.
    warnings: &'a [String],
}

/// Prints the parameters, as a table or as JSON.
///
/// # Errors
/// They could not be made JSON.
pub(super) fn run(json: bool) -> Result<()> {
    let settings = Settings::from_environment();
    let all = gather(&settings);
    if json {
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(());
    }
    let mut rows = table(&["parameter", "value", "default", "source", "effect"]);
    for parameter in &all.parameters {
        let effect = parameter.meaningless.map_or_else(|| parameter.meaning.to_owned(), |reason| format!("none: {reason}"));
        rows.add_row([parameter.name, parameter.value, parameter.default, &parameter.source, &effect]);
    }
    println!("{rows}");
    all.warnings.iter().for_each(|warning| eprintln!("ringway: {warning}"));
    Ok(())
}

/// Prints the manual page.
pub(super) fn manual() {
    print!("{}", man::page());
}

fn gather(settings: &Settings) -> Parameters<'_> {
    let parameters = settings.iter().map(|(row, setting)| Parameter {
        name: row.name,
        value: &setting.text,
        default: row.default,
        source: setting.source.to_string(),
        allowed: row.kind.allowed(),
        meaning: row.meaning,
        meaningless: match row.effect {
            Effect::Heeded => None,
            Effect::Meaningless(reason) => Some(reason),
        },
    });
    Parameters { parameters: parameters.collect(), warnings: settings.warnings() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_parameter_says_where_it_is_from() {
        let settings = Settings::read(|name| match name {
            "VMA_SPEC" => Some("latency".to_owned()),
            "VMA_RX_POLL" => Some("7".to_owned()),
            "VMA_MTU" => Some("much".to_owned()),
            "VMA_API_LAYOUT" => Some("7".to_owned()),
            "RINGWAY_DEVICE" => Some("foo".to_owned()),
            _ => None,
        });
        let all = gather(&settings);
        let of = |name: &str| {
            let found = all.parameters.iter().find(|parameter| parameter.name == name).expect(name);
            (found.value, found.source.as_str(), found.meaningless.is_some())
        };
        assert_eq!(of("VMA_RX_POLL"), ("7", "environment", false));
        assert_eq!(of("VMA_SELECT_POLL"), ("-1", "VMA_SPEC=latency", false));
        assert_eq!(of("VMA_MTU"), ("0", "default", false));
        assert_eq!(of("VMA_BF"), ("1", "default", true));
        assert_eq!(of("VMA_API_LAYOUT"), ("9.8", "default", false));
        assert_eq!(of("RINGWAY_DEVICE"), ("foo", "environment", false));
        assert_eq!(all.warnings.len(), 3);
        assert!(all.warnings.iter().any(|warning| warning.contains("RINGWAY_DEVICE=foo") && warning.contains("stay on the kernel")));
    }
}
