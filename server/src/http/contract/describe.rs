//! Derives the description of an operation from its handler's signature.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum_extra::extract::CookieJar;
use schemars::generate::{Contract, SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::Value;

use crate::AppState;
use crate::http::contract::ROOT;
use crate::http::problems::{JsonBody, OptionalJson, PathParams, QueryParams, Refusal};
use crate::http::session::{Client, SignedIn};

/// Schema generators for the input and the output form of each type.
pub(crate) struct Forms {
    pub read: SchemaGenerator,
    pub written: SchemaGenerator,
}

impl Forms {
    pub(crate) fn new() -> Self {
        let of = |contract: Contract| {
            let settings = SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
                settings.contract = contract;
            });
            settings.into_generator()
        };
        Self { read: of(Contract::Deserialize), written: of(Contract::Serialize) }
    }
}

/// The required authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Caller {
    #[default]
    Anonymous,
    /// A signed-in user, or their token.
    Person,
    /// A node with its own token.
    Node,
}

/// The parts of an operation's description that its types define.
pub(crate) struct OperationTypes<'f> {
    pub forms: &'f mut Forms,
    pub caller: Caller,
    /// Schemas of the path parameters, in order.
    pub places: Vec<Value>,
    /// Schemas of the query parameters, and whether each is required.
    pub query: BTreeMap<String, (Value, bool)>,
    /// Schema of the body, and whether it is required.
    pub body: Option<(Value, bool)>,
    /// Status and schema of the successful response. `None` if it is not JSON.
    pub answer: Option<(StatusCode, Value)>,
    /// Whether the response has a `Location`.
    pub located: bool,
}

impl<'f> OperationTypes<'f> {
    pub(crate) fn new(forms: &'f mut Forms) -> Self {
        Self {
            forms,
            caller: Caller::default(),
            places: Vec::new(),
            query: BTreeMap::new(),
            body: None,
            answer: None,
            located: false,
        }
    }
}

/// An extractor that describes its input.
pub(crate) trait DescribeInput {
    /// Adds its input.
    fn describe(types: &mut OperationTypes<'_>);
}

/// A response that describes itself.
pub(crate) trait DescribeOutput {
    /// Adds the response.
    fn describe(types: &mut OperationTypes<'_>);
}

/// A handler whose signature describes its operation. `N` is the tuple of its arguments.
pub(crate) trait Describe<N> {
    /// Adds all arguments and the response.
    fn describe(types: &mut OperationTypes<'_>);
}

macro_rules! describe {
    ($($argument:ident)*) => {
        impl<F, R, A, $($argument),*> Describe<(R, A, $($argument,)*)> for F
        where
            F: Fn($($argument),*) -> R,
            R: Future<Output = A>,
            A: DescribeOutput,
            $($argument: DescribeInput,)*
        {
            fn describe(types: &mut OperationTypes<'_>) {
                $($argument::describe(types);)*
                A::describe(types);
            }
        }
    };
}

describe! {}
describe! { A1 }
describe! { A1 A2 }
describe! { A1 A2 A3 }
describe! { A1 A2 A3 A4 }
describe! { A1 A2 A3 A4 A5 }
describe! { A1 A2 A3 A4 A5 A6 }

impl DescribeInput for State<AppState> {
    fn describe(_: &mut OperationTypes<'_>) {}
}

impl DescribeInput for HeaderMap {
    fn describe(_: &mut OperationTypes<'_>) {}
}

impl DescribeInput for Client {
    fn describe(_: &mut OperationTypes<'_>) {}
}

impl DescribeInput for SignedIn {
    fn describe(types: &mut OperationTypes<'_>) {
        types.caller = Caller::Person;
    }
}

impl<T: JsonSchema> DescribeInput for PathParams<T> {
    fn describe(types: &mut OperationTypes<'_>) {
        let schema = Value::from(types.forms.read.subschema_for::<T>());
        // A tuple has one element for each path parameter.
        match schema.get("prefixItems").and_then(Value::as_array) {
            Some(parts) => types.places.extend(parts.iter().cloned()),
            None => types.places.push(schema),
        }
    }
}

impl<T: JsonSchema> DescribeInput for QueryParams<T> {
    fn describe(types: &mut OperationTypes<'_>) {
        let schema = T::json_schema(&mut types.forms.read);
        types.query.extend(words(&schema));
    }
}

/// The fields of a query. An optional parameter is omitted, never null.
fn words(schema: &Schema) -> BTreeMap<String, (Value, bool)> {
    let list = |key: &str| schema.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let required = list("required");
    let properties =
        schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let word = |(name, schema): (String, Value)| {
        let is_required = required.iter().any(|required| required == name.as_str());
        (name, (without_null(schema), is_required))
    };
    properties.into_iter().map(word).collect()
}

fn without_null(mut schema: Value) -> Value {
    let Some(object) = schema.as_object_mut() else { return schema };
    if object.get("default").is_some_and(Value::is_null) {
        object.remove("default");
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [kind] = types.as_slice() {
            let kind = kind.clone();
            object.insert("type".into(), kind);
        }
    }
    if let Some(Value::Array(kinds)) = object.get_mut("anyOf") {
        kinds.retain(|kind| kind.get("type").is_none_or(|kind| kind != "null"));
        if let [Value::Object(only)] = kinds.as_slice() {
            let only = only.clone();
            object.remove("anyOf");
            object.extend(only);
        }
    }
    schema
}

impl<T: JsonSchema> DescribeInput for JsonBody<T> {
    fn describe(types: &mut OperationTypes<'_>) {
        types.body = Some((types.forms.read.subschema_for::<T>().into(), true));
    }
}

impl<T: JsonSchema> DescribeInput for OptionalJson<T> {
    fn describe(types: &mut OperationTypes<'_>) {
        types.body = Some((types.forms.read.subschema_for::<T>().into(), false));
    }
}

impl<T: JsonSchema> DescribeOutput for Json<T> {
    fn describe(types: &mut OperationTypes<'_>) {
        let schema = types.forms.written.subschema_for::<T>();
        types.answer = Some((StatusCode::OK, schema.into()));
    }
}

/// A response with an explicit status is about a created resource.
impl<T: JsonSchema> DescribeOutput for (StatusCode, Json<T>) {
    fn describe(types: &mut OperationTypes<'_>) {
        let schema = types.forms.written.subschema_for::<T>();
        types.answer = Some((StatusCode::CREATED, schema.into()));
    }
}

/// A created resource with its path below [`ROOT`].
#[derive(Debug)]
pub(crate) struct Created<T>(pub String, pub T);

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        let mut answer = (StatusCode::CREATED, Json(self.1)).into_response();
        // Paths consist of ids, which are valid in a header.
        if let Ok(place) = HeaderValue::from_str(&format!("{ROOT}{}", self.0)) {
            answer.headers_mut().insert(header::LOCATION, place);
        }
        answer
    }
}

impl<T: JsonSchema> DescribeOutput for Created<T> {
    fn describe(types: &mut OperationTypes<'_>) {
        <(StatusCode, Json<T>)>::describe(types);
        types.located = true;
    }
}

/// The version of a resource. It is the prefix of the entity tag.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version(pub i64);

/// JSON of a versioned resource.
#[derive(Debug)]
pub(crate) struct Versioned<T>(pub i64, pub T);

impl<T: Serialize> IntoResponse for Versioned<T> {
    fn into_response(self) -> Response {
        let mut answer = Json(self.1).into_response();
        answer.extensions_mut().insert(Version(self.0));
        answer
    }
}

impl<T: JsonSchema> DescribeOutput for Versioned<T> {
    fn describe(types: &mut OperationTypes<'_>) {
        Json::<T>::describe(types);
    }
}

/// A response that is JSON or has another of the operation's content types, as the client requests.
#[derive(Debug)]
pub(crate) struct Negotiated<T>(Response, PhantomData<T>);

impl<T> From<Response> for Negotiated<T> {
    fn from(response: Response) -> Self {
        Self(response, PhantomData)
    }
}

impl<T> IntoResponse for Negotiated<T> {
    fn into_response(self) -> Response {
        self.0
    }
}

impl<T: JsonSchema> DescribeOutput for Negotiated<T> {
    fn describe(types: &mut OperationTypes<'_>) {
        Json::<T>::describe(types);
    }
}

/// With extra headers.
impl<const N: usize, T: DescribeOutput> DescribeOutput for ([(HeaderName, HeaderValue); N], T) {
    fn describe(types: &mut OperationTypes<'_>) {
        T::describe(types);
    }
}

/// With a renewed session cookie.
impl<T: DescribeOutput> DescribeOutput for (CookieJar, T) {
    fn describe(types: &mut OperationTypes<'_>) {
        T::describe(types);
    }
}

impl<T: DescribeOutput> DescribeOutput for Result<T, Refusal> {
    fn describe(types: &mut OperationTypes<'_>) {
        T::describe(types);
    }
}

/// [`Op`](crate::http::contract::Op) has the content types.
impl DescribeOutput for Response {
    fn describe(_: &mut OperationTypes<'_>) {}
}
