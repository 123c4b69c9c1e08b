//! Addresses of the hosts on which servers run.
//!
//! Workers must not connect to a server as if it were a node ([`engine::reach`]). A worker on
//! another host cannot know these addresses, so each server reports its own.
//!
//! A server reports every minute. Its rows are deleted ten minutes after the last report, by any
//! server. If no server runs, they stay.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use sea_orm::sea_query::{Expr, ExprTrait as _};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use sqlx::PgPool;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::server_address;

/// The interval of a server's reports.
pub const REPORT_PERIOD: Duration = Duration::from_secs(60);
/// How long an address stays after its last report.
pub const RETENTION: Duration = Duration::from_secs(600);

/// The addresses of this host's interfaces, without loopback and link-local ones, which other hosts
/// have too.
pub fn host_addresses() -> BTreeSet<IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let address = |of: nix::sys::socket::SockaddrStorage| {
        let ipv4 = of.as_sockaddr_in().map(|of| IpAddr::V4(of.ip()));
        ipv4.or_else(|| of.as_sockaddr_in6().map(|of| IpAddr::V6(of.ip())))
    };
    let is_shared = |address: &IpAddr| match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
    };
    let addresses = interfaces.filter_map(|interface| address(interface.address?));
    addresses.filter(|address| !is_shared(address)).collect()
}

/// Stores addresses of a server, and the one from which it reaches the database. Deletes addresses
/// that no server reports anymore. Returns the number of stored addresses.
pub async fn report(pool: &PgPool, addresses: &BTreeSet<IpAddr>) -> Result<u64, StoreError> {
    let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    let stored = sqlx::query(
        "INSERT INTO server_address (address) \
         SELECT DISTINCT a FROM unnest($1::text[] || host(inet_client_addr())) AS u (a) \
         WHERE a IS NOT NULL ON CONFLICT (address) DO UPDATE SET seen_at = now()",
    )
    .bind(addresses)
    .execute(pool)
    .await?;
    let expired = "now() - make_interval(secs => $1)";
    let expired = Expr::cust_with_values(expired, [RETENTION.as_secs_f64()]);
    let mut connection = pool.acquire().await?;
    server_address::Entity::delete_many()
        .filter(server_address::Column::SeenAt.into_expr().lt(expired))
        .exec(&orm(&mut connection))
        .await?;
    Ok(stored.rows_affected())
}

/// The addresses among these that belong to servers.
pub async fn servers_among(
    pool: &PgPool,
    addresses: &[IpAddr],
) -> Result<BTreeSet<IpAddr>, StoreError> {
    let mut connection = pool.acquire().await?;
    let rows: Vec<String> = server_address::Entity::find()
        .select_only()
        .column(server_address::Column::Address)
        .filter(server_address::Column::Address.is_in(addresses.iter().map(IpAddr::to_string)))
        .into_tuple()
        .all(&orm(&mut connection))
        .await?;
    Ok(rows.iter().filter_map(|address| address.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use testdb::TestDatabase;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn reported_addresses_are_found_until_they_expire() {
        let database = TestDatabase::new().await;
        let (server, worker) = (database.server(), database.worker());
        let own = BTreeSet::from([ip("192.0.2.1"), ip("2001:db8::1"), ip("192.0.2.2")]);
        report(server, &own).await.unwrap();
        report(server, &own).await.unwrap();
        let addresses = [ip("192.0.2.1"), ip("2001:db8::1"), ip("192.0.2.9")];
        let found = servers_among(worker, &addresses).await.unwrap();
        assert_eq!(found, BTreeSet::from([ip("192.0.2.1"), ip("2001:db8::1")]));

        sqlx::query("UPDATE server_address SET seen_at = now() - interval '11 minutes'")
            .execute(server)
            .await
            .unwrap();
        report(server, &BTreeSet::from([ip("192.0.2.9"), ip("192.0.2.1")])).await.unwrap();
        let found = servers_among(worker, &addresses).await.unwrap();
        assert_eq!(found, BTreeSet::from([ip("192.0.2.1"), ip("192.0.2.9")]));
    }
}
