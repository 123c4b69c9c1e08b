//! The contract of `/api/v1`: one list of operations generates the router and the OpenAPI document.
//!
//! A separate description becomes outdated. So an operation is added together with its handler
//! ([`Operations`]). Its types come from the handler's signature ([`Describe`]): path, query and
//! body from extractors, responses from the return type, both by their serde attributes. [`Op`] has
//! the rest: id, summary, preconditions.
//!
//! [`rules`] adds the rules for all operations: it rejects unknown query parameters, adds entity
//! tags, checks preconditions and handles idempotency keys.
//!
//! Invariants:
//! * Every route below `/api/v1` is documented, and everything documented is routed. A test
//!   compares both.
//! * The committed document is the one that is served. A test compares both; `GANTRY_WRITE=1`
//!   updates the file.

mod describe;
mod document;
mod normal_form;
mod rules;

pub(crate) use describe::{
    Caller, Created, Describe, DescribeInput, Negotiated, OperationTypes, Versioned,
};
pub(crate) use document::document;
pub(crate) use rules::{add_encoding_to_etag, version};

use describe::Forms;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, on};

use crate::AppState;
use crate::http::limits;

pub(crate) use api::names::ROOT;

/// The parts of an operation's description that its types don't have.
#[derive(Debug, Clone)]
pub(crate) struct Op {
    /// The unique operation id, for generated clients.
    pub id: &'static str,
    /// One-line summary.
    pub summary: &'static str,
    /// Further description.
    pub about: &'static str,
    /// Whether it supports `If-Match`.
    pub on_version: bool,
    /// Whether its response shows a secret once and must not be cached.
    pub secret: bool,
    /// Maximum body size in bytes.
    pub body: usize,
    /// Content types of the response, if its type does not define them.
    pub content: &'static [&'static str],
    /// Statuses in addition to those of its types.
    pub also: &'static [u16],
}

pub(crate) fn op(id: &'static str, summary: &'static str) -> Op {
    Op {
        id,
        summary,
        about: "",
        on_version: false,
        secret: false,
        body: limits::MAX_BODY_BYTES,
        content: &[],
        also: &[],
    }
}

impl Op {
    pub(crate) fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    pub(crate) fn on_version(self) -> Self {
        Self { on_version: true, ..self }
    }

    pub(crate) fn secret(self) -> Self {
        Self { secret: true, ..self }
    }

    /// Sets the maximum body size in bytes.
    pub(crate) fn body(self, body: usize) -> Self {
        Self { body, ..self }
    }

    /// Sets the content types of the response.
    pub(crate) fn content(self, content: &'static [&'static str]) -> Self {
        Self { content, ..self }
    }

    /// Adds statuses.
    pub(crate) fn also(self, also: &'static [u16]) -> Self {
        Self { also, ..self }
    }
}

/// One operation of the router and the document.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub method: Method,
    /// Relative to [`ROOT`].
    pub path: &'static str,
    pub op: Op,
    pub describe: fn(&mut OperationTypes<'_>),
}

/// The operations and their router.
pub(crate) struct Operations {
    router: Router<AppState>,
    list: Vec<Operation>,
    forms: Forms,
    /// `None` if only the list is needed.
    state: Option<AppState>,
}

macro_rules! methods {
    ($($name:ident $filter:ident;)*) => {$(
        /// Adds an operation with this method.
        pub(crate) fn $name<H, M, N>(self, path: &'static str, handler: H, op: Op) -> Self
        where
            H: Handler<M, AppState> + Describe<N>,
            M: 'static,
        {
            self.add(Method::$filter, MethodFilter::$filter, path, handler, op)
        }
    )*};
}

impl Operations {
    /// An empty list. Without a state, it can't become a router.
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
        H: Handler<M, AppState> + Describe<N>,
        M: 'static,
    {
        let operation = Operation { method, path, op, describe: H::describe };
        if let Some(state) = &self.state {
            let mut types = OperationTypes::new(&mut self.forms);
            H::describe(&mut types);
            let rules = rules::Rules::of(&operation, &types, state);
            let route = on(filter, handler)
                // A route layer, so that it does not apply to 405 responses.
                .route_layer(from_fn_with_state(rules, rules::pass))
                .layer(DefaultBodyLimit::max(operation.op.body));
            self.router = self.router.route(path, route);
        }
        self.list.push(operation);
        self
    }

    /// The router, relative to [`ROOT`].
    pub(crate) fn into_router(self) -> Router<AppState> {
        Router::new().nest(ROOT, self.router)
    }

    pub(crate) fn into_list(self) -> Vec<Operation> {
        self.list
    }
}
