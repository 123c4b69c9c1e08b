//! The help of the program: its commands by topic.

use std::fmt::Write as _;

use clap::Command;

/// The commands by topic. A test checks that each command is in one group.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Deployments and nodes", &["overview", "search", "deployment", "node", "noderole", "graph"]),
    (
        "Changes",
        &[
            "bind",
            "unbind",
            "apply",
            "diff",
            "export",
            "proposal",
            "review",
            "blueprint",
            "policy",
            "jig",
        ],
    ),
    (
        "Runs and progress",
        &[
            "pending",
            "run",
            "logs",
            "retry",
            "rerun",
            "wait",
            "converge",
            "execution",
            "workers",
            "background-task",
        ],
    ),
    ("Catalog", &["barclamp", "role", "catalog"]),
    ("People and audit", &["me", "person", "service", "token", "passkey", "session", "audit"]),
    ("Servers", &["up", "server", "worker", "migrate", "admin", "verify", "testbed", "config"]),
    ("Command line", &["context", "api", "completions", "man", "exit-codes", "help"]),
];

/// Lists the commands by topic in the help of the program.
pub fn grouped(command: Command) -> Command {
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let about = |name: &str| match command.find_subcommand(name).and_then(Command::get_about) {
        Some(about) => about.to_string(),
        None => "Print this message or the help of a command".to_owned(),
    };
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (topic, names) in GROUPS {
        let _ = writeln!(text, "{header}{topic}:{header:#}");
        for name in names {
            let _ = writeln!(text, "  {literal}{name:width$}{literal:#}  {}", about(name));
        }
        text.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}{header}Options:{header:#}\n\
         {{options}}{{after-help}}"
    );
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let program = crate::command();
        let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
        let mut expected: Vec<&str> = commands.map(Command::get_name).chain(["help"]).collect();
        grouped.sort_unstable();
        expected.sort_unstable();
        assert_eq!(grouped, expected);
        let help = program.clone().render_help().to_string();
        for line in ["Changes:\n", "  review           Read, approve", "  -o, --output <FORMAT>"] {
            assert!(help.contains(line), "{line}: {help}");
        }
    }
}
