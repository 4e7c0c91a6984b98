//! Sizes, alignments, offsets, types and values, held against the installed headers: all that the macros wrote down, for there is
//! no other list.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::table::{Field, Table, Type};
use super::{c_types, cc};
use crate::{Ibverbs, Mlx5dv, Rdmacm};

/// Structures to which releases after rdma-core 44 added fields at the end, which libraries look at only if they are told of them: by a
/// length, a mask, or an argument. ([`crate::verbs_context`] grows in front, and is measured from its end.)
const GROWN: [&str; 6] = ["ibv_port_attr", "ibv_qp_ex", "mlx5dv_context", "mlx5dv_context_attr", "mlx5dv_flow_action_attr", "mlx5dv_obj"];

/// A name that rdma-core 44 does not have.
const YOUNGER: &str = "IBV_WC_FLUSH";

/// Its two bytes are not aligned, which no structure of Rust's can have beside an alignment of 4.
const UNALIGNED: (&str, &str) = ("mlx5_wqe_ctrl_seg", "dci_stream_channel_id");

/// A function for which later headers have an inline one of another exported function; libraries keep it.
const REPLACED: &str = "mlx5dv_create_flow";

fn tables() -> impl Iterator<Item = &'static Table> {
    [crate::verbs::TABLES, crate::rdmacm::TABLES, crate::mlx5dv::TABLES].into_iter().flatten()
}

fn types() -> impl Iterator<Item = &'static Type> {
    tables().flat_map(|table| table.types)
}

/// The fields of a type as C counts them, with offset and size: those of members without a name are among them.
fn flat(of: &Type, base: usize, fields: &mut Vec<Field>) {
    for field in of.fields {
        match types().find(|t| t.name == field.of && t.c.is_empty()) {
            Some(nameless) => flat(nameless, base + field.offset, fields),
            None => fields.push(Field { name: field.name.trim_start_matches("r#"), offset: base + field.offset, ..*field }),
        }
    }
}

/// One line a fact: here with Rust's numbers, there as C's expressions.
#[derive(Default)]
struct Facts {
    /// What is measured, and the number; of types it is 1, for C says whether they are alike.
    rust: Vec<(String, u64)>,
    /// The body of a program that prints the same.
    program: String,
}

impl Facts {
    fn add(&mut self, what: String, number: u64, expression: &str) {
        writeln!(self.program, "printf(\"{what} = %llu\\n\", (unsigned long long)({expression}));").unwrap();
        self.rust.push((what, number));
    }

    fn all() -> Self {
        let mut facts = Self::default();
        let tables = &self::tables().collect::<Vec<_>>()[..];
        for of in types().filter(|t| !t.c.is_empty()) {
            let (name, c) = (of.name, of.c);
            let from_end = name == "verbs_context";
            if !from_end {
                facts.add(format!("size of {name}"), of.size as u64, &format!("sizeof({c})"));
            }
            facts.add(format!("alignment of {name}"), of.align as u64, &format!("_Alignof({c})"));
            let mut fields = Vec::new();
            flat(of, 0, &mut fields);
            for Field { name: field, of: of_type, offset, size } in fields {
                let (place, expression) = match from_end {
                    true => (of.size - offset, format!("sizeof({c}) - offsetof({c}, {field})")),
                    false => (offset, format!("offsetof({c}, {field})")),
                };
                facts.add(format!("place of {name}.{field}"), place as u64, &expression);
                if let Some(alike) = c_types::alike(&format!("(({c} *)0)->{field}"), of_type, tables)
                    && (name, field) != UNALIGNED
                {
                    facts.add(format!("type of {name}.{field}"), 1, &alike);
                }
                // A member whose length is not known at compile time has no size in C.
                if size != 0 {
                    facts.add(format!("size of {name}.{field}"), size as u64, &format!("sizeof((({c} *)0)->{field})"));
                }
            }
        }
        for (name, size) in tables.iter().flat_map(|table| table.enums) {
            facts.add(format!("size of {name}"), *size as u64, &format!("sizeof(enum {name})"));
        }
        for (name, value) in tables.iter().flat_map(|table| table.constants) {
            facts.add(format!("value of {name}"), *value, name);
        }
        for (name, signature) in [Ibverbs::SIGNATURES, Rdmacm::SIGNATURES, Mlx5dv::SIGNATURES].into_iter().flatten() {
            let alike = c_types::function_alike(name, signature, tables);
            if *name == REPLACED {
                write!(facts.program, "#ifdef {name}\nprintf(\"type of {name} = 1\\n\");\n#else\n").unwrap();
            }
            facts.add(format!("type of {name}"), 1, &alike);
            if *name == REPLACED {
                writeln!(facts.program, "#endif").unwrap();
            }
        }
        facts
    }
}

#[test]
fn layouts_and_values_are_the_headers() {
    cc::need_headers();
    let facts = Facts::all();
    let printed = cc::printed(&facts.program);
    let c: Vec<(&str, u64)> =
        printed.lines().map(|line| line.split_once(" = ").unwrap()).map(|(what, number)| (what, number.parse().unwrap())).collect();
    assert_eq!(c.len(), facts.rust.len(), "the program printed another number of lines");
    let different = |((what, rust), (of, c)): (&(String, u64), &(&str, u64))| {
        assert_eq!(what, of);
        (rust != c).then(|| (what.clone(), *rust, *c))
    };
    let mut different: Vec<_> = facts.rust.iter().zip(&c).filter_map(different).collect();
    let all = different.len();
    if all != 0 && cc::knows(YOUNGER) {
        let grown = |what: &str| what.strip_prefix("size of ").is_some_and(|name| GROWN.contains(&name));
        different.retain(|(what, rust, c)| !(grown(what) && c > rust));
    }
    assert!(different.is_empty(), "what, Rust's number, C's: {different:#?}");
    println!("{} facts are as in the headers, {all} structures have grown", facts.rust.len() - all);
}

/// The comparison would notice: of facts that are each off by one, not one passes.
#[test]
fn facts_depend_on_every_field() {
    let facts = Facts::all();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for (what, _) in &facts.rust {
        *kinds.entry(what.split(' ').next().unwrap()).or_default() += 1;
    }
    let fields: usize = types().map(|t| t.fields.len()).sum();
    let nameless: Vec<_> = types().filter(|t| t.c.is_empty()).collect();
    let embedded = types().flat_map(|t| t.fields).filter(|f| nameless.iter().any(|t| t.name == f.of)).count();
    assert_eq!(embedded, nameless.len(), "each member without a name is in one structure");
    assert_eq!(kinds["place"], fields - embedded, "each field is compared once");
    let without_length = types().flat_map(|t| t.fields).filter(|f| f.size == 0).count();
    let functions = Ibverbs::SYMBOLS.len() + Rdmacm::SYMBOLS.len() + Mlx5dv::SYMBOLS.len();
    assert_eq!(
        kinds["type"],
        fields - embedded - without_length - 1 + functions,
        "each field's type is compared, but one, and each function's"
    );
    assert_eq!(kinds["alignment"], types().count() - nameless.len());
    assert_eq!(kinds["value"], tables().map(|t| t.constants.len()).sum::<usize>());
}

/// Every file that takes something from C is in the tables, and nothing is taken by other means.
#[test]
fn every_file_is_in_the_tables() {
    let mut files = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let (mut invocations, mut declared) = (0, 0);
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        if path.file_name().is_some_and(|name| name == "macros.rs") || path.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("repr("), "{} has a layout that no table knows", path.display());
        invocations += text.lines().filter(|line| line.starts_with("c_items! {")).count();
        let of_c = |line: &&str| line.starts_with("        pub struct ") || line.starts_with("        pub union ");
        declared += text.lines().filter(of_c).filter(|line| !line.contains('$')).count();
    }
    assert_eq!(tables().count(), invocations, "a module's TABLE is not in its parent's TABLES");
    assert_eq!(types().count(), declared);
}
