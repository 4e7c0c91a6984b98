//! The library's own name, by which packages and ldconfig(8) know it: that of the libvma whose programs it serves.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libvma.so.9");
}
