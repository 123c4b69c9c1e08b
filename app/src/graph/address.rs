//! The state of a graph view as an address, so that a link shows the same view to everyone.

use api::views::graph::{GraphDirection, GraphOptions, Length, PathOptions};
use engine::ids::{BlueprintNumber, RoleName};
use leptos_router::params::ParamsMap;

use crate::addresses;

/// The property that a graph's colors show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ColorBy {
    /// The state of noderoles.
    #[default]
    State,
    /// The wave in which noderoles run.
    Wave,
    /// The deployment that binds the noderoles.
    Owner,
}

impl ColorBy {
    /// All properties, in the order of the menu.
    pub const ALL: [Self; 3] = [Self::State, Self::Wave, Self::Owner];

    /// The word in addresses and on the page.
    pub const fn label(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Wave => "wave",
            Self::Owner => "owner",
        }
    }
}

/// The reader's choices for a graph view.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Address {
    pub path: String,
    /// A further query parameter of the page, such as `tab=graph`.
    pub fixed: Option<(&'static str, &'static str)>,
    /// The request to the server.
    pub options: GraphOptions,
    /// The key of the selected vertex.
    pub at: Option<String>,
    /// Whether the table replaces the picture.
    pub table: bool,
    pub color: ColorBy,
}

impl Address {
    /// Parses a page's query.
    pub fn of(
        path: String,
        fixed: Option<(&'static str, &'static str)>,
        query: &ParamsMap,
    ) -> Self {
        let list = |name: &str| -> Vec<String> {
            let text = query.get(name).unwrap_or_default();
            text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let direction = match query.get("direction").as_deref() {
            Some("up") => GraphDirection::Up,
            Some("down") => GraphDirection::Down,
            _ => GraphDirection::Both,
        };
        let roles = list("roles").iter().filter_map(|role| RoleName::parse(role).ok()).collect();
        Self {
            path,
            fixed,
            options: GraphOptions {
                roles,
                nodes: list("nodes"),
                focus: query.get("focus").filter(|key| !key.is_empty()),
                direction,
                steps: query
                    .get("steps")
                    .and_then(|steps| steps.parse().ok())
                    .filter(|steps| *steps > 0),
                marked_path: marked_path(query),
                only_path: query.get("only").as_deref() == Some("path"),
                blueprint: query
                    .get("blueprint")
                    .and_then(|number| number.parse().ok())
                    .map(BlueprintNumber),
            },
            at: query.get("at").filter(|key| !key.is_empty()),
            table: query.get("as").as_deref() == Some("table"),
            color: match query.get("color").as_deref() {
                Some("wave") => ColorBy::Wave,
                Some("owner") => ColorBy::Owner,
                _ => ColorBy::State,
            },
        }
    }

    /// Parses the name-value pairs of a query, for callers without a router.
    pub fn from_pairs(path: String, query: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut known = ParamsMap::new();
        for (name, value) in query {
            known.insert(name, value);
        }
        Self::of(path, None, &known)
    }

    pub fn link(&self) -> String {
        let page = [
            self.fixed.map(|(name, value)| format!("{name}={value}")),
            self.at.as_deref().map(|at| format!("at={}", addresses::encoded(at))),
            self.table.then(|| "as=table".to_owned()),
        ];
        let [fixed, at, table] = page;
        build(&self.path, fixed.into_iter().chain(self.query()).chain(at).chain(table).collect())
    }

    /// The link to the same view as an SVG file.
    pub fn file(&self) -> String {
        build(&addresses::graph_file(&self.path), self.query())
    }

    /// The parameters that affect the picture.
    fn query(&self) -> Vec<String> {
        // A comma separates list items and stays readable.
        let pair = |(word, text): (&str, String)| {
            format!("{word}={}", addresses::encoded(&text).replace("%2C", ","))
        };
        let color =
            (self.color != ColorBy::State).then(|| ("color", self.color.label().to_owned()));
        self.options.query_params().into_iter().chain(color).map(pair).collect()
    }

    /// Selects a vertex.
    pub fn at(&self, key: &str) -> Self {
        Self { at: Some(key.to_owned()), ..self.clone() }
    }

    pub fn as_table(&self, table: bool) -> Self {
        Self { table, ..self.clone() }
    }

    pub fn with_color(&self, color: ColorBy) -> Self {
        Self { color, ..self.clone() }
    }

    /// Highlights a part of the graph, or nothing.
    pub fn marked(&self, marked_path: Option<PathOptions>) -> Self {
        let mut other = self.clone();
        other.options.marked_path = marked_path;
        other.options.only_path = false;
        other
    }

    /// Starts a path at a vertex, or ends the started path there.
    pub fn with_path_at(&self, key: &str) -> Self {
        match &self.options.marked_path {
            Some(PathOptions::From(from)) if from != key => {
                self.marked(Some(PathOptions::Between(from.clone(), key.to_owned())))
            }
            _ => self.marked(Some(PathOptions::From(key.to_owned()))),
        }
    }

    /// Shows only the highlighted part, or everything.
    pub fn with_only_highlighted(&self, only: bool) -> Self {
        let mut other = self.clone();
        other.options.only_path = only;
        other
    }

    /// Limits the view to vertices within this many edges of the focus. `None`: no limit.
    pub fn with_max_distance(&self, steps: Option<u32>) -> Self {
        let mut other = self.clone();
        other.options.steps = steps;
        other
    }

    /// Expands or collapses a role.
    pub fn toggled_role(&self, role: &RoleName) -> Self {
        let mut other = self.clone();
        let before = other.options.roles.len();
        other.options.roles.retain(|expanded| expanded != role);
        if other.options.roles.len() == before {
            other.options.roles.push(role.clone());
        }
        // The keys of vertices change, so the selected one may no longer exist.
        other.at = None;
        other
    }

    /// Expands or collapses all roles on a node.
    pub fn toggled_node(&self, node: &str) -> Self {
        let mut other = self.clone();
        let before = other.options.nodes.len();
        other.options.nodes.retain(|expanded| expanded != node);
        if other.options.nodes.len() == before {
            other.options.nodes.push(node.to_owned());
        }
        other
    }

    /// Limits the view to one vertex and its dependencies or dependents.
    pub fn focused(&self, key: &str, direction: GraphDirection) -> Self {
        let mut other = self.at(key);
        other.options.focus = Some(key.to_owned());
        other.options.direction = direction;
        other
    }

    /// Removes all filters and collapses the roles.
    pub fn all(&self) -> Self {
        Self { options: self.first(), at: None, ..self.clone() }
    }

    /// Whether the view is the default one.
    pub fn is_first(&self) -> bool {
        self.options == self.first()
    }

    /// The request of the default view. It keeps the target, because another target is another
    /// graph.
    fn first(&self) -> GraphOptions {
        GraphOptions { blueprint: self.options.blueprint, ..GraphOptions::default() }
    }
}

fn build(path: &str, query: Vec<String>) -> String {
    if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
}

fn marked_path(query: &ParamsMap) -> Option<PathOptions> {
    let key = |name: &str| query.get(name).filter(|key| !key.is_empty());
    match (query.get("longest").as_deref(), key("from"), key("to")) {
        (Some("count"), _, _) => Some(PathOptions::Longest(Length::Count)),
        (Some("time"), _, _) => Some(PathOptions::Longest(Length::Time)),
        (_, Some(from), Some(to)) => Some(PathOptions::Between(from, to)),
        (_, Some(from), None) => Some(PathOptions::From(from)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_round_trips_through_address() {
        let first = Address { path: "/graph/web".into(), ..Address::default() };
        assert_eq!(first.link(), "/graph/web");
        let app = RoleName::parse("app").unwrap();
        let view = first
            .toggled_role(&app)
            .toggled_node("n1")
            .focused("web:app", GraphDirection::Up)
            .as_table(true);
        let link = view.link();
        assert_eq!(
            link,
            "/graph/web?roles=app&nodes=n1&focus=web%3Aapp&direction=up&at=web%3Aapp&as=table"
        );

        let mut query = ParamsMap::new();
        for (name, value) in [
            ("roles", "app"),
            ("nodes", "n1"),
            ("focus", "web:app"),
            ("direction", "up"),
            ("at", "web:app"),
        ] {
            query.insert(name, value.to_owned());
        }
        query.insert("as", "table".to_owned());
        assert_eq!(Address::of("/graph/web".into(), None, &query), view);
    }

    fn read(link: &str) -> Address {
        let (path, query) = link.split_once('?').unwrap_or((link, ""));
        let pairs = query.split('&').filter_map(|part| part.split_once('='));
        Address::from_pairs(
            path.into(),
            pairs.map(|(name, value)| (name.to_owned(), value.replace("%3A", ":"))),
        )
    }

    #[test]
    fn highlighting_and_color_round_trip_through_address() {
        let first = Address { path: "/graph/web".into(), ..Address::default() };
        let begun = first.with_path_at("web:dns");
        assert_eq!(begun.link(), "/graph/web?from=web%3Adns");
        assert_eq!(begun.with_path_at("web:dns"), begun, "a path has two ends");
        let whole =
            begun.with_path_at("web:app").with_only_highlighted(true).with_color(ColorBy::Wave);
        assert_eq!(whole.link(), "/graph/web?from=web%3Adns&to=web%3Aapp&only=path&color=wave");
        assert_eq!(
            whole.with_path_at("web:run").options.marked_path,
            Some(PathOptions::From("web:run".into())),
            "a third end starts a new path"
        );
        let near = first.focused("web:app", GraphDirection::Down).with_max_distance(Some(2));
        let longest =
            first.marked(Some(PathOptions::Longest(Length::Time))).with_color(ColorBy::Owner);
        for address in [first, begun, whole, near, longest] {
            assert_eq!(read(&address.link()), address);
        }
    }

    #[test]
    fn target_is_kept_in_all_links() {
        let then = read("/graph/old?blueprint=3");
        assert!(then.is_first() && then.options.blueprint == Some(BlueprintNumber(3)));
        let near = then.focused("old:app", GraphDirection::Up);
        assert_eq!(near.link(), "/graph/old?focus=old%3Aapp&direction=up&blueprint=3&at=old%3Aapp");
        assert_eq!(near.file(), "/graph/old/graph.svg?focus=old%3Aapp&direction=up&blueprint=3");
        assert_eq!(near.all(), then);
    }

    #[test]
    fn file_link_has_only_picture_parameters() {
        let address = read("/graph/web?roles=app&at=web%3Aapp&as=table&color=wave");
        assert_eq!(address.file(), "/graph/web/graph.svg?roles=app&color=wave");
        let review = Address {
            path: "/reviews/1".into(),
            fixed: Some(("tab", "graph")),
            ..Address::default()
        };
        assert_eq!(review.file(), "/reviews/1/graph.svg");
        assert_eq!(read("/graph?color=owner").file(), "/graph.svg?color=owner");
    }

    #[test]
    fn expanded_role_collapses_again() {
        let first = Address {
            path: "/reviews/1".into(),
            fixed: Some(("tab", "graph")),
            ..Address::default()
        };
        let app = RoleName::parse("app").unwrap();
        let expanded = first.toggled_role(&app).toggled_node("n1");
        assert!(!expanded.is_first());
        assert_eq!(expanded.toggled_role(&app).toggled_node("n1"), first);
        assert_eq!(expanded.all().link(), "/reviews/1?tab=graph");
    }
}
