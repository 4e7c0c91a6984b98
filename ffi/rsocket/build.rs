//! The library's own name, by which ldconfig(8) and programs that are linked with it know it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librsocket.so.1");
}
