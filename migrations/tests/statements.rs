//! Prepares every SQL statement of the product against the schema, as a role that may execute it.
//!
//! The statements are the string literals and `.sql` files in the sources that begin with a verb of
//! SQL. A `{NAME}` in a format string is replaced by the constant of that name, and other
//! placeholders by a sample ([`SAMPLES`]). `EXPLAIN EXECUTE` also checks the privileges.
//!
//! Two kinds of SQL are not covered: the statements that SeaORM builds (a test of the store
//! compares the entities with the schema), and `DO` blocks, which have no plan.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, ItemConst, ItemFn, ItemMod, Lit, Macro, Token};
use testdb::TestDatabase;

/// The folders with statements.
const FOLDERS: [&str; 7] = [
    "crates/background/src",
    "crates/cli/src",
    "crates/control/src",
    "crates/store/src",
    "migrations/src",
    "server/src",
    "worker/src",
];

/// Parts of statements that are known only at run time, with a value to prepare.
const SAMPLES: &[(&str, &str)] = &[
    (
        "author",
        "EXISTS (SELECT FROM review_author a WHERE a.person_id = $3 AND a.review_id = s.id) AND",
    ),
    ("assignments", "rank = d.rank"),
    ("comparison", "<"),
    ("after_cursor", "(d.name, p.id) < ($6, $1)"),
    ("compared", "(s.title, s.id) < ($7, $1)"),
    ("condition", "t.hash = sha256($1)"),
    ("deployment", "p.deployment_id = $4 AND"),
    ("direction", "DESC"),
    ("found", "SELECT id, node_id FROM noderole"),
    ("limit", "100"),
    ("names", "id, node_id"),
    ("order", "DESC"),
    ("order_by", "s.id DESC"),
    ("outcome_filter", "s.state = 'open'"),
    ("returned", "result = CASE WHEN nd.removed_in IS NULL THEN $7::jsonb END, result_bytes = $8,"),
    ("relations", ""),
    (
        "rows",
        "unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::bigint[], $6::bool[], $7::int[]) \
         AS d (id, node_id, deployment_id, concurrency_group, number, again, rank)",
    ),
    ("steps", "step.state = 'error'"),
    ("sign", "<"),
    ("state_filter", "p.state = 'open' AND"),
    ("step_values", "s.id"),
    ("updates", "data = excluded.data"),
    ("values", "d.id, d.node_id"),
];

/// A string literal or the content of an included file.
#[derive(Debug, Clone)]
struct Text {
    file: PathBuf,
    value: String,
    is_format: bool,
    /// The constant that has the value.
    constant: Option<String>,
}

struct Collector<'a> {
    file: &'a Path,
    constant: Option<String>,
    is_format: bool,
    texts: Vec<Text>,
}

impl Collector<'_> {
    fn add(&mut self, value: String) {
        self.texts.push(Text {
            file: self.file.to_owned(),
            value,
            is_format: self.is_format,
            constant: self.constant.clone(),
        });
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Ident>().is_ok_and(|name| name == "test")
    })
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_item_const(&mut self, constant: &'ast ItemConst) {
        let outer = self.constant.replace(constant.ident.to_string());
        visit::visit_item_const(self, constant);
        self.constant = outer;
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_expr_lit(&mut self, literal: &'ast ExprLit) {
        if let Lit::Str(text) = &literal.lit {
            self.add(text.value());
        }
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let Ok(arguments) = call.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated)
        else {
            return;
        };
        if call.path.is_ident("include_str")
            && let Some(Expr::Lit(ExprLit { lit: Lit::Str(name), .. })) = arguments.first()
        {
            let path = workspace().join(self.file).parent().unwrap().join(name.value());
            if path.extension().is_some_and(|extension| extension == "sql") {
                // Its placeholders are replaced at run time, like those of a format string.
                let outer = std::mem::replace(&mut self.is_format, true);
                self.add(std::fs::read_to_string(path).unwrap());
                self.is_format = outer;
            }
            return;
        }
        let outer = std::mem::replace(&mut self.is_format, call.path.is_ident("format"));
        for argument in &arguments {
            self.visit_expr(argument);
        }
        self.is_format = outer;
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All texts in the sources of a folder, without tests.
fn texts(folder: &Path, texts: &mut Vec<Text>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(workspace().join(folder)).unwrap().map(|entry| entry.unwrap()).collect();
    entries.sort_by_key(std::fs::DirEntry::path);
    for entry in entries {
        let name = entry.file_name().into_string().unwrap();
        let file = folder.join(&name);
        if entry.file_type().unwrap().is_dir() && name != "tests" {
            self::texts(&file, texts);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let source = syn::parse_file(&std::fs::read_to_string(entry.path()).unwrap()).unwrap();
            let mut collector =
                Collector { file: &file, constant: None, is_format: false, texts: Vec::new() };
            collector.visit_file(&source);
            texts.append(&mut collector.texts);
        }
    }
}

fn is_statement(text: &str) -> bool {
    let code = text.lines().find(|line| !line.trim().is_empty() && !line.trim().starts_with("--"));
    let verb = code.and_then(|line| line.split_whitespace().next()).unwrap_or_default();
    text.trim() != verb && ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"].contains(&verb)
}

/// The names in braces.
fn placeholders(text: &str) -> BTreeSet<String> {
    let names = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    names
        .map(|(name, _)| name)
        .filter(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_') && !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Replaces the placeholders of a format string. Constants of the same file take precedence.
fn expanded(text: &Text, constants: &BTreeMap<String, Vec<Text>>) -> Result<String, String> {
    let mut sql = text.value.clone();
    for name in placeholders(&text.value) {
        let known = constants.get(&name).map(Vec::as_slice).unwrap_or_default();
        let constant = known.iter().find(|one| one.file == text.file).or(known.first());
        let sample = SAMPLES.iter().find(|(placeholder, _)| *placeholder == name);
        let value = match (constant, sample) {
            (Some(constant), _) if constant.is_format => expanded(constant, constants)?,
            (Some(constant), _) => constant.value.clone(),
            (None, Some((_, sample))) => (*sample).to_owned(),
            (None, None) => return Err(format!("the placeholder {name} has no sample")),
        };
        sql = sql.replace(&format!("{{{name}}}"), &value);
    }
    Ok(sql.replace("{{", "{").replace("}}", "}"))
}

/// The statements of the product with their files, and problems.
fn statements() -> (Vec<(PathBuf, String)>, Vec<String>) {
    let mut all = Vec::new();
    for folder in FOLDERS {
        texts(Path::new(folder), &mut all);
    }
    let mut constants: BTreeMap<String, Vec<Text>> = BTreeMap::new();
    for text in &all {
        if let Some(name) = &text.constant {
            constants.entry(name.clone()).or_default().push(text.clone());
        }
    }
    let formats = all.iter().filter(|text| text.is_format).map(|text| text.value.as_str());
    let parts: BTreeSet<String> = formats.flat_map(placeholders).collect();
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for text in &all {
        let is_part = text.constant.as_ref().is_some_and(|name| parts.contains(name));
        if !is_statement(&text.value) || is_part {
            continue;
        }
        let sql = if text.is_format { expanded(text, &constants) } else { Ok(text.value.clone()) };
        match sql {
            Ok(sql) => found.push((text.file.clone(), sql)),
            Err(problem) => problems.push(format!("{}: {problem}", text.file.display())),
        }
    }
    (found, problems)
}

/// The roles that may execute the statements of a file. One of them must be allowed to.
fn roles(file: &Path) -> &'static [&'static str] {
    match file.components().map(|part| part.as_os_str().to_str().unwrap()).collect::<Vec<_>>()[..] {
        ["worker", ..] => &["worker"],
        ["server", ..] | ["crates", "control", ..] => &["server"],
        // `gantry up` and `gantry admin` create accounts and sessions as the owner.
        ["crates", "store", "src", "people", ..] => &["server", "owner"],
        ["crates", "store", ..] => &["server", "worker"],
        _ => &["server", "worker", "owner"],
    }
}

/// Why a role cannot execute the statement.
async fn problem(connection: &mut PgConnection, sql: &str) -> Option<sqlx::Error> {
    let prepare = AssertSqlSafe(format!("PREPARE statement AS {sql}"));
    if let Err(error) = connection.execute(sqlx::raw_sql(prepare)).await {
        return Some(error);
    }
    let count: i32 = sqlx::query_scalar(
        "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'statement'",
    )
    .fetch_one(&mut *connection)
    .await
    .unwrap();
    let nulls = vec!["NULL"; count.unsigned_abs() as usize].join(", ");
    let arguments = if count > 0 { format!("({nulls})") } else { String::new() };
    let explain = AssertSqlSafe(format!("EXPLAIN EXECUTE statement{arguments}"));
    let explained = connection.execute(sqlx::raw_sql(explain)).await;
    connection.execute("DEALLOCATE statement").await.unwrap();
    explained.err()
}

#[tokio::test]
async fn every_statement_can_be_prepared() {
    let (statements, mut problems) = statements();
    assert!(statements.len() > 200, "only {} statements found", statements.len());
    let db = TestDatabase::new().await;
    let mut connections = BTreeMap::new();
    for (role, url) in
        [("server", db.server_url()), ("worker", db.worker_url()), ("owner", db.owner_url())]
    {
        connections.insert(role, PgConnection::connect(url).await.unwrap());
    }
    for (file, sql) in statements {
        let mut refused = Vec::new();
        let roles = roles(&file);
        for role in roles {
            let found = problem(connections.get_mut(role).unwrap(), &sql).await;
            refused.extend(found.map(|error| format!("{role}: {error}")));
        }
        if refused.len() == roles.len() {
            let sql: String = sql.split_whitespace().collect::<Vec<_>>().join(" ");
            problems.push(format!("{}: {}\n  {sql:.200}", file.display(), refused.join("; ")));
        }
    }
    assert!(problems.is_empty(), "{} statements fail\n{}", problems.len(), problems.join("\n"));
}

#[tokio::test]
async fn renamed_column_is_reported() {
    let db = TestDatabase::new().await;
    let mut server = PgConnection::connect(db.server_url()).await.unwrap();
    assert!(problem(&mut server, "SELECT fqdn FROM node WHERE id = $1").await.is_none());
    for wrong in ["SELECT name FROM node", "SELECT (", "UPDATE node SET phantom = true"] {
        assert!(problem(&mut server, wrong).await.is_some(), "{wrong}");
    }
}
