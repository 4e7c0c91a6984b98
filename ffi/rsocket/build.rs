//! The library's own name, by which ldconfig(8) and programs that are linked with it know it. It has a thread and handlers, and so is never unloaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librsocket.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
