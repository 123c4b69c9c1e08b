//! Rebuilds a program with an embedded site when the site changes.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=GANTRY_EMBEDDED_SITE");
    if let Some(site) = std::env::var_os("CARGO_FEATURE_EMBEDDED_SITE")
        .and(std::env::var_os("GANTRY_EMBEDDED_SITE"))
    {
        println!("cargo:rerun-if-changed={}", site.to_string_lossy());
    }
}
