//! The browser's module: `crates/browser` compiled to WebAssembly, made loadable, made small.
//!
//! # Theory
//!
//! *Compiler.* `scripts/wasm-toolchain` says which: cargo's own, or a private one made of Debian's packages. The private
//! one is used for this one command, by naming it; no default changes. It may be a newer version than the server's
//! compiler: what both must agree on (names of server functions, hashes) comes out of the sources and `Cargo.lock`.
//!
//! *Where.* The build folder is in the cache: compiling the dependencies for size takes minutes, and they are the same
//! for every clone. Cargo tells by time stamps whether our own crates changed, which means nothing between two clones
//! at one path; so when another clone used the folder last, our own crates in it are thrown away first.
//!
//! *Small.* wasm-opt comes from npm: Debian's breaks the page and says nothing.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use super::pack;
use crate::command::Step;
use crate::tree::Tree;

const TARGET: &str = "wasm32-unknown-unknown";
const PROFILE: &str = "wasm";

/// Our own crates that are in the module.
const OURS: [&str; 4] = ["api", "app", "browser", "engine"];

/// Variables that would reach the other compiler though they speak of the first.
const OF_THE_NATIVE_BUILD: [&str; 7] = [
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTDOC",
    "RUSTFLAGS",
];

/// Builds the module; the folder with `gantry.js` and `gantry.wasm` and their compressed twins.
pub(super) fn build(tree: &Tree, packages: &Path) -> anyhow::Result<PathBuf> {
    let compiled = compile(tree)?;
    let folder = tree.target().join("site-build");
    let module = folder.join("module");
    let made = folder.join("made-of");

    let made_of = fingerprint(&[&compiled, &tree.path("xtask/package-lock.json"), &tree.path("Cargo.lock")])?;
    if module.is_dir() && fs::read_to_string(&made).is_ok_and(|last| last == made_of) {
        return Ok(module);
    }
    for old in [&module, &folder.join("bound")] {
        let _ = fs::remove_dir_all(old);
    }

    let bound = folder.join("bound");
    fs::create_dir_all(&bound)?;
    Step::cargo(tree)
        .args(["run", "--quiet", "--locked", "--package", "browser-module", "--"])
        .args([&compiled, &bound, Path::new("gantry")])
        .run()?;

    let small = folder.join("gantry.wasm");
    Step::new(tree, "node")
        .args([
            packages.join("binaryen/bin/wasm-opt"),
            "-Oz".into(),
            bound.join("gantry_bg.wasm"),
            "-o".into(),
            small.clone(),
        ])
        .run()?;

    // gantry.wasm, not gantry_bg.wasm: the page asks for it by the name set in .cargo/config.toml.
    pack::write(&module.join("gantry.wasm"), &fs::read(&small)?)?;
    pack::write(&module.join("gantry.js"), &fs::read(bound.join("gantry.js"))?)?;
    // What wasm-bindgen put beside it is imported by gantry.js.
    if bound.join("snippets").is_dir() {
        super::copy_assets(&bound.join("snippets"), &module.join("snippets"))?;
    }
    fs::write(&made, made_of)?;
    Ok(module)
}

/// Compiles `crates/browser`; the path of what came out.
fn compile(tree: &Tree) -> anyhow::Result<PathBuf> {
    let toolchain = tree.script("wasm-toolchain", &[])?;
    let name = Path::new(&toolchain).file_name().context("scripts/wasm-toolchain names no toolchain")?;
    let target_dir = tree.cache()?.join("wasm-target").join(name);
    fs::create_dir_all(&target_dir).with_context(|| target_dir.display().to_string())?;

    let cargo = |arguments: &[&str]| {
        compiler(tree, &toolchain)
            .args(arguments)
            .args(["--locked", "--target", TARGET, "--profile", PROFILE, "--target-dir"])
            .arg(&target_dir)
    };
    let clone = clone_id(tree)?;
    let last = target_dir.join("last-clone");
    if fs::read_to_string(&last).is_ok_and(|id| id != clone) {
        let ours = OURS.iter().flat_map(|name| ["--package", name]);
        let clean: Vec<&str> = std::iter::once("clean").chain(ours).collect();
        cargo(&clean).run()?;
    }
    fs::write(&last, clone)?;
    cargo(&["build", "--package", "browser", "--lib"]).run()?;
    Ok(target_dir.join(TARGET).join(PROFILE).join("browser.wasm"))
}

/// The cargo of a toolchain that `scripts/wasm-toolchain` named.
fn compiler(tree: &Tree, toolchain: &str) -> Step {
    if toolchain == "default" {
        return Step::cargo(tree).without_env(&OF_THE_NATIVE_BUILD);
    }
    let folder = Path::new(toolchain);
    let bin = folder.join("bin");
    // By path and with its libraries named, not through rustup: it works where Rust came in another way, too.
    let path = std::env::var("PATH").unwrap_or_default();
    Step::new(tree, bin.join("cargo"))
        .without_env(&OF_THE_NATIVE_BUILD)
        .without_env(&["RUSTC_WRAPPER", "RUSTUP_TOOLCHAIN"])
        .env("RUSTC", bin.join("rustc"))
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("LD_LIBRARY_PATH", folder.join("lib"))
}

/// Says which clone this is: another one at the same path has another number.
fn clone_id(tree: &Tree) -> anyhow::Result<String> {
    let root = tree.path("");
    let about = fs::metadata(&root).with_context(|| root.display().to_string())?;
    Ok(format!("{} {} {}", root.display(), about.dev(), about.ino()))
}

fn fingerprint(files: &[&Path]) -> anyhow::Result<String> {
    let mut all = Sha256::new();
    for file in files {
        all.update(Sha256::digest(fs::read(file).with_context(|| file.display().to_string())?));
    }
    Ok(all.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    }))
}
