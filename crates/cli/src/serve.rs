//! `gantry server`: one server process.

use std::ffi::OsStr;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command};
use control::checkpoints::SigningKey;
use control::{Control, Demo};
use engine::gate::Policy;
use server::{Checkpoints, Destination, MetricsToken, PublicAddress, TrustedProxies};
use tokio::net::TcpListener;

use crate::{database, signals};

/// Says whether nodes may be on Gantry's own host.
pub const LOCAL_NODES: &str = "GANTRY_ALLOW_LOOPBACK_NODES";

/// Where it listens unless somebody says otherwise.
pub const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7780);

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The database as this program's role: gantry_server
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: String,
    /// Where to listen
    #[arg(long, env = "GANTRY_LISTEN", default_value_t = USUAL)]
    listen: SocketAddr,
    /// Under which address people come, when a proxy with HTTPS stands in front: https://gantry.example.com
    #[arg(long, env = "GANTRY_PUBLIC_ADDRESS")]
    public_address: Option<PublicAddress>,
    /// The folder with the page's scripts, styles and fonts [default: what this program carries, else target/site]
    #[arg(long, env = "GANTRY_SITE")]
    site: Option<PathBuf>,
    /// Whoever sends this as a bearer may collect /metrics; without it only this machine may
    #[arg(long, env = "GANTRY_METRICS_TOKEN", hide_env_values = true, value_parser = Unsaid)]
    metrics_token: Option<MetricsToken>,
    /// Proxies whose X-Forwarded-For is believed: addresses and networks, with commas between them
    #[arg(long, env = "GANTRY_TRUSTED_PROXIES", default_value = TrustedProxies::LOOPBACK)]
    trusted_proxies: TrustedProxies,
    /// Let nodes be on Gantry's own host, at loopback addresses for one. The same for servers and workers [default: not; `gantry up`: if it
    /// listens on loopback]
    #[arg(long, env = LOCAL_NODES)]
    allow_loopback_nodes: bool,
    #[command(flatten)]
    audit: AuditArguments,
}

/// Checkpoints of the audit.
#[derive(Debug, clap::Args)]
pub struct AuditArguments {
    /// File with the private key that signs checkpoints of the audit, as `gantry audit keygen` makes it
    #[arg(long, env = "GANTRY_AUDIT_KEY", value_name = "FILE")]
    audit_key: Option<PathBuf>,
    /// File that signed checkpoints of the audit are appended to, or URL that they are posted to
    #[arg(
        long,
        env = "GANTRY_AUDIT_CHECKPOINTS",
        value_name = "FILE or URL",
        hide_env_values = true
    )]
    audit_checkpoints: Option<Destination>,
    /// Seconds between checkpoints, if the audit grew
    #[arg(long, env = "GANTRY_AUDIT_CHECKPOINT_PERIOD", value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    audit_checkpoint_period: u32,
}

impl AuditArguments {
    /// What the server needs to write checkpoints; None: it writes none.
    fn read(self) -> Result<Option<Checkpoints>> {
        let (path, to) = match (self.audit_key, self.audit_checkpoints) {
            (None, None) => return Ok(None),
            (Some(path), Some(to)) => (path, to),
            _ => bail!(
                "set both the key and the destination of checkpoints: audit_key and audit_checkpoints"
            ),
        };
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("{} can't be read", path.display()))?;
        let key = SigningKey::read(&text)
            .with_context(|| format!("{} is no private key", path.display()))?;
        Ok(Some(Checkpoints {
            key: Arc::new(key),
            to,
            every: Duration::from_secs(self.audit_checkpoint_period.into()),
        }))
    }
}

/// Reads the token for metrics. What was given is a secret, so a refusal does not repeat it.
#[derive(Debug, Clone, Copy)]
pub struct Unsaid;

impl TypedValueParser for Unsaid {
    type Value = MetricsToken;

    fn parse_ref(
        &self,
        command: &Command,
        _: Option<&Arg>,
        value: &OsStr,
    ) -> Result<MetricsToken, clap::Error> {
        let token = value.to_str().unwrap_or_default().parse::<MetricsToken>();
        token.map_err(|error| {
            clap::Error::raw(ErrorKind::ValueValidation, format!("{error}\n")).with_cmd(command)
        })
    }
}

pub async fn run(arguments: Arguments) -> Result<()> {
    let checkpoints = arguments.audit.read()?;
    let store = database::open(&arguments.database_url, database::Role::SERVER).await?;
    let reach = database::reach(&store, arguments.allow_loopback_nodes);
    let control = Control::new(store).reaching(reach);
    let policy = Policy::default();
    control
        .ensure_genesis(&policy, &Demo::default())
        .await
        .context("the first target can't be made")?;
    let listener = TcpListener::bind(arguments.listen).await;
    let listener =
        listener.with_context(|| format!("{} can't be listened on", arguments.listen))?;
    let address = public_address(arguments.public_address, &listener)?;
    println!("{address}");
    let config = server::Config {
        address: Some(address),
        site: arguments.site,
        metrics_token: arguments.metrics_token,
        trusted_proxies: arguments.trusted_proxies,
        checkpoints,
    };
    serve(listener, config, control, signals::stopped()).await
}

/// Under which address people come: what was said, or this machine.
pub fn public_address(
    said: Option<PublicAddress>,
    listener: &TcpListener,
) -> Result<PublicAddress> {
    match said {
        Some(address) => Ok(address),
        None => PublicAddress::of_listener(listener.local_addr()?)
            .context("say under which address people come with --public-address"),
    }
}

/// Serves until told to stop.
pub async fn serve(
    listener: TcpListener,
    config: server::Config,
    control: Control,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    server::serve(listener, config, control, shutdown).await.context("the server ended")
}
