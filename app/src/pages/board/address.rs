//! What a board shows, as an address: the panel that is open, and what the tray is narrowed to.

use engine::ids::{DeploymentName, NoderoleId};
use leptos_router::params::ParamsMap;

use crate::places;

/// Which nodes of the tray are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Show {
    /// All.
    #[default]
    All,
    /// Those that carry nothing yet.
    Free,
    /// Those that don't answer.
    Dead,
}

impl Show {
    /// All of them, as they are offered, with what they are called there.
    pub(super) const ALL: [(Self, &'static str); 3] =
        [(Self::All, "All nodes"), (Self::Free, "Without roles"), (Self::Dead, "Dead")];

    /// The word for it in addresses.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Free => "free",
            Self::Dead => "dead",
        }
    }

    /// Out of an address; what it does not know is all.
    pub(super) fn of_word(word: &str) -> Self {
        Self::ALL
            .into_iter()
            .map(|(show, _)| show)
            .find(|show| show.word() == word)
            .unwrap_or_default()
    }
}

/// Everything that a board's reader chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    path: String,
    /// The noderole whose panel is open.
    pub(super) noderole: Option<NoderoleId>,
    /// What the names of the tray's nodes, or of their deployments, have in them.
    pub(super) nodes: String,
    /// Which of them.
    pub(super) show: Show,
}

impl Address {
    /// Out of a page's query.
    pub(super) fn of(deployment: &DeploymentName, query: &ParamsMap) -> Self {
        Self {
            path: places::deployment(deployment),
            noderole: query.get("noderole").and_then(|id| id.parse().ok()),
            nodes: query.get("nodes").unwrap_or_default(),
            show: Show::of_word(&query.get("show").unwrap_or_default()),
        }
    }

    /// As a link.
    pub(super) fn link(&self) -> String {
        let query: Vec<String> = [
            (!self.nodes.is_empty()).then(|| format!("nodes={}", places::encoded(&self.nodes))),
            (self.show != Show::All).then(|| format!("show={}", self.show.word())),
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

    /// With this panel open, or none.
    pub(super) fn panel(&self, noderole: Option<NoderoleId>) -> Self {
        Self { noderole, ..self.clone() }
    }

    /// With the tray narrowed to these.
    pub(super) fn narrowed(&self, nodes: &str, show: Show) -> Self {
        Self { nodes: nodes.to_owned(), show, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_board_is_in_its_address_and_comes_back_out_of_it() {
        let web = DeploymentName::parse("web").unwrap();
        let first = Address::of(&web, &ParamsMap::new());
        assert_eq!(first.link(), "/deployments/web");
        let id = NoderoleId(Uuid::from_u128(5));
        let view = first.narrowed("rack 2", Show::Free).panel(Some(id));
        assert_eq!(view.link(), format!("/deployments/web?nodes=rack%202&show=free&noderole={id}"));
        let mut query = ParamsMap::new();
        for (name, value) in
            [("nodes", "rack 2".to_owned()), ("show", "free".into()), ("noderole", id.to_string())]
        {
            query.insert(name, value);
        }
        assert_eq!(Address::of(&web, &query), view);
        assert_eq!(view.panel(None).narrowed("", Show::All), first);
        assert_eq!(Show::of_word("odd"), Show::All);
    }
}
