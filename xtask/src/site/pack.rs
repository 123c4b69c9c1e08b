//! Compressed variants of the site's files.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Extensions of compressible files. Fonts and images are compressed already.
const COMPRESSIBLE: [&str; 7] = ["css", "html", "js", "json", "svg", "txt", "wasm"];

/// Writes a file with its `.br` and `.gz` variants if it is compressible.
pub(super) fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write_variants(path, bytes, 11, Compression::best())
}

/// Like [`write`], but compresses less in a fraction of the time, for development.
pub(super) fn write_quickly(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write_variants(path, bytes, 1, Compression::fast())
}

fn write_variants(
    path: &Path,
    bytes: &[u8],
    brotli_quality: i32,
    gzip_level: Compression,
) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    put(path, bytes)?;
    if path.extension().is_some_and(|ending| COMPRESSIBLE.iter().any(|packed| ending == *packed)) {
        put(&variant_path(path, "br"), &brotli(bytes, brotli_quality)?)?;
        put(&variant_path(path, "gz"), &gzip(bytes, gzip_level)?)?;
    }
    Ok(())
}

/// Formats a file's size, plain and in Brotli, which most browsers use.
pub(super) fn sizes(path: &Path) -> anyhow::Result<String> {
    let size = |path: &Path| {
        fs::metadata(path).map(|about| about.len()).with_context(|| path.display().to_string())
    };
    Ok(format!("{:>8} bytes, {:>7} as brotli", size(path)?, size(&variant_path(path, "br"))?))
}

fn put(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

/// The path of a file's compressed variant.
pub(super) fn variant_path(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

fn brotli(bytes: &[u8], quality: i32) -> anyhow::Result<Vec<u8>> {
    let parameters = brotli::enc::BrotliEncoderParams {
        quality,
        lgwin: 22,
        size_hint: bytes.len(),
        ..Default::default()
    };
    let mut packed = Vec::new();
    brotli::BrotliCompress(&mut &bytes[..], &mut packed, &parameters)?;
    Ok(packed)
}

fn gzip(bytes: &[u8], level: Compression) -> anyhow::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), level);
    packed.write_all(bytes)?;
    Ok(packed.finish()?)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn compressed_variants_unpack_to_the_file() {
        for write in [write, write_quickly] {
            let folder = tempfile::tempdir().expect("a folder");
            let text = "body { color: red }\n".repeat(100);
            let file = folder.path().join("pkg/a.css");

            write(&file, text.as_bytes()).expect("a written file");

            let mut unpacked = Vec::new();
            let packed = fs::read(variant_path(&file, "br")).expect("br");
            brotli::BrotliDecompress(&mut &packed[..], &mut unpacked).expect("brotli");
            assert_eq!(unpacked, text.as_bytes());
            assert!(packed.len() < text.len() / 4);

            let mut unpacked = String::new();
            let gz = fs::File::open(variant_path(&file, "gz")).expect("gz");
            flate2::read::GzDecoder::new(gz).read_to_string(&mut unpacked).expect("gzip");
            assert_eq!(unpacked, text);
        }
    }

    #[test]
    fn font_has_no_compressed_variant() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.woff2");
        write(&file, b"font").expect("a written file");
        assert!(!variant_path(&file, "br").exists());
    }
}
