//! `gantry testbed`: any number of test nodes on this machine.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use api::nodes::{NodeRequest, SshRequest};
use control::Control;
use engine::counting::{either, many};
use engine::ids::Fqdn;
use testbed::{KEY, Node, PORT, Testbed};
use worker::node::boot::{LocalNode, boot, halt};

use crate::{database, home, signals};

/// Domain of the nodes' names.
const DOMAIN: &str = "testbed.gantry.internal";

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Number of nodes
    #[arg(default_value_t = 8)]
    nodes: usize,
    /// Data folder of `gantry up`; contains the nodes (testbed) and their key (secrets) [default:
    /// as of `gantry up`]
    #[arg(long, env = "GANTRY_DATA")]
    data: Option<PathBuf>,
    /// Database URL with the server's role [default: the private database of `gantry up` in that
    /// folder]
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Secrets folder of the workers that connect to the nodes [default: secrets in the data
    /// folder]
    #[arg(long, env = "GANTRY_SECRETS")]
    secrets: Option<PathBuf>,
}

pub async fn run(arguments: Arguments) -> Result<()> {
    let stopped = signals::stopped();
    let data = home::ensure_data_folder(arguments.data)?;
    let secrets = arguments.secrets.unwrap_or_else(|| home::secrets(&data));
    let socket = data.join("postgres/socket");
    let url = arguments.database_url.unwrap_or_else(|| {
        format!("postgres://gantry_server@localhost/gantry?host={}", socket.display())
    });
    let store = database::open(&url, database::Role::SERVER).await.context(
        "Cannot use the database (check that Gantry is running with this data folder: \
            gantry up)",
    )?;
    // The nodes have loopback addresses.
    let reach = database::reach(&store, true);
    let control = Control::new(store).with_address_policy(reach);
    home::ensure_private_folder(&secrets)?;
    let folder = data.join("testbed");
    let testbed =
        tokio::task::spawn_blocking(move || Testbed::start(&folder, &secrets, arguments.nodes))
            .await??;
    for node in testbed.nodes() {
        let result = control.ensure_node(node_request(node)).await;
        let changed =
            result.map_err(|problem| anyhow!("{}: {}", node.name, problem.detail)).context(
                "Cannot register the nodes (check that Gantry is running with this data \
                folder: gantry up)",
            )?;
        let update_note = if changed { "  (its record was different and is updated)" } else { "" };
        println!("{}  {}:{PORT}  {}{update_note}", fqdn(node), node.address, node.root.display());
    }
    // As if the machines were turned on: their services start with the testbed and stop with it.
    let machines = machines(&testbed)?;
    boot(&machines)
        .await
        .iter()
        .for_each(|failure| tracing::warn!(%failure, "a service did not start"));
    println!(
        "{} {} registered. Ctrl-C stops them, but their folders and records remain.",
        many(machines.len(), "node"),
        either(machines.len(), "is running and", "are running and")
    );
    stopped.await;
    drop(testbed);
    halt(&machines)
        .await
        .iter()
        .for_each(|failure| tracing::warn!(%failure, "a service did not stop"));
    Ok(())
}

fn machines(testbed: &Testbed) -> Result<Vec<LocalNode>> {
    let local_node =
        |node: &Node| Ok(LocalNode { fqdn: Fqdn::parse(&fqdn(node))?, root: node.root.clone() });
    testbed.nodes().iter().map(local_node).collect()
}

fn fqdn(node: &Node) -> String {
    format!("{}.{DOMAIN}", node.name)
}

fn node_request(node: &Node) -> NodeRequest {
    let ssh = SshRequest {
        addresses: vec![node.address.to_string()],
        port: PORT,
        user: node.user.clone(),
        key: KEY.into(),
        key_version: 1,
        host_key: node.host_key.clone(),
    };
    NodeRequest { ssh: Some(ssh), ..NodeRequest::named(fqdn(node), node.root.to_string_lossy()) }
}
