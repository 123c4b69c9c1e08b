//! All commands: their common options, their mention in the book, and their coverage of the REST
//! API.

use std::collections::{BTreeMap, BTreeSet};

use clap::Subcommand as _;
use serde_json::Value;

/// Commands without a server. The book describes them in sections of their own.
const LOCAL_COMMANDS: [&str; 4] = ["context", "completions", "man", "exit-codes"];

/// REST operations by the commands that use them.
const COMMANDS: [(&str, &[&str]); 111] = [
    ("addNode", &["node add"]),
    ("addNodes", &["node add"]),
    ("addPerson", &["person add", "service add"]),
    ("cancelRun", &["run cancel"]),
    ("changeGrants", &["person grant"]),
    ("changeNode", &["node edit"]),
    ("checkAudit", &["audit chain"]),
    ("commitReview", &["review commit"]),
    ("compareBlueprints", &["blueprint compare"]),
    ("confirmPerson", &["person confirm"]),
    ("createLink", &["person link"]),
    ("createNodeToken", &["node token create"]),
    ("createToken", &["token create"]),
    ("disablePerson", &["person disable"]),
    ("discardProposal", &["proposal discard"]),
    ("drainWorker", &["worker drain"]),
    ("dismissNotices", &["session dismiss-notices"]),
    (
        "editProposal",
        &[
            "proposal edit",
            "bind",
            "unbind",
            "apply",
            "deployment create",
            "deployment move",
            "deployment remove",
            "deployment add-role",
            "deployment remove-role",
            "deployment use-version",
            "node move",
            "node expunge",
            "rerun",
            "jig on",
            "jig off",
        ],
    ),
    ("enablePerson", &["person enable"]),
    ("endOtherSessions", &["session end-others"]),
    ("endSession", &["session end"]),
    ("exportAudit", &["audit export"]),
    ("getBlueprint", &["blueprint show", "wait blueprint", "converge"]),
    ("getBlueprintProgress", &["blueprint progress"]),
    ("getBoard", &["deployment show"]),
    ("getChangesSinceView", &["review since"]),
    ("getDeploymentGraph", &["deployment graph"]),
    ("getDeploymentProgress", &["wait deployment", "converge"]),
    ("getDiscussion", &["review discussion"]),
    ("getProposedNoderole", &["proposal noderole"]),
    ("getGraph", &["graph"]),
    ("getImpact", &["review impact"]),
    ("getMe", &["me"]),
    ("getNode", &["node show", "node token list"]),
    ("getNoderole", &["noderole show"]),
    ("getNoderoleData", &["noderole data"]),
    ("getOverview", &["overview"]),
    ("getPerson", &["person show"]),
    ("getPolicy", &["policy"]),
    ("getProposal", &["proposal show"]),
    ("getProposalReport", &["proposal report"]),
    ("getReview", &["review show", "wait review"]),
    ("getReviewDifference", &["review diff"]),
    ("getReviewGraph", &["review graph"]),
    ("getReviewReport", &["review report"]),
    ("getReviewedNoderole", &["review noderole"]),
    ("getRole", &["role show"]),
    ("getRoleGraph", &["role graph"]),
    ("getRun", &["run show", "wait run"]),
    ("getRunData", &["run data"]),
    ("getDeclaration", &["export"]),
    ("getRunLog", &["logs"]),
    ("getScript", &["role script"]),
    ("getWorker", &["workers"]),
    ("giveVerdict", &["review approve", "review request-changes", "review reject"]),
    ("holdDeployment", &["deployment hold"]),
    ("importBarclamps", &["barclamp import"]),
    ("listAudit", &["audit list"]),
    ("listBackgroundTasks", &["background-task list"]),
    ("listBarclamps", &["barclamp list"]),
    ("listBlueprints", &["blueprint list"]),
    ("listDeployments", &["deployment list"]),
    ("listHealthChecks", &["node health-checks"]),
    ("listImports", &["barclamp imports"]),
    ("listJigs", &["jig list"]),
    ("listNodeNoderoles", &["node noderoles"]),
    ("listNodes", &["node list"]),
    ("listPending", &["pending"]),
    ("listPeople", &["person list", "service list"]),
    ("listProposals", &["proposal list"]),
    ("listResults", &["node results"]),
    ("listReviews", &["review list"]),
    ("listRoleNoderoles", &["deployment noderoles"]),
    ("listRoles", &["role list"]),
    ("listRuns", &["run list"]),
    ("listSessions", &["session list"]),
    ("listSteps", &["noderole list", "rerun", "retry"]),
    ("listTokens", &["token list"]),
    ("listViewedChanges", &["review viewed"]),
    ("listWorkers", &["workers"]),
    ("markChangesViewed", &["review viewed"]),
    ("openNodeProposal", &["node propose"]),
    ("openProposal", &["deployment propose"]),
    ("openThread", &["review comment"]),
    ("previewEdits", &["proposal preview"]),
    ("setDeploymentPriority", &["deployment priority"]),
    ("redoEdit", &["proposal redo"]),
    ("removeNode", &["node remove"]),
    ("removeTotp", &["session remove-totp"]),
    ("reopenThread", &["review reopen"]),
    ("replyToThread", &["review reply"]),
    ("resetSecondFactor", &["person reset-second-factor"]),
    ("resolveThread", &["review resolve"]),
    ("restoreDeployment", &["deployment restore"]),
    ("resumeWorker", &["worker resume"]),
    ("retryBlueprint", &["blueprint retry"]),
    ("retryNoderole", &["noderole retry", "retry"]),
    ("revokeNodeToken", &["node token revoke"]),
    ("revokePasskey", &["passkey revoke"]),
    ("revokeToken", &["token revoke"]),
    ("search", &["search"]),
    ("searchRunLog", &["logs"]),
    ("startMaintenance", &["node start-maintenance"]),
    ("endMaintenance", &["node end-maintenance"]),
    ("releaseDeployment", &["deployment release"]),
    ("setPassword", &["session password"]),
    ("submitProposal", &["proposal submit"]),
    ("turnExecutionOff", &["execution"]),
    ("turnExecutionOn", &["execution"]),
    ("undoEdit", &["proposal undo"]),
    ("viewReview", &["review view"]),
];

/// REST operations without a command, with the reason.
const NO_COMMAND: [(&str, &str); 19] = [
    ("getDocument", "meant for API clients: gantry api GET /openapi.json prints it"),
    ("watch", "used by --watch, wait, converge and logs --follow"),
    ("createDeployment", "part of apply"),
    ("getDeployment", "shown by deployment list"),
    ("removeDeployment", "an edit of a proposal: proposal edit"),
    ("confirmTotp", "only a browser can set up an authenticator app"),
    ("startTotp", "only a browser can set up an authenticator app"),
    ("getSecondFactor", "shown by me"),
    ("presentSecondFactor", "part of context add and context sign-in: --code"),
    ("getSecondFactorOptions", "only a browser can use a passkey"),
    ("getPasskeyOptions", "only a browser can create a passkey"),
    ("registerPasskey", "only a browser can create a passkey"),
    ("getConfirmationOptions", "only a browser can sign with a passkey"),
    ("confirmPasskey", "only a browser can sign with a passkey"),
    ("getVerdictOptions", "only a browser can sign with a passkey"),
    ("reportBootenv", "a report of a node about itself, with its own token"),
    ("reportFacts", "a report of a node about itself, with its own token"),
    ("reportShutdown", "a report of a node about itself, with its own token"),
    ("reportStartup", "a report of a node about itself, with its own token"),
];

/// Commands that use only operations of other commands.
const MADE_OF_OTHERS: [(&str, &str); 2] = [
    ("diff", "compares boards, catalog and nodes with files"),
    ("api", "sends any request by method and path"),
];

fn program() -> clap::Command {
    let audit = client::Audit::augment_subcommands(clap::Command::new("audit"));
    let worker = client::WorkerCommand::augment_subcommands(clap::Command::new("worker"));
    client::Command::augment_subcommands(clap::Command::new("gantry"))
        .subcommand(audit)
        .subcommand(worker)
}

/// All commands below this one that have no subcommands or arguments of their own, by full name.
fn leaves(command: &clap::Command) -> Vec<(String, &clap::Command)> {
    let name = command.get_name();
    let is_own = !command.has_subcommands() || command.get_positionals().next().is_some();
    let own = is_own.then(|| (name.to_owned(), command));
    let below = command.get_subcommands().flat_map(leaves);
    own.into_iter().chain(below.map(|(path, leaf)| (format!("{name} {path}"), leaf))).collect()
}

/// Commands that need a server.
fn request_commands(program: &clap::Command) -> Vec<(String, &clap::Command)> {
    program
        .get_subcommands()
        .filter(|command| !LOCAL_COMMANDS.contains(&command.get_name()))
        .flat_map(leaves)
        .collect()
}

#[test]
fn every_list_and_show_command_has_watch() {
    let program = program();
    let shows = |path: &str| {
        matches!(path.split(' ').next_back(), Some("list" | "show" | "graph" | "overview"))
    };
    let is_watched = |command: &clap::Command| {
        command.get_arguments().any(|arg| arg.get_long() == Some("watch"))
    };
    let found = request_commands(&program)
        .into_iter()
        .filter(|(path, command)| shows(path) && !is_watched(command));
    assert_eq!(found.map(|(path, _)| path).collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn book_lists_every_command() {
    let program = program();
    let cli = unlisted(&program, include_str!("../../../docs/cli.md"));
    assert_eq!(cli, Vec::<String>::new(), "these commands are missing in docs/cli.md");
    let quick = unlisted(&program, include_str!("../../../docs/quick-reference.md"));
    assert_eq!(
        quick,
        Vec::<String>::new(),
        "these commands are missing in docs/quick-reference.md"
    );
}

/// Commands that need a server and are in no row of the chapter's tables.
fn unlisted(program: &clap::Command, chapter: &'static str) -> Vec<String> {
    let words = |row: &'static str| -> BTreeSet<&'static str> {
        row.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect()
    };
    let rows: Vec<BTreeSet<&str>> =
        chapter.lines().filter(|line| line.starts_with("| `")).map(words).collect();
    let is_named =
        |path: &str| rows.iter().any(|row| path.split(' ').all(|word| row.contains(word)));
    let found = request_commands(program).into_iter().filter(|(path, _)| !is_named(path));
    found.map(|(path, _)| path).collect()
}

fn document() -> Value {
    serde_json::from_str(include_str!("../../../docs/openapi.json")).expect("JSON")
}

/// Operation ids by method and path.
fn operations(document: &Value) -> BTreeMap<String, &str> {
    let mut found = BTreeMap::new();
    for (place, operations) in document["paths"].as_object().expect("paths") {
        for method in ["get", "post", "put", "patch", "delete"] {
            if let Some(operation) = operations.get(method) {
                let name = operation["operationId"].as_str().expect("a name");
                found.insert(format!("{} {place}", method.to_uppercase()), name);
            }
        }
    }
    found
}

#[test]
fn every_operation_has_a_command_or_reason() {
    let document = document();
    let documented: BTreeSet<&str> = operations(&document).into_values().collect();
    let with = COMMANDS.iter().map(|(name, _)| *name);
    let listed: Vec<&str> = with.chain(NO_COMMAND.iter().map(|(name, _)| *name)).collect();
    let once: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(listed.len(), once.len(), "an operation is listed twice");
    let missing: Vec<_> = documented.difference(&once).collect();
    assert!(
        missing.is_empty(),
        "these operations have neither a command nor a reason for its absence: {missing:?}"
    );
    let unknown: Vec<_> = once.difference(&documented).collect();
    assert!(unknown.is_empty(), "the API does not have these operations: {unknown:?}");
}

#[test]
fn every_command_uses_an_operation() {
    let program = program();
    let existing: BTreeSet<String> =
        request_commands(&program).into_iter().map(|(path, _)| path).collect();
    let of_operations = COMMANDS.iter().flat_map(|(_, commands)| commands.iter().copied());
    let others = MADE_OF_OTHERS.iter().map(|(command, _)| *command);
    let listed: BTreeSet<String> = of_operations.chain(others).map(str::to_owned).collect();
    let missing: Vec<_> = existing.difference(&listed).collect();
    assert!(missing.is_empty(), "these commands are listed without operations: {missing:?}");
    let unknown: Vec<_> = listed.difference(&existing).collect();
    assert!(unknown.is_empty(), "these commands do not exist: {unknown:?}");
}

/// Full name of the parsed command.
fn command_of(matches: &clap::ArgMatches) -> String {
    let (mut path, mut matches) = (Vec::new(), matches);
    while let Some((name, below)) = matches.subcommand() {
        path.push(name);
        matches = below;
    }
    path.join(" ")
}

#[test]
fn shown_command_matches_its_operation() {
    let (document, program) = (document(), program());
    let operations = operations(&document);
    for call in api::calls::samples().expect("the samples") {
        let words = std::iter::once("gantry".to_owned()).chain(call.arguments());
        let matches = program.clone().try_get_matches_from(words);
        let command =
            command_of(&matches.unwrap_or_else(|error| panic!("{}: {error}", call.cli())));
        if command == "api" {
            continue;
        }
        let request = format!("{} {}", call.method().as_str(), call.path());
        let fits = |place: &str| {
            let (ours, theirs): (Vec<&str>, Vec<&str>) =
                (request.split('/').collect(), place.split('/').collect());
            ours.len() == theirs.len()
                && ours
                    .iter()
                    .zip(theirs)
                    .all(|(our, their)| their.starts_with('{') || *our == their)
        };
        // Paths with fewer parameters take precedence.
        let found = operations.iter().filter(|(place, _)| fits(place));
        let found =
            found.min_by_key(|(place, _)| place.matches('{').count()).map(|(_, name)| *name);
        let name = found.unwrap_or_else(|| panic!("{request} is not an operation"));
        let commands =
            COMMANDS.iter().find(|(known, _)| *known == name).map(|(_, commands)| *commands);
        assert!(
            commands.unwrap_or_default().contains(&command.as_str()),
            "{command} does not use the operation {name}"
        );
    }
}

/// Command lines of a chapter: in blocks of code, and in the table of commands.
fn command_lines(chapter: &str) -> Vec<String> {
    let mut in_shell = false;
    let mut found = Vec::new();
    for line in chapter.replace("\\\n", " ").lines() {
        if let Some(language) = line.trim().strip_prefix("```") {
            in_shell = language == "sh";
        } else if line.starts_with("| ") && line.contains(" | `gantry ") {
            let commands = line.split('`').filter(|part| part.starts_with("gantry "));
            found.extend(commands.map(str::to_owned));
        } else if in_shell && line.trim().starts_with("gantry ") {
            found.push(line.trim().to_owned());
        }
    }
    found
}

/// The words of the first command of a line, with values instead of `ID`, `RUN` and `TOKEN`.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for character in line.chars() {
        match character {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            other => words.last_mut().expect("a word").push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    let ends_command = |word: &String| ["#", "|", "||", "&&", ">", "<"].contains(&word.as_str());
    words
        .into_iter()
        .take_while(|word| !ends_command(word))
        .map(|word| match word.as_str() {
            "ID" | "RUN" => "7".to_owned(),
            "TOKEN" => "6f1c2d3e-0a1b-4c5d-8e9f-001122334455".to_owned(),
            _ => word,
        })
        .collect()
}

#[test]
fn commands_in_the_book_are_valid() {
    let program = client::with_options(program());
    let is_known = |words: &[String]| {
        program.get_subcommands().any(|command| command.get_name() == words[1])
            // The other commands of `audit` need no server, so they are not in this crate.
            && (words[1] != "audit" || words[2] == "list")
    };
    let chapters = [
        include_str!("../../../README.md"),
        include_str!("../../../docs/barclamps.md"),
        include_str!("../../../docs/cli.md"),
        include_str!("../../../docs/nodes.md"),
        include_str!("../../../docs/quick-reference.md"),
        include_str!("../../../docs/running.md"),
        include_str!("../../../docs/tour.md"),
    ];
    let mut checked = 0;
    let mut invalid = Vec::new();
    for line in chapters.into_iter().flat_map(command_lines) {
        let words = words(&line);
        if is_known(&words) {
            checked += 1;
            let parsed = program.clone().try_get_matches_from(&words);
            invalid.extend(parsed.err().map(|error| format!("{line}: {error}")));
        }
    }
    assert_eq!(invalid, Vec::<String>::new());
    assert!(checked > 30, "found only {checked} commands in the book");
}
