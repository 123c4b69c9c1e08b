//! Makes a module that a page can load, in parts, out of what the compiler made of `crates/browser`.
//!
//! # Theory
//!
//! *Cut first.* The linker left in what refers to what. `wasm_split_cli_support` follows that from each function that is marked as a part
//! of its own, and writes the main file, the parts, and what several of them share. (It writes JavaScript that loads them, too; the site has its own, since
//! what is shared is put together there.) It has to see the
//! module as the linker wrote it, so it comes before everything else.
//!
//! *Then bound.* The compiler's WebAssembly carries descriptions of the Rust functions and types that cross into JavaScript;
//! wasm-bindgen turns them into a JavaScript file and a smaller module. All of that is in the main file, so it alone goes through.
//! Tool and library must be of one version, to the last digit. So this is not the wasm-bindgen program, which everybody would have to
//! install in the right version, but its library: both depend on the one `wasm-bindgen-shared` in `Cargo.lock`, and cargo refuses any
//! other pair.
//!
//! What comes out: `NAME.js`, `NAME_bg.wasm`, a file for each part and many for what they share, and `cut.json`, which says for each part
//! the files that it is made of, and what the main file lends to all of them.
//!
//! A package of its own, outside the default members: only building the site pays for compiling it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use wasm_bindgen_cli_support::Bindgen;
use wasm_split_cli_support::{Options, transform};
use wasmparser::{Parser, Payload, TypeRef, ValType};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(compiled), Some(folder), Some(name), None) =
        (arguments.next(), arguments.next(), arguments.next(), arguments.next())
    else {
        bail!("usage: browser-module COMPILED.wasm FOLDER NAME");
    };
    let name = name.to_str().context("NAME must be UTF-8")?;

    let whole = std::fs::read(&compiled).with_context(|| compiled.display().to_string())?;
    let main = folder.join("main.wasm");
    let glue = format!("./{name}.js");
    let mut options = Options::new(&whole);
    options.output_dir = &folder;
    options.main_out_path = &main;
    options.main_module = &glue;
    options.link_name = "./split.js";
    let split = transform(options)
        .map_err(|error| anyhow!("{} can't be cut into parts: {error:#}", compiled.display()))?;
    let mut lent = BTreeMap::new();
    for file in &split.split_modules {
        let cut = std::fs::read(file)?;
        borrowed(&cut, &mut lent).with_context(|| file.display().to_string())?;
        std::fs::write(file, without_names(&cut)?)?;
    }
    let parts: BTreeMap<_, _> = split.prefetch_map.into_iter().collect();
    let cut = serde_json::json!({ "parts": parts, "lent": lent });
    std::fs::write(folder.join("cut.json"), serde_json::to_vec_pretty(&cut)?)?;

    Bindgen::new()
        .input_path(&main)
        .out_name(name)
        .web(true)?
        .typescript(false)
        // The parts are called by the linker's names.
        .keep_lld_exports(true)
        .demangle(false)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(&folder)
        .with_context(|| {
            format!("wasm-bindgen could not make a module of {}", compiled.display())
        })?;
    std::fs::remove_file(&main).with_context(|| main.display().to_string())
}

/// What a file that was cut off takes from the main one, by name and type (as WebAssembly's text).
fn borrowed(file: &[u8], lent: &mut BTreeMap<String, String>) -> anyhow::Result<()> {
    for section in Parser::new(0).parse_all(file) {
        let Payload::ImportSection(imports) = section? else { continue };
        for import in imports.into_imports() {
            let import = import?;
            let kind = match import.ty {
                TypeRef::Memory(memory) => format!("(memory {})", memory.initial),
                TypeRef::Table(table) => format!("(table {} funcref)", table.initial),
                TypeRef::Global(global)
                    if global.content_type == ValType::I32 && global.mutable =>
                {
                    "(global (mut i32))".to_owned()
                }
                other => bail!(
                    "imports {} as {other:?}: files with that can't be put together",
                    import.name
                ),
            };
            lent.insert(import.name.to_owned(), kind);
        }
    }
    Ok(())
}

/// The same file without what is for people: names, of which its readers would say that they don't know all of them.
fn without_names(file: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut kept = file.get(..8).context("no WebAssembly")?.to_vec();
    for section in Parser::new(0).parse_all(file) {
        let section = section?;
        let Some((id, range)) =
            section.as_section().filter(|_| !matches!(section, Payload::CustomSection(_)))
        else {
            continue;
        };
        let held = &file[usize::try_from(range.start)?..usize::try_from(range.end)?];
        kept.push(id);
        // A section's size: seven bits in each byte, the lowest first, and a mark on all but the last.
        let mut size = held.len();
        while size >= 0x80 {
            kept.push((size & 0x7f) as u8 | 0x80);
            size >>= 7;
        }
        kept.push(size as u8);
        kept.extend_from_slice(held);
    }
    Ok(kept)
}
