//! Makes a module that a page can load out of what the compiler made of `crates/browser`.
//!
//! # Theory
//!
//! The compiler's WebAssembly carries descriptions of the Rust functions and types that cross into JavaScript;
//! wasm-bindgen turns them into a JavaScript file and a smaller module. Tool and library must be of one version, to the
//! last digit. So this is not the wasm-bindgen program, which everybody would have to install in the right version, but
//! its library: both depend on the one `wasm-bindgen-shared` in `Cargo.lock`, and cargo refuses any other pair.
//!
//! A package of its own, outside the default members: only building the site pays for compiling it.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(compiled), Some(folder), Some(name), None) =
        (arguments.next(), arguments.next(), arguments.next(), arguments.next())
    else {
        bail!("usage: browser-module COMPILED.wasm FOLDER NAME");
    };
    let name = name.to_str().context("NAME must be UTF-8")?;

    Bindgen::new()
        .input_path(&compiled)
        .out_name(name)
        .web(true)?
        .typescript(false)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(&folder)
        .with_context(|| format!("wasm-bindgen could not make a module of {}", compiled.display()))
}
