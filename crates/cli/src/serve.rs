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
use control::audit::checkpoints::SigningKey;
use control::{Control, Demo};
use engine::gate::Policy;
use server::{Checkpoints, Destination, MetricsToken, PublicAddress, TrustedProxies};
use tokio::net::TcpListener;

use crate::{database, signals};

/// Environment variable that allows nodes on Gantry's own hosts.
pub const LOCAL_NODES_VARIABLE: &str = "GANTRY_ALLOW_LOOPBACK_NODES";

/// Default listen address.
pub const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7780);

/// Parses an address to listen on. Host names are not accepted, because one can have several
/// addresses.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be an IP address and a port, such as 127.0.0.1:7780".to_owned())
}

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Database URL with this program's role: gantry_server
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Address and port to listen on
    #[arg(long, env = "GANTRY_LISTEN", default_value_t = DEFAULT, value_parser = listen_address)]
    listen: SocketAddr,
    /// Public URL, if an HTTPS proxy forwards requests: https://gantry.example.com
    #[arg(long, env = "GANTRY_PUBLIC_ADDRESS")]
    public_address: Option<PublicAddress>,
    /// Folder with the console's scripts, styles and fonts [default: the files in the binary, or
    /// target/site]
    #[arg(long, env = "GANTRY_SITE")]
    site: Option<PathBuf>,
    /// Bearer token for /metrics; without it only this machine has access
    #[arg(
        long,
        env = "GANTRY_METRICS_TOKEN",
        hide_env_values = true,
        value_parser = MetricsTokenParser
    )]
    metrics_token: Option<MetricsToken>,
    /// Trusted reverse proxies (X-Forwarded-For): addresses and networks, separated by commas
    #[arg(long, env = "GANTRY_TRUSTED_PROXIES", default_value = TrustedProxies::LOOPBACK)]
    trusted_proxies: TrustedProxies,
    /// Allow nodes on Gantry's own hosts, for example at loopback addresses. Use the same value for
    /// servers and workers [default: no; `gantry up`: yes if it listens on loopback]
    #[arg(long, env = LOCAL_NODES_VARIABLE)]
    allow_loopback_nodes: bool,
    #[command(flatten)]
    audit: AuditArguments,
}

/// Signed checkpoints of the audit log.
#[derive(Debug, clap::Args)]
pub struct AuditArguments {
    /// File with the private key that signs checkpoints, from `gantry audit keygen`
    #[arg(long, env = "GANTRY_AUDIT_KEY", value_name = "FILE")]
    audit_key: Option<PathBuf>,
    /// File that signed checkpoints are appended to, or URL that they are sent to with POST
    #[arg(
        long,
        env = "GANTRY_AUDIT_CHECKPOINTS",
        value_name = "FILE or URL",
        hide_env_values = true
    )]
    audit_checkpoints: Option<Destination>,
    /// Seconds between checkpoints; none is written if the audit log has no new entries
    #[arg(long, env = "GANTRY_AUDIT_CHECKPOINT_PERIOD", value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    audit_checkpoint_period: u32,
}

impl AuditArguments {
    /// The checkpoint settings of the server, or `None` if it writes no checkpoints.
    fn read(self) -> Result<Option<Checkpoints>> {
        let (path, to) = match (self.audit_key, self.audit_checkpoints) {
            (None, None) => return Ok(None),
            (Some(path), Some(to)) => (path, to),
            _ => bail!(
                "Set both the key and the destination of checkpoints: audit_key and \
                 audit_checkpoints."
            ),
        };
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("Cannot read {}", path.display()))?;
        let key = SigningKey::read(&text)
            .with_context(|| format!("File {} is not a private key", path.display()))?;
        Ok(Some(Checkpoints {
            key: Arc::new(key),
            to,
            every: Duration::from_secs(self.audit_checkpoint_period.into()),
        }))
    }
}

/// Parser of the metrics token. Its errors do not quote the value, which is a secret.
#[derive(Debug, Clone, Copy)]
pub struct MetricsTokenParser;

impl TypedValueParser for MetricsTokenParser {
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
    let url = arguments.database_url.ok_or(database::NoUrl)?;
    let store = database::open(&url, database::Role::SERVER).await?;
    let reach = database::reach(&store, arguments.allow_loopback_nodes);
    let control = Control::new(store).with_address_policy(reach);
    let policy = Policy::default();
    control
        .ensure_genesis(&policy, &Demo::default())
        .await
        .context("Cannot create the first blueprint")?;
    let listener = TcpListener::bind(arguments.listen).await;
    let listener = listener.with_context(|| format!("Cannot listen on {}", arguments.listen))?;
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

/// The public URL: the configured one, or the listen address.
pub fn public_address(
    configured: Option<PublicAddress>,
    listener: &TcpListener,
) -> Result<PublicAddress> {
    match configured {
        Some(address) => Ok(address),
        None => PublicAddress::from_listener(listener.local_addr()?)
            .context("Cannot determine the public URL (set it with --public-address)"),
    }
}

/// Serves requests until `shutdown` resolves.
pub async fn serve(
    listener: TcpListener,
    config: server::Config,
    control: Control,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    server::serve(listener, config, control, shutdown).await.context(
        "The server stopped with an \
        error",
    )
}
