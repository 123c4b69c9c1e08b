//! Icons: symbols of one file, `/icons.svg`, in the color of the surrounding text.

use leptos::prelude::*;

macro_rules! icons {
    ($($(#[$doc:meta])* $name:ident = $id:literal;)*) => {
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
    Proposed = "proposed";
    Blocked = "blocked";
    Todo = "todo";
    Transition = "transition";
    Active = "active";
    Error = "error";
    Queued = "queued";
    Canceled = "canceled";
    Lost = "lost";
    Dead = "dead";
    Paused = "paused";
    Dot = "dot";
    Warn = "warn";
    Gantry = "gantry";
    Overview = "overview";
    Worker = "worker";
    Audit = "audit";
    Deployments = "deployments";
    Node = "node";
    Graph = "graph";
    Review = "review";
    Talk = "talk";
    Run = "run";
    Blueprint = "blueprint";
    Catalog = "catalog";
    Milestone = "milestone";
    Person = "person";
    Plus = "plus";
    Check = "check";
    Cross = "cross";
    Undo = "undo";
    Redo = "redo";
    Rerun = "again";
    Data = "data";
    Delete = "bin";
    Bind = "bind";
    Search = "search";
    Download = "download";
    Down = "down";
    Right = "right";
    Up = "up";
    End = "end";
    Wrap = "wrap";
    Leave = "leave";
    Light = "light";
    Dark = "dark";
    System = "system";
    More = "more";
    Wide = "wide";
}

/// An icon next to text with the same meaning. Hidden from screen readers.
pub fn icon(icon: Icon) -> impl IntoView {
    drawn(icon, "icon")
}

/// An icon with an additional class.
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
    fn icons_and_symbols_match_one_to_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../style/assets/icons.svg");
        let file = std::fs::read_to_string(path).expect("icons.svg is readable");
        let mut drawn: Vec<&str> =
            file.split("<symbol id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let mut named: Vec<&str> = Icon::ALL.iter().map(|icon| icon.id()).collect();
        drawn.sort_unstable();
        named.sort_unstable();
        assert_eq!(drawn, named);
    }
}
