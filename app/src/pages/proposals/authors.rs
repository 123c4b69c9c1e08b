//! The authors of a proposal, and a reader who is about to become one.
//!
//! Anyone who edits a proposal, or undoes or redoes an edit, becomes an author, and authors cannot
//! approve. A slip (Ctrl+Z on another person's board) must not silently cost a reviewer this right.
//! So the page shows a notice as long as the reader is no author. Undo and redo, which take a
//! single key, ask once. Edits do not ask: each is deliberate and made next to the notice.

use api::proposals::{EditView, ProposalView};
use engine::ids::ProposalId;
use leptos::html;
use leptos::prelude::*;

use crate::components::{Icon, icon};

/// A single-key action on the edits of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Undo,
    Redo,
}

/// A reader who is not an author yet.
#[derive(Clone, Copy)]
pub struct Joining {
    /// The proposal, if becoming its author would cost the reader the right to approve it.
    of: Signal<Option<ProposalId>>,
    /// The proposal for which the reader confirmed this.
    agreed: RwSignal<Option<ProposalId>>,
    unconfirmed: RwSignal<Option<Step>>,
}

impl Joining {
    /// `of` changes as proposals are opened and closed.
    pub fn new(of: Signal<Option<ProposalId>>) -> Self {
        Self { of, agreed: RwSignal::new(None), unconfirmed: RwSignal::new(None) }
    }

    /// Records the confirmation.
    pub fn agree(self) {
        self.agreed.set(self.of.get_untracked());
        self.unconfirmed.set(None);
    }

    /// Drops the confirmation after a failed command, which adds no author.
    pub fn withdraw_consent(self) {
        self.agreed.try_set(None);
    }

    /// Whether the action may proceed. Otherwise asks for confirmation.
    pub fn may(self, step: Step) -> bool {
        let of = self.of.get_untracked();
        let may = of.is_none() || of == self.agreed.get_untracked();
        if !may {
            self.unconfirmed.set(Some(step));
        }
        may
    }
}

/// The notice about becoming an author, and the confirmation of undo or redo.
#[component]
pub fn JoinNotice(
    joining: Joining,
    /// Executes the confirmed action.
    go: Callback<Step>,
) -> impl IntoView {
    let is_ahead = Memo::new(move |_| {
        let of = joining.of.get();
        of.is_some() && of != joining.agreed.get()
    });
    let yes = NodeRef::<html::Button>::new();
    Effect::new(move |_| {
        if let Some(yes) = yes.get() {
            let _ = yes.focus();
        }
    });
    let agree = move |step: Step| {
        joining.agree();
        go.run(step);
    };
    let asks = move |step: Step| {
        let (word, button) = match step {
            Step::Undo => ("Undo", "Undo and become an author"),
            Step::Redo => ("Redo", "Redo and become an author"),
        };
        view! {
            <div class="joining" role="group" aria-label="Become an author?">
                {icon(Icon::Warn)}
                <span class="grow">
                    <b>{word} " makes you an author of this proposal."</b>
                    " Authors cannot approve the proposal, even if they reverse the action later."
                </span>
                <span class="buttons">
                    <button
                        class="button small"
                        type="button"
                        node_ref=yes
                        on:click=move |_| agree(step)
                    >
                        {button}
                    </button>
                    <button
                        class="button quiet small"
                        type="button"
                        on:click=move |_| joining.unconfirmed.set(None)
                    >
                        "Cancel"
                    </button>
                </span>
            </div>
        }
        .into_any()
    };
    move || {
        is_ahead.get().then(|| match joining.unconfirmed.get() {
            Some(step) => asks(step),
            None => author_notice(),
        })
    }
}

/// The text of the notice.
pub fn author_notice() -> AnyView {
    view! {
        <div class="joining">
            {icon(Icon::Warn)}
            <span>
                "You are not an author of this proposal, so you can approve it. If you edit, undo, \
                 redo or submit, you become an author and cannot approve it."
            </span>
        </div>
    }
    .into_any()
}

/// `ada, bo; undone by cy`: the authors of edits, then the authors who only undid or redid edits.
pub fn by(proposal: &ProposalView) -> String {
    let edits = |name: &str| proposal.edits.iter().any(|edit| edit.actor == name);
    let mut text: Vec<String> = Vec::new();
    let writers: Vec<&str> =
        proposal.authors.iter().map(String::as_str).filter(|name| edits(name)).collect();
    text.extend((!writers.is_empty()).then(|| writers.join(", ")));
    for (did, words) in
        [((true, false), "undone"), ((false, true), "redone"), ((true, true), "undone and redone")]
    {
        let some = proposal.authors.iter().map(String::as_str).filter(|name| !edits(name));
        let some: Vec<&str> = some.filter(|name| touched(&proposal.edits, name) == did).collect();
        text.extend((!some.is_empty()).then(|| format!("{words} by {}", some.join(", "))));
    }
    text.join("; ")
}

/// Whether a person undid or redid an edit. The two alternate in an edit's history.
fn touched(edits: &[EditView], name: &str) -> (bool, bool) {
    let places = edits
        .iter()
        .flat_map(|edit| edit.touched_by.iter().enumerate())
        .filter(|(_, by)| *by == name);
    places.fold((false, false), |(undid, redid), (place, _)| {
        (undid || place % 2 == 0, redid || place % 2 == 1)
    })
}

/// The history of an edit, for the list of edits: ` undone by bo`.
pub fn undo_state(edit: &EditView) -> Option<String> {
    let by = edit.touched_by.last().filter(|by| **by != edit.actor)?;
    Some(format!("{} by {by}", if edit.undone { "undone" } else { "redone" }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::At;

    fn edit(seq: u32, actor: &str, touched_by: &[&str]) -> EditView {
        EditView {
            seq,
            text: "bind n1 to app".into(),
            actor: actor.into(),
            at: At(0),
            undone: touched_by.len() % 2 == 1,
            touched_by: touched_by.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn proposal(authors: &[&str], edits: Vec<EditView>) -> ProposalView {
        ProposalView {
            id: ProposalId(7),
            version: 3,
            title: String::new(),
            authors: authors.iter().map(|name| (*name).to_owned()).collect(),
            makes_author: true,
            has_other_authors: true,
            edits,
            undo: None,
            redo: None,
            added: 0,
            removed: 0,
            reruns: 0,
            refused: Vec::new(),
            not_restored: None,
            clashes: Vec::new(),
            review: None,
            sent_back: None,
        }
    }

    #[test]
    fn undo_only_author_is_named_with_action() {
        let edits = vec![
            edit(1, "ada", &["bo"]),
            edit(2, "cy", &["ada", "di", "bo", "eve"]),
            edit(3, "ada", &[]),
        ];
        assert_eq!(
            by(&proposal(&["ada", "bo", "cy", "di", "eve"], edits)),
            "ada, cy; undone by bo; redone by di, eve",
            "each author appears once, and ada counts as an author of edits"
        );
        let both = vec![edit(1, "ada", &["bo", "bo"])];
        assert_eq!(by(&proposal(&["ada", "bo"], both)), "ada; undone and redone by bo");
        assert_eq!(by(&proposal(&[], Vec::new())), "");
    }

    #[test]
    fn edit_names_other_person_who_touched_it() {
        assert_eq!(undo_state(&edit(1, "ada", &[])), None);
        assert_eq!(
            undo_state(&edit(1, "ada", &["ada"])),
            None,
            "an author's own undo is not shown"
        );
        assert_eq!(undo_state(&edit(1, "ada", &["bo"])).unwrap(), "undone by bo");
        assert_eq!(undo_state(&edit(1, "ada", &["ada", "bo"])).unwrap(), "redone by bo");
    }

    #[test]
    fn non_author_must_confirm_once_per_proposal() {
        Owner::new().with(|| {
            let of = RwSignal::new(Some(ProposalId(7)));
            let joining = Joining::new(of.into());
            assert!(!joining.may(Step::Undo));
            assert_eq!(joining.unconfirmed.get_untracked(), Some(Step::Undo));
            joining.agree();
            assert!(joining.may(Step::Redo), "the confirmation also covers redo");
            of.set(Some(ProposalId(8)));
            assert!(!joining.may(Step::Redo), "another proposal needs its own confirmation");
            of.set(None);
            assert!(joining.may(Step::Undo), "nothing to confirm without a proposal");
        });
    }
}
