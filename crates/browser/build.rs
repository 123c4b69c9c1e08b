//! Keeps relocations in an optimized module, because `cargo xtask site` needs them to split it into
//! chunks.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rustc-link-arg-cdylib=--emit-relocs");
    }
}
