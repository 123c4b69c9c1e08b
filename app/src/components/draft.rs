//! A document that is being edited as a form or as text.
//!
//! Other people may change the stored document in the meantime ([`Draft::follow`]). The draft takes
//! over their changes of other values. If both changed a value, the user chooses.

use engine::data::{DataConflict, rebase};
use leptos::prelude::*;
use serde_json::Value;

use crate::validation::{self, Purpose, ValidationError};

/// A document that is being edited.
#[derive(Clone, Copy)]
pub struct Draft {
    pub(super) text: RwSignal<String>,
    read: Memo<Result<Value, ValidationError>>,
    pub(super) errors: Memo<Vec<ValidationError>>,
    pub(super) purpose: StoredValue<Purpose>,
    /// The stored document that the text is based on.
    base: RwSignal<Value>,
    /// The person who set the stored document.
    pub(super) base_by: RwSignal<Option<String>>,
    /// Values that this person changed too, before the user chose.
    found: RwSignal<Vec<DataConflict>>,
    pub(super) conflicts: Memo<Vec<DataConflict>>,
}

/// A stored document, and the person who set it.
pub type Stored = (Value, Option<String>);

impl Draft {
    pub fn new(first: &Value, purpose: Purpose) -> Self {
        let text = RwSignal::new(validation::pretty(first));
        let purpose = StoredValue::new(purpose);
        let read = Memo::new(move |_| text.with(|text| validation::read(text)));
        let errors = Memo::new(move |_| match read.get() {
            Ok(value) => purpose.with_value(|purpose| purpose.errors(&value)),
            Err(error) => vec![error],
        });
        let found = RwSignal::new(Vec::<DataConflict>::new());
        let conflicts = Memo::new(move |_| {
            let Ok(document) = read.get() else { return found.get() };
            let mut open = found.get();
            open.retain(|conflict| document.pointer(&conflict.path) != conflict.theirs.as_ref());
            open
        });
        let (base, base_by) = (RwSignal::new(first.clone()), RwSignal::new(None));
        Self { text, read, errors, purpose, base, base_by, found, conflicts }
    }

    /// The document, if it differs from the stored one and has no errors and no open conflicts.
    pub fn changed(self) -> Option<Value> {
        if !self.is_fine() || !self.conflicts.read().is_empty() {
            return None;
        }
        self.read.get().ok().filter(|value| *value != *self.base.read())
    }

    /// Moves the user's changes onto the stored document whenever that changes. `None`: unknown.
    /// While the text is invalid, it stays as it is.
    pub fn follow(self, stored: Signal<Option<Stored>>) {
        Effect::new(move |_| {
            if let (Some(stored), Ok(mine)) = (stored.get(), self.read.get()) {
                self.rebase(&mine, stored);
            }
        });
    }

    fn rebase(self, mine: &Value, (theirs, by): Stored) {
        let base = self.base.get_untracked();
        if base == theirs {
            return;
        }
        // Both documents were checked before, so they are not too deep.
        let Ok((combined, mut found)) = rebase(&base, mine, &theirs) else { return };
        let still_open = self.conflicts.get_untracked().into_iter().map(|conflict| DataConflict {
            theirs: theirs.pointer(&conflict.path).cloned(),
            ..conflict
        });
        let is_new = |path: &str| found.iter().all(|known| known.path != path);
        let still_open: Vec<_> = still_open.filter(|conflict| is_new(&conflict.path)).collect();
        found.extend(still_open);
        self.base.set(theirs);
        self.base_by.set(by);
        self.found.set(found);
        if combined != *mine {
            self.text.set(validation::pretty(&combined));
        }
    }

    /// Resolves a conflict: the document gets their value, or keeps the user's.
    pub(super) fn resolve(self, conflict: &DataConflict, takes_theirs: bool) {
        self.found.update(|found| found.retain(|other| other.path != conflict.path));
        if takes_theirs {
            self.put(&conflict.path, conflict.theirs.clone());
        }
    }

    /// Whether the document has no errors.
    pub fn is_fine(self) -> bool {
        self.errors.with(Vec::is_empty)
    }

    /// Whether the text is valid JSON, so that fields can change it.
    pub fn is_readable(self) -> bool {
        self.read.with(Result::is_ok)
    }

    /// The value at a JSON pointer.
    pub fn at(self, path: &str) -> Option<Value> {
        self.read.with(|read| read.as_ref().ok()?.pointer(path).cloned())
    }

    /// The errors at a JSON pointer.
    pub fn errors_at(self, path: &str) -> Vec<String> {
        self.errors.with(|errors| {
            errors
                .iter()
                .filter(|error| error.at == path)
                .map(|error| error.detail.clone())
                .collect()
        })
    }

    pub fn purpose(self) -> Purpose {
        self.purpose.get_value()
    }

    /// Sets or removes the value at a JSON pointer.
    pub fn put(self, path: &str, value: Option<Value>) {
        if let Ok(mut document) = self.read.get_untracked() {
            validation::put(&mut document, path, value);
            self.text.set(validation::pretty(&document));
        }
    }
}
