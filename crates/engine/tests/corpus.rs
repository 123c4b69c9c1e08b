//! Reads the unmodified barclamp files of OpenCrowbar and Digital Rebar.
//!
//! The files are not part of this repository. `GANTRY_CORPUS` names their folder: `opencrowbar/`
//! inside it, with a README that counts roles and lists flaws. If it is set, the files must exist.
//! Otherwise the tests try `shared/corpus` next to the workspace, and pass with a message if it
//! does not exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use engine::catalog::Catalog;
use engine::catalog::read::{Import, Severity, Source, import};

fn corpus() -> Option<PathBuf> {
    let named = std::env::var_os("GANTRY_CORPUS").map(PathBuf::from);
    let default_corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    found(named.as_deref(), &default_corpus)
}

fn found(named: Option<&Path>, default_corpus: &Path) -> Option<PathBuf> {
    let folder = named.unwrap_or(default_corpus).join("opencrowbar");
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(
        named.is_none(),
        "GANTRY_CORPUS is set, but folder {} does not exist",
        folder.display()
    );
    eprintln!("skipped: no corpus at {} (set GANTRY_CORPUS)", folder.display());
    None
}

#[test]
fn missing_corpus_is_skipped() {
    assert_eq!(found(None, Path::new("/nowhere")), None);
}

#[test]
#[should_panic(expected = "GANTRY_CORPUS is set, but folder /nowhere/opencrowbar does not exist")]
fn named_corpus_must_exist() {
    found(Some(Path::new("/nowhere")), Path::new("/nowhere"));
}

fn yml_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "yml"))
        .collect();
    files.sort();
    files
}

/// All barclamp files of a set, root first, imported on top of `base`.
fn set(folder: &Path, folders: &[&str], base: &Catalog) -> Import {
    let paths: Vec<PathBuf> =
        folders.iter().flat_map(|inner| yml_files(&folder.join(inner))).collect();
    let bytes: Vec<(String, Vec<u8>)> = paths
        .iter()
        .map(|path| {
            let name = path.strip_prefix(folder).unwrap_or(path);
            (name.display().to_string(), fs::read(path).expect("a readable file"))
        })
        .collect();
    let files = BTreeMap::new();
    let sources: Vec<Source<'_>> = bytes
        .iter()
        .map(|(path, bytes)| Source { path, bytes, folder: "", files: &files })
        .collect();
    import(&sources, base).unwrap_or_else(|findings| panic!("{}:\n{findings}", folder.display()))
}

fn catalog(import: &Import) -> Catalog {
    let mut catalog = Catalog::default();
    for object in &import.objects {
        catalog.add(object).expect("a readable object");
    }
    catalog
}

fn warnings(import: &Import) -> Vec<String> {
    import.findings.of(Severity::Warning).map(ToString::to_string).collect()
}

fn virtual_names(import: &Import) -> Vec<String> {
    let notes = import.findings.of(Severity::Note).map(ToString::to_string);
    notes.filter(|note| note.contains("a virtual name")).collect()
}

fn roles(import: &Import) -> BTreeMap<String, usize> {
    import
        .barclamps
        .iter()
        .map(|entry| (entry.barclamp.name.to_string(), entry.roles.len()))
        .collect()
}

fn total(import: &Import) -> usize {
    roles(import).values().sum()
}

const NONE: fn() -> Catalog = Catalog::default;

#[test]
fn anvil_imports_children_without_barclamp_section() {
    let Some(corpus) = corpus() else { return };
    let import = set(&corpus.join("anvil-2014"), &["", "barclamps"], &NONE());
    assert_eq!(
        serde_json::json!(roles(&import)),
        serde_json::json!({
            "chef": 3, "crowbar": 4, "deployer": 3, "dns": 3, "logging": 2, "network": 1, "ntp": 2,
            "provisioner": 7, "puppet": 3, "test": 8,
        })
    );
    for entry in &import.barclamps {
        assert_eq!(entry.barclamp.version, "2.0", "{}", entry.barclamp.name);
        assert!(!entry.barclamp.description.is_empty());
    }
    // The admin network creates this role at run time.
    assert_eq!(
        warnings(&import),
        [
            r#"barclamps/dns.yml:20:9: warning: Role "dns-server" requires "network-admin", which no barclamp has. 7 other roles require it too. Remove it, or import the barclamp that has it"#
        ]
    );
    let notes: Vec<String> = import.findings.of(Severity::Note).map(ToString::to_string).collect();
    let missing = notes
        .iter()
        .filter(|note| note.contains("requires \"network-admin\", which no barclamp has"));
    assert_eq!(missing.count(), 7, "the other roles that require it must be reported as notes");
    // A typo that their own importer ignored.
    let slip = r#"barclamps/chef.yml:47:5: note: Unknown key of role "chef-client": "wants-atribs". Did you mean "wants-attribs"?"#;
    assert!(notes.iter().any(|note| note == slip), "{notes:#?}");
    let implied = notes
        .iter()
        .find(|note| note.contains("\"provisioner-repos\" requires \"provisioner-server\""));
    assert!(
        implied.is_some_and(|note| note.contains("already adds. You can remove it, unless")),
        "{notes:#?}"
    );
}

#[test]
fn opencrowbar_imports_64_roles_and_known_flaws() {
    let Some(corpus) = corpus() else { return };
    let import = set(&corpus.join("opencrowbar-2015"), &["", "barclamps"], &NONE());
    assert_eq!(
        serde_json::json!(roles(&import)),
        serde_json::json!({
            "chef": 3, "consul": 1, "core": 0, "crowbar": 12, "deployer": 3, "dhcp": 3, "dns": 5, "docker": 2,
            "logging": 2, "network": 2, "ntp": 3, "provisioner": 7, "proxy": 3, "puppet": 3, "rabbitmq": 2,
            "saltstack": 3, "sysdig": 1, "test": 9,
        })
    );
    assert_eq!(total(&import), 64);
    // The README lists one role that provides and conflicts with the same name, Digital Rebar's
    // rebar-joined-node. This is the role's earlier name, with the same flaw.
    assert_eq!(
        warnings(&import),
        [
            r#"barclamps/consul.yml:26:11: warning: The flags cluster and implicit of role "consul" exclude each other. Keep only one of the two flags"#,
            r#"barclamps/crowbar.yml:167:9: warning: The provides and conflicts of role "crowbar-joined-node" both name "crowbar-managed-node". Remove it from conflicts: roles that provide the same name never share a node"#,
            r#"barclamps/puppet.yml:41:9: warning: Role "puppet-sa" requires "milestone", which no barclamp has. This is a flag. Move it to flags"#,
            r#"barclamps/test.yml:123:15: warning: The attribs of role "test-discovery" have "test-discovery-delay" twice. The first declaration is at line 115. Remove one of them. The last one counts"#,
        ]
    );
    let catalog = catalog(&import);
    let role = |name: &str| {
        let (_, role) = catalog.roles().find(|(_, role)| role.name.as_str() == name).expect(name);
        role.clone()
    };
    // The root declares the jig, so every role that uses it also requires its client role.
    assert!(role("dns-client").requires.iter().any(|name| name.as_str() == "chef-client"));
    assert_eq!(role("test-admin").jig_class.as_str(), "test");
    assert_eq!(role("network-server").jig_class.as_str(), "noop");
    assert_eq!(role("saltstack-minion").jig_class.as_str(), "script");
    assert_eq!(role("consul").barclamp.as_str(), "consul");
}

#[test]
fn digital_rebar_and_dependent_sets_import() {
    let Some(corpus) = corpus() else { return };
    let core = set(&corpus.join("digitalrebar-2018"), &["", "barclamps", "template"], &NONE());
    assert_eq!(total(&core), 74 + 3);
    // In addition to rebar-joined-node, dell-firmware-flash provides and conflicts with the same
    // name. The README does not list it.
    assert_eq!(
        warnings(&core),
        [
            r#"barclamps/flash.yml:441:9: warning: The provides and conflicts of role "dell-firmware-flash" both name "firmware-flash". Remove it from conflicts: roles that provide the same name never share a node"#,
            r#"barclamps/provisioner.yml:173:9: warning: Role "provisioner-docker-setup" requires "rebar-api_service", which no barclamp has. Remove it, or import the barclamp that has it"#,
            r#"barclamps/provisioner.yml:179:9: warning: Role "provisioner-docker-setup" wants the attribute "provisioner-package-repos", which no barclamp has. Did you mean "provisioner-provided-repos"?"#,
            r#"barclamps/provisioner.yml:185:9: warning: Role "provisioner-docker-setup" wants the attribute "rebar-api-servers", which no barclamp has. Remove it, or import the barclamp that has it"#,
            r#"barclamps/puppet.yml:41:9: warning: Role "puppet-sa" requires "milestone", which no barclamp has. This is a flag. Move it to flags"#,
            r#"barclamps/rebar.yml:155:9: warning: The provides and conflicts of role "rebar-joined-node" both name "rebar-managed-node". Remove it from conflicts: roles that provide the same name never share a node"#,
            r#"barclamps/test.yml:176:15: warning: The attribs of role "test-discovery" have "test-discovery-delay" twice. The first declaration is at line 162. Remove one of them. The last one counts"#,
        ]
    );
    assert_eq!(
        virtual_names(&core),
        [
            r#"barclamps/consul.yml:147:9: note: Role "consul-master" provides "consul", which is not the name of a role. This is a virtual name, which other roles can require"#,
            r#"barclamps/consul.yml:217:9: note: Role "consul-member" provides "consul", which is not the name of a role. This is a virtual name, which other roles can require"#,
        ]
    );

    let workloads =
        set(&corpus.join("workloads-2017"), &["docker", "kompos8", "dashboard"], &catalog(&core));
    let alone = set(&corpus.join("workloads-2017"), &["docker", "kompos8", "dashboard"], &NONE());
    assert_eq!(
        warnings(&alone),
        warnings(&workloads),
        "a missing base must cause notes, not warnings"
    );
    let hashes =
        |import: &Import| import.barclamps.iter().map(|entry| entry.hash).collect::<Vec<_>>();
    assert_eq!(
        hashes(&alone),
        hashes(&workloads),
        "the same files must have the same content hash"
    );
    assert_eq!(
        serde_json::json!(roles(&workloads)),
        serde_json::json!({"docker": 2, "k8s_dashboard": 1, "kompos8": 9})
    );
    assert_eq!(
        warnings(&workloads),
        [
            r#"kompos8/rebar.yml:439:15: warning: The map of attribute "k8s-master-network" is missing. Write map: k8s/master/network, which is used now"#,
            r#"kompos8/rebar.yml:445:15: warning: The map of attribute "k8s-worker-network" is missing. Write map: k8s/worker/network, which is used now"#,
            r#"kompos8/rebar.yml:458:15: warning: The map of attribute "k8s-scope" is missing. Write map: k8s/scope, which is used now"#,
            r#"kompos8/rebar.yml:735:11: warning: The flags cluster and implicit of role "etcd-sync" exclude each other. Keep only one of the two flags"#
        ]
    );
}

#[test]
fn hadoop_root_only_lists_children() {
    let Some(corpus) = corpus() else { return };
    let import = set(&corpus.join("hadoop-2015"), &["", "barclamps"], &NONE());
    assert_eq!(serde_json::json!(roles(&import)), serde_json::json!({"hadoop": 1}));
    assert_eq!(import.barclamps[0].barclamp.version, "2.0");
    assert!(import.findings.0.is_empty(), "{}", import.findings);
}

/// Other files among barclamps are noted and ignored.
#[test]
fn folder_import_ignores_other_files() {
    let Some(corpus) = corpus() else { return };
    let folders = [
        "",
        "barclamps",
        "template",
        "ansible/test-ansible",
        "ansible-playbooks/test-ansible-playbook",
    ];
    let import = set(&corpus.join("digitalrebar-2018"), &folders, &NONE());
    assert_eq!(total(&import), 74 + 3);
    let passed_over =
        import.findings.of(Severity::Note).filter(|note| note.file.ends_with("role.yml"));
    assert_eq!(passed_over.count(), 2);
}

/// Parameter files of Ansible jigs look similar but are no barclamps.
#[test]
fn other_file_is_reported_as_no_barclamp() {
    let Some(corpus) = corpus() else { return };
    let path = corpus.join("digitalrebar-2018/ansible/test-ansible/role.yml");
    let bytes = fs::read(path).expect("a readable file");
    let files = BTreeMap::new();
    let source = Source { path: "role.yml", bytes: &bytes, folder: "", files: &files };
    let findings = import(&[source], &NONE()).expect_err("a file without a barclamp");
    assert!(findings.to_string().contains("This is not a barclamp file"), "{findings}");
}
