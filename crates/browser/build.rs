//! Keeps relocations in the module, because `cargo xtask site` needs them to split it into chunks.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=--emit-relocs");
}
