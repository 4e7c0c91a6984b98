#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringway_stack::fuzzing::run("options", input));
