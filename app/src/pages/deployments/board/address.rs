//! The state of a board as an address: the open panel and the filter of the tray.

use api::views::board::TrayFilter;
use engine::ids::{DeploymentName, NoderoleId};
use leptos_router::params::ParamsMap;

use crate::addresses;

/// The filters of the tray with their labels, in the order of the menu.
pub(super) const TRAY_FILTERS: [(TrayFilter, &str); 3] = [
    (TrayFilter::All, "All nodes"),
    (TrayFilter::Free, "Without roles"),
    (TrayFilter::Dead, "Dead"),
];

/// The word of a filter in addresses.
pub(super) const fn filter_param(filter: TrayFilter) -> &'static str {
    match filter {
        TrayFilter::All => "all",
        TrayFilter::Free => "free",
        TrayFilter::Dead => "dead",
    }
}

/// Parses the word of an address. An unknown word means all.
pub(super) fn parse_filter(word: &str) -> TrayFilter {
    let filters = TRAY_FILTERS.into_iter().map(|(show, _)| show);
    filters.into_iter().find(|show| filter_param(*show) == word).unwrap_or_default()
}

/// The reader's choices for a board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    path: String,
    /// The noderole whose panel is open.
    pub(super) noderole: Option<NoderoleId>,
    /// The text that names of the tray's nodes or of their deployments contain.
    pub(super) nodes: String,
    pub(super) show: TrayFilter,
    /// Whether the rows show only noderoles that are not ACTIVE.
    pub(super) not_active: bool,
}

/// The value of the parameter `state` for noderoles that are not ACTIVE.
const NOT_ACTIVE: &str = "not-active";

pub(super) fn is_not_active(query: &ParamsMap) -> bool {
    query.get_str("state") == Some(NOT_ACTIVE)
}

impl Address {
    /// Parses a page's query.
    pub(super) fn of(deployment: &DeploymentName, query: &ParamsMap) -> Self {
        Self {
            path: addresses::deployment(deployment),
            noderole: query.get("noderole").and_then(|id| id.parse().ok()),
            nodes: query.get("nodes").unwrap_or_default(),
            show: parse_filter(&query.get("show").unwrap_or_default()),
            not_active: is_not_active(query),
        }
    }

    pub(super) fn link(&self) -> String {
        let query: Vec<String> = [
            (!self.nodes.is_empty()).then(|| format!("nodes={}", addresses::encoded(&self.nodes))),
            (self.show != TrayFilter::All).then(|| format!("show={}", filter_param(self.show))),
            self.not_active.then(|| format!("state={NOT_ACTIVE}")),
            self.noderole.map(|id| format!("noderole={id}")),
        ]
        .into_iter()
        .flatten()
        .collect();
        if query.is_empty() {
            self.path.clone()
        } else {
            format!("{}?{}", self.path, query.join("&"))
        }
    }

    /// Opens a panel, or closes it.
    pub(super) fn panel(&self, noderole: Option<NoderoleId>) -> Self {
        Self { noderole, ..self.clone() }
    }

    /// Filters the rows.
    pub(super) fn with_not_active(&self, not_active: bool) -> Self {
        Self { not_active, ..self.clone() }
    }

    /// Filters the tray.
    pub(super) fn narrowed(&self, nodes: &str, show: TrayFilter) -> Self {
        Self { nodes: nodes.to_owned(), show, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn board_round_trips_through_address() {
        let web = DeploymentName::parse("web").unwrap();
        let first = Address::of(&web, &ParamsMap::new());
        assert_eq!(first.link(), "/deployments/web");
        let id = NoderoleId(Uuid::from_u128(5));
        let view = first.narrowed("rack 2", TrayFilter::Free).with_not_active(true).panel(Some(id));
        let link =
            format!("/deployments/web?nodes=rack%202&show=free&state=not-active&noderole={id}");
        assert_eq!(view.link(), link);
        let mut query = ParamsMap::new();
        for (name, value) in [
            ("nodes", "rack 2".to_owned()),
            ("show", "free".into()),
            ("state", "not-active".into()),
            ("noderole", id.to_string()),
        ] {
            query.insert(name, value);
        }
        assert_eq!(Address::of(&web, &query), view);
        assert_eq!(view.panel(None).narrowed("", TrayFilter::All).with_not_active(false), first);
        assert_eq!(parse_filter("odd"), TrayFilter::All);
    }
}
