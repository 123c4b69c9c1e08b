//! Decides which files the parts of the module consist of.
//!
//! The splitter creates a shared file for every set of parts that need the same code. Thirty parts
//! make eight hundred files, most of a few hundred bytes, and a page would request five hundred of
//! them. So files are merged: repeatedly the pair that saves most, while that saves anything. The
//! cost is the bytes that a part loads without using them. They weigh more if the part is already
//! heavy. The benefit is one file less for each part that needs both. [`FILE_COST`] is the
//! value of a file in bytes. [`super::download_sizes`] reports and limits the result.
//!
//! The files call each other through the module's function table, and have their own segments of
//! its memory. Each imports both and exports nothing. They can therefore be merged in any
//! combination and loaded in any order.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The files of each part, by name without `.wasm`.
pub(super) type Parts = BTreeMap<String, Vec<String>>;

/// Number of unneeded bytes, as the linker wrote them, that cost as much as one more file. A file
/// costs a request, the head that each file has, and compression: small files compress worse. With
/// a higher value, pages load far more than they need; with a lower one, they request fifty files.
const FILE_COST: u64 = 160_000;

/// The splitter's description of its output.
#[derive(Debug, Deserialize)]
pub(super) struct SplitOutput {
    /// The files of each part.
    pub(super) parts: Parts,
    /// The main file's exports that other files use: names, and types in WebAssembly text format.
    pub(super) main_exports: BTreeMap<String, String>,
}

/// The weight of a byte in a part of average size.
const DEFAULT_WEIGHT: u64 = 256;

/// The weight of a byte in each part, by its total size: linear below the average, and the fifth
/// power above it, because the largest pages are close to their limit.
fn weights(sizes: &[u64]) -> Vec<u64> {
    let average = (sizes.iter().sum::<u64>() / sizes.len().max(1) as u64).max(1);
    let weight = |size: u64| match size > average {
        true => u128::from(size).pow(5) * u128::from(DEFAULT_WEIGHT) / u128::from(average).pow(5),
        false => u128::from(size) * u128::from(DEFAULT_WEIGHT) / u128::from(average),
    };
    sizes.iter().map(|size| weight(*size).try_into().unwrap_or(u64::MAX)).collect()
}

/// Merged files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileGroup {
    pub(super) files: Vec<String>,
    /// A bit for each part that needs one of the files, in the order of the part names.
    needed_by: u128,
    size: u64,
}

impl FileGroup {
    /// The cost of merging two groups, in bytes of a part of [`DEFAULT_WEIGHT`] weight. Negative if it
    /// saves more. Each part that needs only one group loads the other one unnecessarily. Each part that
    /// needs both loads one file less.
    fn cost(&self, other: &Self, weights: &[u64]) -> i128 {
        let unused_cost = |one: &Self, two: &Self| {
            let unused_by = one.needed_by & !two.needed_by;
            let parts = weights.iter().enumerate().filter(|(bit, _)| unused_by >> bit & 1 == 1);
            parts.map(|(_, weight)| i128::from(*weight)).sum::<i128>() * i128::from(two.size)
                / i128::from(DEFAULT_WEIGHT)
        };
        let saved_files = u64::from((self.needed_by & other.needed_by).count_ones()) * FILE_COST;
        unused_cost(self, other) + unused_cost(other, self) - i128::from(saved_files)
    }

    fn join(&mut self, other: Self) {
        self.files.extend(other.files);
        self.needed_by |= other.needed_by;
        self.size += other.size;
    }
}

/// Merges shared files into few groups. Returns the groups and the files of each part: `shared_N`
/// for each group, and its own files.
pub(super) fn grouped(
    parts: &Parts,
    size: impl Fn(&str) -> anyhow::Result<u64>,
) -> anyhow::Result<(Vec<FileGroup>, Parts)> {
    anyhow::ensure!(
        parts.len() <= 128,
        "more than 128 parts: parts.rs counts them in the bits of a u128"
    );
    let mut needed_by: BTreeMap<&str, u128> = BTreeMap::new();
    for (bit, files) in parts.values().enumerate() {
        for file in files {
            *needed_by.entry(file).or_default() |= 1 << bit;
        }
    }
    let mut groups = Vec::new();
    // Each file begins with the same imports. Merged files have them once.
    let head = needed_by.keys().map(|file| size(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let head = head.into_iter().min().unwrap_or_default();
    let size = |file: &str| size(file).map(|size| size - head);
    for (file, needed_by) in needed_by.iter().filter(|(_, needed_by)| needed_by.count_ones() > 1) {
        groups.push(FileGroup {
            files: vec![(*file).to_owned()],
            needed_by: *needed_by,
            size: size(file)?,
        });
    }
    let sizes: Vec<u64> = parts
        .values()
        .map(|files| files.iter().map(|file| size(file)).sum::<anyhow::Result<u64>>())
        .collect::<anyhow::Result<_>>()?;
    let weights = weights(&sizes);
    while merge_cheapest(&mut groups, &weights) {}
    groups.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.files.cmp(&b.files)));
    let is_unshared =
        |file: &&String| needed_by.get(file.as_str()).is_some_and(|by| by.count_ones() == 1);
    let made = parts.iter().enumerate().map(|(bit, (name, files))| {
        let shared = groups.iter().enumerate().filter(|(_, group)| group.needed_by >> bit & 1 == 1);
        let shared = shared.map(|(index, _)| format!("shared_{index}"));
        (name.clone(), shared.chain(files.iter().filter(is_unshared).cloned()).collect())
    });
    let made = made.collect();
    Ok((groups, made))
}

/// Merges the cheapest pair. Returns false if no merge saves anything.
fn merge_cheapest(groups: &mut Vec<FileGroup>, weights: &[u64]) -> bool {
    let pairs = (1..groups.len()).flat_map(|one| (0..one).map(move |two| (two, one)));
    let costs = pairs.map(|(two, one)| (groups[two].cost(&groups[one], weights), two, one));
    let Some((_, two, one)) = costs.min().filter(|(cost, ..)| *cost < 0) else { return false };
    let removed = groups.swap_remove(one);
    groups[two].join(removed);
    true
}

/// A module that re-exports the main file's exports, in WebAssembly text format. Files are merged
/// with it, so that each import occurs only once.
pub(super) fn export_module(main_exports: &BTreeMap<String, String>) -> String {
    let imports =
        main_exports.iter().map(|(name, kind)| format!("  (import \"main\" \"{name}\" {kind})\n"));
    let mut counts = BTreeMap::<&str, usize>::new();
    let exports = main_exports.iter().map(|(name, kind)| {
        let kind = kind.trim_start_matches('(').split(' ').next().unwrap_or_default();
        let index = counts.entry(kind).or_default();
        *index += 1;
        format!("  (export \"{name}\" ({kind} {}))\n", *index - 1)
    });
    let lines: String = imports.chain(exports).collect();
    format!("(module\n{lines})\n")
}

/// The JavaScript loader of the parts: for each part, a function that the main file imports.
pub(super) fn loader(cut: &SplitOutput, made: &Parts) -> String {
    let main_exports: Vec<&str> = cut.main_exports.keys().map(String::as_str).collect();
    let mut script = LOADER_PROLOGUE.replace("EXPORTS", &main_exports.join(", "));
    for (name, files) in made {
        let files: Vec<String> = files.iter().map(|file| format!("\"{file}\"")).collect();
        script.push_str(&format!(
            "export const __wasm_split_load_{name} = part({});\n",
            files.join(", ")
        ));
    }
    script
}

/// A file that failed to load is requested again the next time.
const LOADER_PROLOGUE: &str = r#"import { initSync } from "./gantry.js";

let exports;
function imports() {
  if (!exports) {
    const { EXPORTS } = initSync();
    const main = { EXPORTS };
    exports = { main, __wasm_split: main };
  }
  return exports;
}

const files = new Map();
function load(file) {
  if (!files.has(file)) {
    const loading = WebAssembly.instantiateStreaming(fetch(new URL(`./${file}.wasm`, import.meta.url)), imports());
    files.set(file, loading);
    loading.catch(() => files.delete(file));
  }
  return files.get(file);
}

const part = (...names) => async (callback, data) => {
  let loaded = false;
  try {
    await Promise.all(names.map(load));
    loaded = true;
  } catch (error) {
    console.error(error);
  }
  imports().main.__indirect_function_table.get(callback)(data, loaded);
};

"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(parts: &[(&str, &[&str])]) -> Parts {
        parts
            .iter()
            .map(|(name, files)| {
                ((*name).into(), files.iter().map(|file| (*file).into()).collect())
            })
            .collect()
    }

    fn group(needed_by: u128, size: u64) -> FileGroup {
        FileGroup { files: vec![format!("{needed_by:b}")], needed_by, size }
    }

    #[test]
    fn part_has_own_and_shared_files() {
        let cut = parts(&[
            ("a", &["chunk_1", "split_a"]),
            ("b", &["chunk_1"]),
            ("c", &["chunk_2", "split_c"]),
        ]);
        let (groups, made) = grouped(&cut, |_| Ok(1)).expect("the groups");
        assert_eq!(groups.len(), 1);
        assert_eq!(
            made,
            parts(&[
                ("a", &["shared_0", "split_a"]),
                ("b", &["shared_0"]),
                ("c", &["chunk_2", "split_c"])
            ])
        );
    }

    #[test]
    fn cheapest_groups_are_merged() {
        // The groups of a, b and of a, b, c are small and similar. The group of c, d is large and
        // stays separate.
        let mut groups = vec![group(0b0011, 10), group(0b1100, 10 * FILE_COST), group(0b0111, 20)];
        assert!(merge_cheapest(&mut groups, &[DEFAULT_WEIGHT; 4]));
        let sizes: Vec<_> = groups.iter().map(|group| (group.needed_by, group.size)).collect();
        assert_eq!(sizes, [(0b0111, 30), (0b1100, 10 * FILE_COST)]);
        assert!(
            !merge_cheapest(&mut groups, &[DEFAULT_WEIGHT; 4]),
            "merging c would make a and b load more than the saved request costs"
        );
    }

    #[test]
    fn unrelated_groups_stay_separate() {
        assert!(!merge_cheapest(
            &mut vec![group(0b0011, 10), group(0b1100, 10)],
            &[DEFAULT_WEIGHT; 4]
        ));
    }

    #[test]
    fn heavy_parts_load_fewer_unneeded_bytes() {
        assert_eq!(weights(&[10_000, 20_000, 30_000]), [128, 256, 1944]);
        // a and b need both, c only one. If c were light, they would be merged.
        let mut groups = vec![group(0b011, FILE_COST), group(0b111, FILE_COST)];
        assert!(!merge_cheapest(
            &mut groups,
            &[DEFAULT_WEIGHT, DEFAULT_WEIGHT, 4 * DEFAULT_WEIGHT]
        ));
        assert!(merge_cheapest(&mut groups, &[DEFAULT_WEIGHT; 3]));
    }

    #[test]
    fn grouping_keeps_all_files() {
        let names: Vec<String> = (0..8).map(|bit| format!("p{bit}")).collect();
        let mut cut = Parts::new();
        for (bit, name) in names.iter().enumerate() {
            let files =
                (1_u32..256).filter(|set| set >> bit & 1 == 1).map(|set| format!("chunk_{set}"));
            cut.insert(name.clone(), files.collect());
        }
        let (groups, made) = grouped(&cut, |file| Ok(file.len() as u64)).expect("the groups");
        assert!(groups.len() < 8, "{}", groups.len());
        for (name, files) in &cut {
            for file in files {
                let is_included = made[name].iter().any(|part| {
                    part == file
                        || part
                            .strip_prefix("shared_")
                            .and_then(|index| index.parse().ok())
                            .is_some_and(|index: usize| groups[index].files.contains(file))
                });
                assert!(is_included, "{name} must include {file}");
            }
        }
    }

    #[test]
    fn export_module_keeps_kind_and_index() {
        let main_exports =
            [("f", "(table 3 funcref)"), ("g", "(global (mut i32))"), ("h", "(global (mut i32))")];
        let main_exports =
            main_exports.map(|(name, kind)| (name.to_owned(), kind.to_owned())).into();
        let text = export_module(&main_exports);
        for line in [
            "(import \"main\" \"f\" (table 3 funcref))",
            "(export \"f\" (table 0))",
            "(export \"h\" (global 1))",
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
    }
}
