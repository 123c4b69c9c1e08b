//! The linker leaves in what the module is cut into parts by (`cargo xtask site`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=--emit-relocs");
}
