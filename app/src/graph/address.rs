//! What a graph shows, as an address: whoever gets the link sees the same.

use api::console::{GraphWay, GraphWish};
use engine::ids::RoleName;
use leptos_router::params::ParamsMap;

use crate::places;

/// Everything that a graph's reader chose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Address {
    /// The page.
    pub path: String,
    /// What else the page has in its query: `tab=graph`.
    pub fixed: Option<(&'static str, &'static str)>,
    /// What the server is asked for.
    pub wish: GraphWish,
    /// The vertex that is looked at.
    pub at: Option<String>,
    /// Whether the table is shown in place of the picture.
    pub table: bool,
}

impl Address {
    /// Out of a page's query.
    pub fn of(path: String, fixed: Option<(&'static str, &'static str)>, query: &ParamsMap) -> Self {
        let list = |name: &str| -> Vec<String> {
            let text = query.get(name).unwrap_or_default();
            text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let way = match query.get("way").as_deref() {
            Some("up") => GraphWay::Up,
            Some("down") => GraphWay::Down,
            _ => GraphWay::Both,
        };
        let roles = list("roles").iter().filter_map(|role| RoleName::parse(role).ok()).collect();
        Self {
            path,
            fixed,
            wish: GraphWish {
                roles,
                nodes: list("nodes"),
                focus: query.get("focus").filter(|key| !key.is_empty()),
                way,
            },
            at: query.get("at").filter(|key| !key.is_empty()),
            table: query.get("as").as_deref() == Some("table"),
        }
    }

    /// As a link.
    pub fn link(&self) -> String {
        let list = |name: &str, parts: Vec<String>| {
            (!parts.is_empty())
                .then(|| format!("{name}={}", parts.iter().map(|p| places::encoded(p)).collect::<Vec<_>>().join(",")))
        };
        let one = |name: &str, value: Option<&str>| value.map(|value| format!("{name}={}", places::encoded(value)));
        let way = match self.wish.way {
            GraphWay::Both => None,
            GraphWay::Up => Some("up"),
            GraphWay::Down => Some("down"),
        };
        let query: Vec<String> = [
            self.fixed.map(|(name, value)| format!("{name}={value}")),
            list("roles", self.wish.roles.iter().map(ToString::to_string).collect()),
            list("nodes", self.wish.nodes.clone()),
            one("focus", self.wish.focus.as_deref()),
            one("way", way.filter(|_| self.wish.focus.is_some())),
            one("at", self.at.as_deref()),
            one("as", self.table.then_some("table")),
        ]
        .into_iter()
        .flatten()
        .collect();
        if query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, query.join("&")) }
    }

    /// Looks at a vertex.
    pub fn at(&self, key: &str) -> Self {
        Self { at: Some(key.to_owned()), ..self.clone() }
    }

    /// Shows the picture or the table.
    pub fn as_table(&self, table: bool) -> Self {
        Self { table, ..self.clone() }
    }

    /// Unfolds a role, or folds it again.
    pub fn toggled_role(&self, role: &RoleName) -> Self {
        let mut other = self.clone();
        let before = other.wish.roles.len();
        other.wish.roles.retain(|unfolded| unfolded != role);
        if other.wish.roles.len() == before {
            other.wish.roles.push(role.clone());
        }
        // The vertex that was looked at is another one now.
        other.at = None;
        other
    }

    /// Unfolds everything on a node, or folds it again.
    pub fn toggled_node(&self, node: &str) -> Self {
        let mut other = self.clone();
        let before = other.wish.nodes.len();
        other.wish.nodes.retain(|unfolded| unfolded != node);
        if other.wish.nodes.len() == before {
            other.wish.nodes.push(node.to_owned());
        }
        other
    }

    /// Shows one vertex and what leads to it or follows from it.
    pub fn focused(&self, key: &str, way: GraphWay) -> Self {
        let mut other = self.at(key);
        other.wish.focus = Some(key.to_owned());
        other.wish.way = way;
        other
    }

    /// Shows everything again, roles folded.
    pub fn all(&self) -> Self {
        Self { wish: GraphWish::default(), at: None, ..self.clone() }
    }

    /// Whether it is the first view.
    pub fn is_first(&self) -> bool {
        self.wish == GraphWish::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_in_its_address_and_comes_back_out_of_it() {
        let first = Address { path: "/graph/web".into(), ..Address::default() };
        assert_eq!(first.link(), "/graph/web");
        let app = RoleName::parse("app").unwrap();
        let view = first.toggled_role(&app).toggled_node("n1").focused("web:app", GraphWay::Up).as_table(true);
        let link = view.link();
        assert_eq!(link, "/graph/web?roles=app&nodes=n1&focus=web%3Aapp&way=up&at=web%3Aapp&as=table");

        let mut query = ParamsMap::new();
        for (name, value) in [("roles", "app"), ("nodes", "n1"), ("focus", "web:app"), ("way", "up"), ("at", "web:app")]
        {
            query.insert(name, value.to_owned());
        }
        query.insert("as", "table".to_owned());
        assert_eq!(Address::of("/graph/web".into(), None, &query), view);
    }

    #[test]
    fn what_was_unfolded_folds_again() {
        let first = Address { path: "/reviews/1".into(), fixed: Some(("tab", "graph")), ..Address::default() };
        let app = RoleName::parse("app").unwrap();
        let unfolded = first.toggled_role(&app).toggled_node("n1");
        assert!(!unfolded.is_first());
        assert_eq!(unfolded.toggled_role(&app).toggled_node("n1"), first);
        assert_eq!(unfolded.all().link(), "/reviews/1?tab=graph");
    }
}
