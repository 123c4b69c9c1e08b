//! The commands `gantry audit verify` and `gantry keygen`: output and exit codes.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use control::audit::checkpoints::SigningKey;
use engine::Hash;
use engine::audit::checkpoint::Link;
use engine::audit::export::{End, FORMAT, Header, Line, Totals};
use engine::audit::{Chain, SealedEntry, link};
use tempfile::TempDir;

struct World {
    folder: TempDir,
    chain: Chain,
    entries: Vec<SealedEntry>,
}

impl World {
    fn new() -> Self {
        let (mut chain, mut entries) = (Chain::default(), Vec::new());
        for n in 1..=5 {
            let content =
                format!("{{\"id\":{n},\"action\":\"test\",\"subject\":\"\",\"detail\":{{}}}}");
            let sealed = SealedEntry {
                seq: n,
                previous: chain.hash,
                hash: link(chain.hash, &content),
                content,
            };
            chain.add(&sealed).unwrap();
            entries.push(sealed);
        }
        Self { folder: tempfile::tempdir().unwrap(), chain, entries }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An export of the first entries, which is valid on its own.
    fn export(&self, entries: usize) -> String {
        let last = &self.entries[entries - 1];
        let header = Header { format: FORMAT, after: 0, end: last.seq, hash: last.hash };
        let totals = Totals { entries: last.seq, ..Totals::default() };
        let lines = [Line::Header(header)]
            .into_iter()
            .chain(self.entries[..entries].iter().cloned().map(Line::Audit));
        let lines = lines.chain([Line::End(End { end: last.seq, hash: last.hash, totals })]);
        let text: String = lines.map(|line| serde_json::to_string(&line).unwrap() + "\n").collect();
        self.write("export.jsonl", &text)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Returns the exit code and the output.
    fn gantry(&self, words: &[&str]) -> (i32, String) {
        let output =
            Command::new(env!("CARGO_BIN_EXE_gantry")).arg("audit").args(words).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    }
}

#[test]
fn expected_link_finds_cut_and_recomputed_chains() {
    let world = World::new();
    let export = world.export(5);
    let newest = format!("5:{}", world.chain.hash);
    let (code, text) = world.gantry(&["verify", &export, "--expect", &newest]);
    assert!(
        code == 0 && text.contains("Each expected link is in the chain.") && text.contains(&newest),
        "{text}"
    );
    let other = format!("3:{}", Hash::of_bytes(b"another chain"));
    let (code, text) = world.gantry(&["verify", &export, "--expect", &other]);
    assert!(
        code == 1 && text.contains("Entry 3 has the link") && text.contains("computed again"),
        "{text}"
    );
    let cut = world.export(2);
    let (code, text) = world.gantry(&["verify", &cut]);
    assert_eq!(code, 0, "a shortened export is valid without an expected link: {text}");
    let (code, text) = world.gantry(&["verify", &cut, "--expect", &newest]);
    assert!(code == 1 && text.contains("Entries 3 to 5 are missing"), "{text}");
    let zero = format!("0:{}", world.chain.hash);
    for (wrong, reason) in [
        ("5", "the colon is missing"),
        (zero.as_str(), "there is no entry 0"),
        ("x:y", "\"x\" is not an entry number: invalid digit"),
        ("5:ab", "\"ab\" is not a hash: A hash must have 64 lowercase hexadecimal digits"),
    ] {
        let (code, text) = world.gantry(&["verify", &cut, "--expect", wrong]);
        assert!(
            code == 2 && text.contains(reason) && text.contains("A link is SEQ:HASH"),
            "{wrong}: {text}"
        );
    }
}

#[test]
fn checkpoints_are_verified_with_their_key() {
    let world = World::new();
    let key = world.path("audit.pem");
    let key = key.to_str().unwrap();
    let (code, text) = world.gantry(&["keygen", key]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(world.gantry(&["keygen", key]).0, 2, "an existing key is not overwritten");
    let public = format!("{key}.pub");

    let signing = SigningKey::read(&fs::read_to_string(key).unwrap()).unwrap();
    let installation = world.entries[0].hash;
    let checkpoint = |seq: usize, hash: Hash| {
        let at = "2026-01-01T00:00:00Z".to_owned();
        let link = Link { seq: seq as u64, hash, installation, epoch: 1, at };
        serde_json::to_string(&signing.sign(link).unwrap()).unwrap() + "\n"
    };
    let honest = [2, 4].map(|seq| checkpoint(seq, world.entries[seq - 1].hash)).concat();
    let file = world.write("checkpoints.jsonl", &honest);
    let verify = |export: &str, key: &str| {
        world.gantry(&["verify", export, "--checkpoints", &file, "--key", key])
    };

    let (code, text) = verify(&world.export(5), &public);
    assert_eq!(code, 0, "{text}");
    let (code, text) = verify(&world.export(3), &public);
    assert!(code == 1 && text.contains("Entry 4 is missing"), "{text}");
    world.write("checkpoints.jsonl", &checkpoint(2, Hash::of_bytes(b"another chain")));
    let (code, text) = verify(&world.export(5), &public);
    assert!(code == 1 && text.contains("Entry 2 has the link"), "{text}");
    world.write("checkpoints.jsonl", &honest.replace("\"epoch\":1", "\"epoch\":2"));
    let (code, text) = verify(&world.export(5), &public);
    assert!(
        code == 1 && text.contains("was not signed with this key, or it was altered"),
        "{text}"
    );
    world.write("checkpoints.jsonl", &honest);
    let stranger = SigningKey::read(&SigningKey::generate().unwrap()).unwrap().public();
    let (code, text) = verify(&world.export(5), &world.write("other.pub", &stranger));
    assert!(code == 1 && text.contains("was not signed with this key"), "{text}");
    assert_eq!(verify(&world.export(5), "/nothing.pub").0, 2);
    let (code, text) = world.gantry(&["verify", &world.export(5), "--checkpoints", &file]);
    assert!(code == 2 && text.contains("--key"), "{text}");
}
