//! Bundles the files in `style/` into one stylesheet, with its fonts.
//!
//! `main.css` is a list: one line with the order of the layers, then one `@import "file.css";` per
//! file. The import has `layer(name)` if the file does not name its layer. The bundle has the text
//! of the files in that order, unchanged. Browsers support nesting and layers, and compression
//! saves more than minification.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// The text of `name` in `folder`, with its imports inlined.
///
/// # Errors
/// If a file is missing or imported twice, or an import has another format.
pub(super) fn bundle(folder: &Path, name: &str) -> anyhow::Result<String> {
    let mut bundle = String::new();
    include(folder, name, &mut BTreeSet::new(), &mut bundle)?;
    Ok(bundle)
}

fn include(
    folder: &Path,
    name: &str,
    seen: &mut BTreeSet<String>,
    bundle: &mut String,
) -> anyhow::Result<()> {
    if !seen.insert(name.to_owned()) {
        bail!("style/{name} is imported twice");
    }
    let text = fs::read_to_string(folder.join(name)).with_context(|| format!("style/{name}"))?;
    for (number, line) in text.lines().enumerate() {
        if !line.trim_start().starts_with("@import") {
            bundle.push_str(line);
            bundle.push('\n');
            continue;
        }
        let import = Import::parse(line.trim()).with_context(|| {
            format!(
                "style/{name}:{}: write `@import \"file.css\";` or `@import \"file.css\" \
                layer(name);`",
                number + 1
            )
        })?;
        if let Some(layer) = import.layer {
            bundle.push_str(&format!("@layer {layer} {{\n"));
        }
        include(folder, import.file, seen, bundle)?;
        if import.layer.is_some() {
            bundle.push_str("}\n");
        }
    }
    Ok(())
}

struct Import<'a> {
    file: &'a str,
    layer: Option<&'a str>,
}

impl<'a> Import<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let rest = line.strip_prefix("@import")?.trim_start().strip_prefix('"')?;
        let (file, rest) = rest.split_once('"')?;
        let rest = rest.trim().strip_suffix(';')?.trim();
        let layer = match rest {
            "" => None,
            _ => Some(rest.strip_prefix("layer(")?.strip_suffix(')')?),
        };
        Some(Self { file, layer })
    }
}

/// Copies the fonts in the stylesheet from their npm packages to `/fonts/NAME`, with the license of
/// each package.
///
/// # Errors
/// If no package has a font.
pub(super) fn copy_fonts(css: &str, packages: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    let folders = font_packages(packages)?;
    for font in fonts(css) {
        let package = folders
            .iter()
            .find(|package| package.join("files").join(font).is_file())
            .with_context(|| {
                format!(
                    "the styles name /fonts/{font}, which none of the font packages in \
                xtask/package.json has"
                )
            })?;
        fs::copy(package.join("files").join(font), to.join(font))
            .with_context(|| font.to_owned())?;
        let family =
            package.file_name().and_then(|name| name.to_str()).context("a font package's name")?;
        let license = package.join("LICENSE");
        fs::copy(&license, to.join(format!("{family}-LICENSE.txt")))
            .with_context(|| license.display().to_string())?;
    }
    Ok(())
}

fn fonts(css: &str) -> BTreeSet<&str> {
    css.split("/fonts/").skip(1).filter_map(|rest| rest.split(['"', '\'', ')']).next()).collect()
}

fn font_packages(packages: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for scope in ["@fontsource", "@fontsource-variable"] {
        let scope = packages.join(scope);
        for entry in fs::read_dir(&scope).with_context(|| scope.display().to_string())? {
            found.push(entry?.path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn styles(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        folder
    }

    #[test]
    fn imports_keep_order_and_layer() {
        let folder = styles(&[
            ("main.css", "@layer a, b;\n@import \"one.css\";\n@import \"two.css\" layer(b);\n"),
            ("one.css", "@layer a { p { margin: 0 } }\n"),
            ("two.css", "p { margin: 1px }\n"),
        ]);
        assert_eq!(
            bundle(folder.path(), "main.css").expect("a bundle"),
            "@layer a, b;\n@layer a { p { margin: 0 } }\n@layer b {\np { margin: 1px }\n}\n"
        );
    }

    #[test]
    fn invalid_import_is_named_with_its_line() {
        for wrong in
            ["@import url(one.css);", "@import \"one.css\" screen;", "@import \"none.css\";"]
        {
            let folder = styles(&[("main.css", &format!("@layer a;\n{wrong}\n"))]);
            let text = format!("{:#}", bundle(folder.path(), "main.css").expect_err(wrong));
            assert!(text.contains("main.css:2") || text.contains("none.css"), "{text}");
        }
    }

    #[test]
    fn duplicate_import_is_rejected() {
        let folder = styles(&[("main.css", "@import \"main.css\";\n")]);
        assert!(bundle(folder.path(), "main.css").is_err());
    }

    #[test]
    fn fonts_are_copied_with_their_license() {
        let css = r#"@font-face { src: url("/fonts/a.woff2") format("woff2") } @font-face { src: url(/fonts/a.woff2) }"#;
        let folder = tempfile::tempdir().expect("a folder");
        let package = folder.path().join("@fontsource/a");
        fs::create_dir_all(package.join("files")).expect("a package");
        fs::create_dir_all(folder.path().join("@fontsource-variable")).expect("a scope");
        let to = folder.path().join("fonts");
        assert!(copy_fonts(css, folder.path(), &to).is_err());

        fs::write(package.join("files/a.woff2"), "font").expect("a font");
        fs::write(package.join("LICENSE"), "OFL").expect("a license");
        copy_fonts(css, folder.path(), &to).expect("copied");

        assert!(to.join("a.woff2").is_file());
        assert_eq!(fs::read_to_string(to.join("a-LICENSE.txt")).expect("a license"), "OFL");
    }
}
