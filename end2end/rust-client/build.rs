//! Generates the client.

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;

use openapi_to_rust::{CodeGenerator, GeneratorConfig, SchemaAnalyzer};

const DOCUMENT: &str = "../../docs/openapi.json";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={DOCUMENT}");
    println!("cargo::rerun-if-changed=build.rs");
    let document = serde_json::from_str(&fs::read_to_string(DOCUMENT)?)?;
    let folder = Path::new(&env::var("OUT_DIR")?).join("client");
    let generator = CodeGenerator::new(GeneratorConfig {
        spec_path: DOCUMENT.into(),
        output_dir: folder.clone(),
        enable_sse_client: false,
        tracing_enabled: false,
        ..GeneratorConfig::default()
    });
    let client = generator.generate_all(&mut SchemaAnalyzer::new(document)?.analyze()?)?;
    generator.write_files(&client)?;
    // An included file can't begin with inner attributes, as the generated one does.
    Ok(fs::write(folder.join("mod.rs"), "pub mod client;\npub mod types;\n")?)
}
