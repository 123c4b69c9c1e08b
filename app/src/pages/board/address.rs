//! The state of a board as an address: the open panel and the filter of the tray.

use engine::ids::{DeploymentName, NoderoleId};
use leptos_router::params::ParamsMap;

use crate::addresses;

/// The filter of the tray by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum TrayFilter {
    #[default]
    All,
    /// Nodes without roles.
    Free,
    /// Nodes that do not respond.
    Dead,
}

impl TrayFilter {
    /// All filters with their labels, in the order of the menu.
    pub(super) const ALL: [(Self, &'static str); 3] =
        [(Self::All, "All nodes"), (Self::Free, "Without roles"), (Self::Dead, "Dead")];

    /// The word in addresses.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Free => "free",
            Self::Dead => "dead",
        }
    }

    /// Parses the word of an address. An unknown word means all.
    pub(super) fn of_word(word: &str) -> Self {
        Self::ALL
            .into_iter()
            .map(|(show, _)| show)
            .find(|show| show.word() == word)
            .unwrap_or_default()
    }
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
}

impl Address {
    /// Parses a page's query.
    pub(super) fn of(deployment: &DeploymentName, query: &ParamsMap) -> Self {
        Self {
            path: addresses::deployment(deployment),
            noderole: query.get("noderole").and_then(|id| id.parse().ok()),
            nodes: query.get("nodes").unwrap_or_default(),
            show: TrayFilter::of_word(&query.get("show").unwrap_or_default()),
        }
    }

    pub(super) fn link(&self) -> String {
        let query: Vec<String> = [
            (!self.nodes.is_empty()).then(|| format!("nodes={}", addresses::encoded(&self.nodes))),
            (self.show != TrayFilter::All).then(|| format!("show={}", self.show.word())),
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
        let view = first.narrowed("rack 2", TrayFilter::Free).panel(Some(id));
        assert_eq!(view.link(), format!("/deployments/web?nodes=rack%202&show=free&noderole={id}"));
        let mut query = ParamsMap::new();
        for (name, value) in
            [("nodes", "rack 2".to_owned()), ("show", "free".into()), ("noderole", id.to_string())]
        {
            query.insert(name, value);
        }
        assert_eq!(Address::of(&web, &query), view);
        assert_eq!(view.panel(None).narrowed("", TrayFilter::All), first);
        assert_eq!(TrayFilter::of_word("odd"), TrayFilter::All);
    }
}
