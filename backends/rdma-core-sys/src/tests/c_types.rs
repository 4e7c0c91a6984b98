//! Rust's types in C's words, so that C can say whether they are alike.

use super::table::Table;

/// A comparison in C: whether `expression` has the type that Rust calls `rust`. None for an array without a length.
///
/// C has two types of 64 bits, and headers use both: either will do.
pub(super) fn alike(expression: &str, rust: &str, tables: &[&Table]) -> Option<String> {
    let rust = normal(rust);
    let without_length = rust.starts_with('[') && rust.ends_with("; 0]");
    (!without_length).then(|| compared(expression, &in_c(&rust, tables)))
}

/// The same of a function, whose type Rust gives as that of an optional pointer. Functions are compared, not pointers, for GCC
/// keeps an attribute such as `const` in a pointer's type.
pub(super) fn function_alike(name: &str, rust: &str, tables: &[&Table]) -> String {
    compared(name, &format!("__typeof__(*({})0)", in_c(&normal(rust), tables)))
}

/// One line, spaced one way: Rust prints a type as it was written, or as a macro has parsed it.
fn normal(rust: &str) -> String {
    let line = rust.split_whitespace().collect::<Vec<_>>().join(" ");
    let spaced =
        [("Option < ", "Option<"), ("Option< ", "Option<"), (" >", ">"), (",>", ">"), (", >", ">"), ("( ", "("), (",)", ")"), (", )", ")")];
    spaced.into_iter().fold(line, |line, (from, to)| line.replace(from, to))
}

fn compared(expression: &str, c: &str) -> String {
    let compare = |c: &str| format!("__builtin_types_compatible_p(__typeof__({expression}), {c})");
    format!("{} || {}", compare(c), compare(&c.replace("uint64_t", "__u64")))
}

fn in_c(rust: &str, tables: &[&Table]) -> String {
    let rust = rust.trim();
    if let Some(target) = rust.strip_prefix("*mut ") {
        return format!("__typeof__({}) *", in_c(target, tables));
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        return format!("const __typeof__({}) *", in_c(target, tables));
    }
    if let Some((element, length)) = rust.strip_prefix('[').and_then(|array| array.strip_suffix(']')?.rsplit_once("; ")) {
        return format!("__typeof__(__typeof__({}) [{length}])", in_c(element, tables));
    }
    if let Some(function) = rust.strip_prefix("Option<unsafe extern \"C\" fn").and_then(|rest| rest.strip_suffix('>')) {
        let (arguments, result) = function.rsplit_once(')').unwrap();
        let result = result.trim().strip_prefix("->").map_or("void".to_owned(), |result| in_c(result, tables));
        let types = arguments.trim().trim_start_matches('(').split(',').map(str::trim).filter(|argument| !argument.is_empty());
        let types: Vec<String> = types.map(|argument| in_c(argument.rsplit_once(": ").map_or(argument, |(_, of)| of), tables)).collect();
        let types = if types.is_empty() { "void".to_owned() } else { types.join(", ") };
        return format!("__typeof__(__typeof__({result}) (*)({types}))");
    }
    let plain = match rust {
        "u8" => "uint8_t",
        "u16" => "uint16_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        "isize" => "ssize_t",
        "bool" => "_Bool",
        "c_void" => "void",
        "c_char" => "char",
        "c_int" => "int",
        "c_uint" => "unsigned int",
        "c_ushort" => "unsigned short",
        "__be16" | "__be32" | "__be64" | "off_t" | "socklen_t" | "pthread_mutex_t" | "pthread_cond_t" => rust,
        _ if tables.iter().any(|table| table.enums.iter().any(|(name, _)| *name == rust)) => return format!("enum {rust}"),
        _ => match tables.iter().flat_map(|table| table.types).find(|of| of.name == rust) {
            Some(of) => of.c,
            // Of structures that are only pointed to, and of libc's.
            None => return format!("struct {rust}"),
        },
    };
    plain.to_owned()
}

#[test]
fn types_are_put_into_cs_words() {
    let table = Table { types: &[], enums: &[("ibv_mtu", 4)], constants: &[] };
    let c = |rust: &str| in_c(&normal(rust), &[&table]);
    assert_eq!(c("*const *mut ibv_pd"), "const __typeof__(__typeof__(struct ibv_pd) *) *");
    assert_eq!(c("[[u8; 6]; 2]"), "__typeof__(__typeof__(__typeof__(__typeof__(uint8_t) [6])) [2])");
    let function = "Option<unsafe extern \"C\" fn(mtu: ibv_mtu, r#type: *mut c_void) -> c_int>";
    assert_eq!(c(function), "__typeof__(__typeof__(int) (*)(enum ibv_mtu, __typeof__(void) *))");
    assert_eq!(c("Option <\n  unsafe extern \"C\" fn(\n mtu: ibv_mtu,\n r#type: *mut c_void,\n ) -> c_int,\n >"), c(function));
    assert_eq!(c("Option<unsafe extern \"C\" fn()>"), "__typeof__(__typeof__(void) (*)(void))");
}
