//! Converts the compiled `crates/browser` into a module that a page can load in parts.
//!
//! **Split first.** The linker keeps relocations. `wasm_split_cli_support` follows them from each
//! function that is marked as a part. It writes the main file, the parts, and files that several
//! parts share. (It also writes a JavaScript loader. The site has its own, because it merges the
//! shared files.) It needs the linker's original output, so it runs before everything else.
//!
//! **Then bind.** The compiler's output describes the Rust functions and types that cross into
//! JavaScript. wasm-bindgen turns these descriptions into a JavaScript file and a smaller module.
//! All of them are in the main file, so only that file goes through it. Tool and library must have
//! exactly the same version. This program therefore uses wasm-bindgen as a library: both depend on
//! the one `wasm-bindgen-shared` in `Cargo.lock`, and cargo rejects any other combination.
//! Contributors then need not install a matching tool.
//!
//! Output: `NAME.js`, `NAME_bg.wasm`, a file per part, many shared files, and `cut.json`. The
//! latter lists the files of each part and the exports of the main file that they use.
//!
//! **Development.** Splitting and merging take minutes. For development (`whole`), the module stays
//! in one file. Its parts are then connected directly, so `app` need not know.
//!
//! This is a separate package outside the default members, so that only a site build compiles it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use walrus::{ImportKind, Module, ModuleConfig, ValType};
use wasm_bindgen_cli_support::Bindgen;
use wasm_split_cli_support::{Options, transform};
use wasmparser::{Parser, Payload, TypeRef};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [kind, compiled, folder, name] = arguments.as_slice() else { bail!(USAGE) };
    let name = name.to_str().context("NAME must be UTF-8")?;
    match kind.to_str() {
        Some("split") => split(compiled, folder, name),
        Some("whole") => whole(compiled, folder, name),
        _ => bail!(USAGE),
    }
}

const USAGE: &str = "usage: browser-module split|whole COMPILED.wasm FOLDER NAME";

/// Writes a module in parts.
fn split(compiled: &Path, folder: &Path, name: &str) -> anyhow::Result<()> {
    let wasm = std::fs::read(compiled).with_context(|| compiled.display().to_string())?;
    let main = folder.join("main.wasm");
    let glue = format!("./{name}.js");
    let mut options = Options::new(&wasm);
    options.output_dir = folder;
    options.main_out_path = &main;
    options.main_module = &glue;
    options.link_name = "./split.js";
    let split = transform(options)
        .map_err(|error| anyhow!("{} can't be cut into parts: {error:#}", compiled.display()))?;
    let mut main_exports = BTreeMap::new();
    for file in &split.split_modules {
        let bytes = std::fs::read(file)?;
        add_imports(&bytes, &mut main_exports).with_context(|| file.display().to_string())?;
        std::fs::write(file, strip_name_section(&bytes)?)?;
    }
    let parts: BTreeMap<_, _> = split.prefetch_map.into_iter().collect();
    let bytes = serde_json::json!({ "parts": parts, "main_exports": main_exports });
    std::fs::write(folder.join("cut.json"), serde_json::to_vec_pretty(&bytes)?)?;

    bind(Bindgen::new().input_path(&main), folder, name)
        .with_context(|| compiled.display().to_string())?;
    std::fs::remove_file(&main).with_context(|| main.display().to_string())
}

/// Writes a module in one file. Function names would double its size, so stack traces have none.
fn whole(compiled: &Path, folder: &Path, name: &str) -> anyhow::Result<()> {
    let mut module = ModuleConfig::new()
        .strict_validate(false) // the linker's output is valid
        .generate_name_section(false)
        .generate_producers_section(false)
        .parse_file(compiled)
        .with_context(|| compiled.display().to_string())?;
    connect_parts(&mut module)?;
    bind(Bindgen::new().input_module(name, module), folder, name)
        .with_context(|| compiled.display().to_string())
}

/// Runs wasm-bindgen.
fn bind(bindgen: &mut Bindgen, folder: &Path, name: &str) -> anyhow::Result<()> {
    bindgen
        .out_name(name)
        .web(true)?
        .typescript(false)
        // Parts are named by the linker's symbol names.
        .keep_lld_exports(true)
        .demangle(false)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(folder)
        .context("wasm-bindgen failed")
}

/// Connects the imports and exports that `wasm_split` defines for each part, in place of the
/// splitter. The import of a part's function calls the export, and the load function reports
/// success at once.
fn connect_parts(module: &mut Module) -> anyhow::Result<()> {
    let table = module.tables.main_function_table()?.context("no function table")?;
    let callback_type = module.types.add(&[ValType::I32, ValType::I32], &[]);
    let imports: Vec<_> = module
        .imports
        .iter()
        .filter(|import| import.module == UNSPLIT_MODULE)
        .map(|import| (import.name.clone(), import.kind.clone()))
        .collect();
    for (name, kind) in imports {
        let ImportKind::Function(import) = kind else { bail!("{name} is no function") };
        if name.starts_with("__wasm_split_load_") {
            module.replace_imported_func(import, |(body, arguments)| {
                let [callback, data] = arguments[..] else { return };
                body.local_get(data).i32_const(1).local_get(callback);
                body.call_indirect(callback_type, table);
            })?;
            continue;
        }
        let export = module.exports.get_func(name.replacen("00_import_", "00_export_", 1))?;
        module.replace_imported_func(import, |(body, arguments)| {
            for argument in arguments {
                body.local_get(*argument);
            }
            body.call(export);
        })?;
    }
    Ok(())
}

/// The module from which `wasm_split` imports, before the split.
const UNSPLIT_MODULE: &str = "__wasm_split_placeholder__";

/// Collects what a split file imports from the main file, by name and type (in WebAssembly text
/// format).
fn add_imports(file: &[u8], main_exports: &mut BTreeMap<String, String>) -> anyhow::Result<()> {
    for section in Parser::new(0).parse_all(file) {
        let Payload::ImportSection(imports) = section? else { continue };
        for import in imports.into_imports() {
            let import = import?;
            let kind = match import.ty {
                TypeRef::Memory(memory) => format!("(memory {})", memory.initial),
                TypeRef::Table(table) => format!("(table {} funcref)", table.initial),
                TypeRef::Global(global)
                    if global.content_type == wasmparser::ValType::I32 && global.mutable =>
                {
                    "(global (mut i32))".to_owned()
                }
                other => bail!(
                    "imports {} as {other:?}: files with that can't be put together",
                    import.name
                ),
            };
            main_exports.insert(import.name.to_owned(), kind);
        }
    }
    Ok(())
}

/// Removes the name section. It is incomplete after the split, so tools would complain.
fn strip_name_section(file: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut output = file.get(..8).context("no WebAssembly")?.to_vec();
    for section in Parser::new(0).parse_all(file) {
        let section = section?;
        let Some((id, range)) =
            section.as_section().filter(|_| !matches!(section, Payload::CustomSection(_)))
        else {
            continue;
        };
        let body = &file[usize::try_from(range.start)?..usize::try_from(range.end)?];
        output.push(id);
        // A section's size in LEB128.
        let mut size = body.len();
        while size >= 0x80 {
            output.push((size & 0x7f) as u8 | 0x80);
            size >>= 7;
        }
        output.push(size as u8);
        output.extend_from_slice(body);
    }
    Ok(output)
}
