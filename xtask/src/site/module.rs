//! The browser module: compiles `crates/browser` to WebAssembly, splits it into parts, binds and
//! optimizes it.
//!
//! **Compiler.** `scripts/browser-wasm` compiles the crate, with its dependencies in the cache.
//!
//! **Parts.** `xtask/browser-module` splits the module into a main file, a part for each page, and
//! shared files, which [`super::parts`] merges.
//!
//! A module for development is neither split nor optimized.
//!
//! **Optimization.** wasm-opt comes from npm, because Debian's silently breaks the page. Each file
//! is optimized separately. They are connected only by imports and exports, which wasm-opt keeps.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use super::Kind;
use super::pack;
use super::parts::{self, Parts, SplitOutput};
use crate::command::Step;
use crate::tree::Tree;

impl Kind {
    /// The cargo profile, and the name of the folder of intermediate files.
    const fn profile(self) -> &'static str {
        match self {
            Self::Development => "wasm-dev",
            Self::Release => "wasm",
        }
    }
}

/// The WebAssembly features that the compiler uses. A split file does not declare them.
const WASM_FEATURES: [&str; 7] = [
    "--enable-bulk-memory",
    "--enable-bulk-memory-opt",
    "--enable-multivalue",
    "--enable-mutable-globals",
    "--enable-nontrapping-float-to-int",
    "--enable-reference-types",
    "--enable-sign-ext",
];

pub(super) struct Module {
    /// The folder with `gantry.js`, `gantry.wasm`, the parts, and their compressed variants.
    pub(super) folder: PathBuf,
    /// The files of each part, by name without `.wasm`.
    pub(super) parts: Parts,
}

pub(super) fn build(tree: &Tree, packages: &Path, kind: Kind) -> anyhow::Result<Module> {
    let compiled = PathBuf::from(Step::script(tree, "browser-wasm").arg(kind.profile()).output()?);
    let build = tree.target().join("site-build").join(kind.profile());
    let folder = build.join("module");
    let bindgen_folder = build.join("bound");
    let made = build.join("made-of");
    let parts = build.join("parts.json");

    let sources = [
        "Cargo.lock",
        "xtask/browser-module/src/main.rs",
        "xtask/package-lock.json",
        "xtask/src/site/module.rs",
        "xtask/src/site/parts.rs",
    ];
    let mut sources: Vec<PathBuf> = sources.iter().map(|path| tree.path(path)).collect();
    sources.push(compiled.clone());
    let fingerprint = fingerprint(&[], &sources)?;
    if !(folder.is_dir() && fs::read_to_string(&made).is_ok_and(|last| last == fingerprint)) {
        for old in [&folder, &bindgen_folder] {
            let _ = fs::remove_dir_all(old);
        }
        fs::create_dir_all(&bindgen_folder)?;
        let command = match kind {
            Kind::Development => "whole",
            Kind::Release => "split",
        };
        Step::cargo(tree)
            .args(["run", "--locked", "--bin", "browser-module", "--", command])
            .args([&compiled, &bindgen_folder, Path::new("gantry")])
            .run()?;
        let tools = Binaryen { tree, folder: packages.join("binaryen/bin") };
        let parts_by_name = match kind {
            Kind::Development => copy_module(&bindgen_folder, &folder)?,
            Kind::Release => assemble(&tools, &bindgen_folder, &folder)?,
        };
        fs::write(&parts, serde_json::to_vec(&parts_by_name)?)?;
        fs::write(&made, fingerprint)?;
    }
    let parts =
        serde_json::from_slice(&fs::read(&parts).with_context(|| parts.display().to_string())?)?;
    Ok(Module { folder, parts })
}

struct Binaryen<'a> {
    tree: &'a Tree,
    folder: PathBuf,
}

impl Binaryen<'_> {
    fn run(
        &self,
        tool: &str,
        arguments: impl IntoIterator<Item = PathBuf>,
        to: &Path,
    ) -> anyhow::Result<()> {
        Step::new(self.tree, "node")
            .arg(self.folder.join(tool))
            .args(WASM_FEATURES)
            .args(arguments)
            .arg("-o")
            .arg(to)
            .run()
    }

    /// Optimizes a file and writes it with its compressed variants.
    fn optimize(&self, from: &Path, to: &Path) -> anyhow::Result<()> {
        let small = from.with_extension("small");
        self.run("wasm-opt", ["-Oz".into(), from.to_owned()], &small)?;
        pack::write(to, &fs::read(&small)?)
    }
}

/// Merges, optimizes and writes the files of the module. Returns the files of each part.
fn assemble(tools: &Binaryen<'_>, bindgen_folder: &Path, to: &Path) -> anyhow::Result<Parts> {
    let split_output: SplitOutput =
        serde_json::from_slice(&fs::read(bindgen_folder.join("cut.json"))?).context("cut.json")?;
    let file = |name: &str| bindgen_folder.join(format!("{name}.wasm"));
    let (groups, made) =
        parts::grouped(&split_output.parts, |name| Ok(fs::metadata(file(name))?.len()))?;

    let export_module = bindgen_folder.join("exports.wat");
    fs::write(&export_module, parts::export_module(&split_output.main_exports))?;
    tools.run("wasm-as", [export_module.clone()], &export_module.with_extension("wasm"))?;
    for (index, group) in groups.iter().enumerate() {
        let merged = file(&format!("shared_{index}"));
        // The files import from this module by its name.
        let named = group.files.iter().flat_map(|name| [file(name), name.into()]);
        let all =
            [export_module.with_extension("wasm"), "__wasm_split".into()].into_iter().chain(named);
        tools.run("wasm-merge", all, &merged)?;
    }
    // gantry.wasm, not gantry_bg.wasm: the page uses the name from .cargo/config.toml.
    let mut files = vec![(file("gantry_bg"), to.join("gantry.wasm"))];
    for name in made.values().flatten().collect::<BTreeSet<_>>() {
        files.push((file(name), to.join(format!("{name}.wasm"))));
    }
    optimize_all(tools, &files)?;

    pack::write(&to.join("split.js"), parts::loader(&split_output, &made).as_bytes())?;
    copy_scripts(bindgen_folder, to)?;
    Ok(made)
}

/// Optimizes files, one on each core: the optimizer uses only one.
fn optimize_all(tools: &Binaryen<'_>, files: &[(PathBuf, PathBuf)]) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let optimize_next = || -> anyhow::Result<()> {
        while let Some((from, to)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            tools.optimize(from, to)?;
        }
        Ok(())
    };
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(optimize_next)).collect();
        let results = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        results.collect()
    })
}

/// Copies the one file of a module for development. It has no parts.
fn copy_module(bindgen_folder: &Path, to: &Path) -> anyhow::Result<Parts> {
    copy_scripts(bindgen_folder, to)?;
    let wasm = fs::read(bindgen_folder.join("gantry_bg.wasm"))?;
    pack::write_quickly(&to.join("gantry.wasm"), &wasm)?;
    Ok(Parts::new())
}

fn copy_scripts(bindgen_folder: &Path, to: &Path) -> anyhow::Result<()> {
    pack::write(&to.join("gantry.js"), &fs::read(bindgen_folder.join("gantry.js"))?)?;
    // gantry.js imports the snippets of wasm-bindgen.
    if bindgen_folder.join("snippets").is_dir() {
        super::copy_assets(&bindgen_folder.join("snippets"), &to.join("snippets"))?;
    }
    Ok(())
}

/// A hash of bytes and files.
pub(super) fn fingerprint(bytes: &[u8], files: &[PathBuf]) -> anyhow::Result<String> {
    let mut all = Sha256::new();
    all.update(Sha256::digest(bytes));
    for file in files {
        all.update(Sha256::digest(fs::read(file).with_context(|| file.display().to_string())?));
    }
    Ok(all.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    }))
}
