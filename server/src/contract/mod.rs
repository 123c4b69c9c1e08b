//! `/api/v1` as it is described: one list of operations, out of which both the router and the OpenAPI document are made.
//!
//! # Theory
//!
//! A description that is written beside the code is wrong after a while. So an operation is added together with its handler
//! ([`Operations`]), and what it takes and gives is read off the handler's own signature ([`Told`]): path, query and body from its
//! extractors, answers from what it returns, both by the serde attributes that read and write them. What no type says (a name, one
//! sentence, a precondition) stands in [`Op`].
//!
//! What holds for all operations alike is done here once, around each of them ([`around`]): words of a query that nobody knows are
//! refused, whatever is read has an entity tag, preconditions are looked at, and a POST may carry an idempotency key.
//!
//! Invariants:
//! * what is routed below `/api/v1` is described, and what is described is routed (a test asks the router itself);
//! * the document that is committed is the one that is served (a test; `GANTRY_WRITE=1` writes it anew).

mod around;
mod document;
mod told;

pub(crate) use around::{LONGEST_KEY, Version, coded, version};
pub(crate) use document::document;
pub(crate) use told::{Asker, Asks, Created, Sketch, Told, Versioned};

use told::Forms;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, on};

use crate::limits;
use crate::state::AppState;

pub(crate) use api::names::ROOT;

/// What no type says of an operation.
#[derive(Debug, Clone)]
pub(crate) struct Op {
    /// Its name for programs; unique.
    pub id: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// More of it.
    pub about: &'static str,
    /// It looks at `If-Match`.
    pub on_version: bool,
    /// Its answer shows a secret once, and is kept nowhere.
    pub secret: bool,
    /// Most bytes of its body.
    pub body: usize,
    /// What it answers where its types don't say: the type of the content.
    pub content: &'static [&'static str],
    /// Statuses beyond those that its types tell.
    pub also: &'static [u16],
}

/// An operation.
pub(crate) fn op(id: &'static str, summary: &'static str) -> Op {
    Op {
        id,
        summary,
        about: "",
        on_version: false,
        secret: false,
        body: limits::BODY,
        content: &[],
        also: &[],
    }
}

impl Op {
    /// Says more.
    pub(crate) fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// It looks at `If-Match`.
    pub(crate) fn on_version(self) -> Self {
        Self { on_version: true, ..self }
    }

    /// Its answer shows a secret once.
    pub(crate) fn secret(self) -> Self {
        Self { secret: true, ..self }
    }

    /// It takes so many bytes.
    pub(crate) fn body(self, body: usize) -> Self {
        Self { body, ..self }
    }

    /// It answers with one of these types of content.
    pub(crate) fn content(self, content: &'static [&'static str]) -> Self {
        Self { content, ..self }
    }

    /// It may answer with these statuses, too.
    pub(crate) fn also(self, also: &'static [u16]) -> Self {
        Self { also, ..self }
    }
}

/// One operation as it is known to the router and to the document.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub method: Method,
    /// Below [`ROOT`].
    pub path: &'static str,
    pub op: Op,
    pub told: fn(&mut Sketch<'_>),
}

/// The operations, and the router that has them.
pub(crate) struct Operations {
    router: Router<AppState>,
    list: Vec<Operation>,
    forms: Forms,
    /// None: only the list is wanted.
    state: Option<AppState>,
}

macro_rules! methods {
    ($($name:ident $filter:ident;)*) => {$(
        /// Adds an operation of this method.
        pub(crate) fn $name<H, M, N>(self, path: &'static str, handler: H, op: Op) -> Self
        where
            H: Handler<M, AppState> + Told<N>,
            M: 'static,
        {
            self.add(Method::$filter, MethodFilter::$filter, path, handler, op)
        }
    )*};
}

impl Operations {
    /// None yet; without a state only for their list.
    pub(crate) fn of(state: Option<&AppState>) -> Self {
        Self { router: Router::new(), list: Vec::new(), forms: Forms::new(), state: state.cloned() }
    }

    methods! { get GET; post POST; put PUT; patch PATCH; delete DELETE; }

    fn add<H, M, N>(
        mut self,
        method: Method,
        filter: MethodFilter,
        path: &'static str,
        handler: H,
        op: Op,
    ) -> Self
    where
        H: Handler<M, AppState> + Told<N>,
        M: 'static,
    {
        let operation = Operation { method, path, op, told: H::tell };
        if let Some(state) = &self.state {
            let mut sketch = Sketch::new(&mut self.forms);
            H::tell(&mut sketch);
            let rules = around::Rules::of(&operation, &sketch, state);
            let route = on(filter, handler)
                // Not around the answer to other methods.
                .route_layer(from_fn_with_state(rules, around::pass))
                .layer(DefaultBodyLimit::max(operation.op.body));
            self.router = self.router.route(path, route);
        }
        self.list.push(operation);
        self
    }

    /// The router, below [`ROOT`].
    pub(crate) fn into_router(self) -> Router<AppState> {
        Router::new().nest(ROOT, self.router)
    }

    /// The list.
    pub(crate) fn into_list(self) -> Vec<Operation> {
        self.list
    }
}
