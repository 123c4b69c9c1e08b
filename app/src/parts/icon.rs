//! Icons: symbols of one file, `/icons.svg`, drawn in the colour of the text around them.

use leptos::prelude::*;

macro_rules! icons {
    ($($(#[$doc:meta])* $name:ident = $id:literal;)*) => {
        /// A symbol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Icon {
            $($(#[$doc])* $name,)*
        }

        impl Icon {
            fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

icons! {
    /// PROPOSED.
    Proposed = "proposed";
    /// BLOCKED.
    Blocked = "blocked";
    /// TODO.
    Todo = "todo";
    /// TRANSITION.
    Transition = "transition";
    /// ACTIVE; good.
    Active = "active";
    /// ERROR; bad.
    Error = "error";
    /// A run that waits for a worker.
    Queued = "queued";
    /// A run that was stopped.
    Cancelled = "cancelled";
    /// Gone: a worker, a connection.
    Lost = "lost";
    /// A node that does not answer.
    Dead = "dead";
    /// Nothing starts.
    Paused = "paused";
    /// Live.
    Dot = "dot";
    /// Look here.
    Warn = "warn";
    /// The product.
    Gantry = "gantry";
    /// How it stands.
    Overview = "overview";
    /// A worker.
    Worker = "worker";
    /// The audit.
    Audit = "audit";
    /// Deployments.
    Deployments = "deployments";
    /// A node.
    Node = "node";
    /// The graph.
    Graph = "graph";
    /// Reviews.
    Review = "review";
    /// What people say.
    Talk = "talk";
    /// Runs; to start.
    Run = "run";
    /// Blueprints.
    Blueprint = "blueprint";
    /// The catalog.
    Catalog = "catalog";
    /// A milestone.
    Milestone = "milestone";
    /// Somebody.
    Person = "person";
    /// Add.
    Plus = "plus";
    /// Yes.
    Check = "check";
    /// No; close.
    Cross = "cross";
    /// Take back.
    Undo = "undo";
    /// Bring back.
    Redo = "redo";
    /// Once more.
    Again = "again";
    /// Data.
    Data = "data";
    /// Throw away.
    Bin = "bin";
    /// Bind.
    Bind = "bind";
    /// Look for.
    Search = "search";
    /// Take along.
    Download = "download";
    /// The next one below.
    Down = "down";
    /// Onwards.
    Right = "right";
    /// The one above.
    Up = "up";
    /// To the end.
    End = "end";
    /// Long lines.
    Wrap = "wrap";
    /// Sign out.
    Leave = "leave";
    /// Light.
    Light = "light";
    /// Dark.
    Dark = "dark";
    /// As the system.
    System = "system";
    /// What there is no room for.
    More = "more";
    /// On a page of its own.
    Wide = "wide";
}

/// Draws an icon beside words that say the same: readers of the page pass it over.
pub fn icon(icon: Icon) -> impl IntoView {
    drawn(icon, "icon")
}

/// An icon with a class of its own beside `icon`.
pub fn drawn(icon: Icon, class: &'static str) -> impl IntoView {
    view! {
        <svg class=class aria-hidden="true" viewBox="0 0 24 24">
            <use_ href=format!("/icons.svg#{}", icon.id())></use_>
        </svg>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_icon_is_drawn_and_every_drawing_is_used() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../style/assets/icons.svg");
        let file = std::fs::read_to_string(path).expect("the file with the symbols");
        let mut drawn: Vec<&str> =
            file.split("<symbol id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let mut named: Vec<&str> = Icon::ALL.iter().map(|icon| icon.id()).collect();
        drawn.sort_unstable();
        named.sort_unstable();
        assert_eq!(drawn, named);
    }
}
