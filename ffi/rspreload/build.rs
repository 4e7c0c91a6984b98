//! The library's own name, as ldconfig(8) knows it. It has a thread and handlers, and so is never unloaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librspreload.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
