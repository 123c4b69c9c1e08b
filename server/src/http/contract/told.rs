//! Derives the description of an operation from its handler's signature.

use std::collections::BTreeMap;

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
use crate::http::contract::{ROOT, Version};
use crate::http::problems::{Asked, Given, Perhaps, Place, Refusal};
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
pub(crate) enum Asker {
    #[default]
    Anonymous,
    /// A signed-in user, or their token.
    Person,
    /// A machine with its own token.
    Machine,
}

/// The parts of an operation's description that its types define.
pub(crate) struct Sketch<'f> {
    pub forms: &'f mut Forms,
    pub caller: Asker,
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

impl<'f> Sketch<'f> {
    pub(crate) fn new(forms: &'f mut Forms) -> Self {
        Self {
            forms,
            caller: Asker::default(),
            places: Vec::new(),
            query: BTreeMap::new(),
            body: None,
            answer: None,
            located: false,
        }
    }
}

/// An extractor that describes its input.
pub(crate) trait Asks {
    /// Adds its input.
    fn ask(sketch: &mut Sketch<'_>);
}

/// A response that describes itself.
pub(crate) trait OperationOutput {
    /// Adds the response.
    fn say(sketch: &mut Sketch<'_>);
}

/// A handler whose signature describes its operation. `N` is the tuple of its arguments.
pub(crate) trait Told<N> {
    /// Adds all arguments and the response.
    fn tell(sketch: &mut Sketch<'_>);
}

macro_rules! told {
    ($($argument:ident)*) => {
        impl<F, R, A, $($argument),*> Told<(R, A, $($argument,)*)> for F
        where
            F: Fn($($argument),*) -> R,
            R: Future<Output = A>,
            A: OperationOutput,
            $($argument: Asks,)*
        {
            fn tell(sketch: &mut Sketch<'_>) {
                $($argument::ask(sketch);)*
                A::say(sketch);
            }
        }
    };
}

told! {}
told! { A1 }
told! { A1 A2 }
told! { A1 A2 A3 }
told! { A1 A2 A3 A4 }
told! { A1 A2 A3 A4 A5 }
told! { A1 A2 A3 A4 A5 A6 }

impl Asks for State<AppState> {
    fn ask(_: &mut Sketch<'_>) {}
}

impl Asks for HeaderMap {
    fn ask(_: &mut Sketch<'_>) {}
}

impl Asks for Client {
    fn ask(_: &mut Sketch<'_>) {}
}

impl Asks for SignedIn {
    fn ask(sketch: &mut Sketch<'_>) {
        sketch.caller = Asker::Person;
    }
}

impl<T: JsonSchema> Asks for Place<T> {
    fn ask(sketch: &mut Sketch<'_>) {
        let schema = Value::from(sketch.forms.read.subschema_for::<T>());
        // A tuple has one element for each path parameter.
        match schema.get("prefixItems").and_then(Value::as_array) {
            Some(parts) => sketch.places.extend(parts.iter().cloned()),
            None => sketch.places.push(schema),
        }
    }
}

impl<T: JsonSchema> Asks for Asked<T> {
    fn ask(sketch: &mut Sketch<'_>) {
        let schema = T::json_schema(&mut sketch.forms.read);
        sketch.query.extend(words(&schema));
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

impl<T: JsonSchema> Asks for Given<T> {
    fn ask(sketch: &mut Sketch<'_>) {
        sketch.body = Some((sketch.forms.read.subschema_for::<T>().into(), true));
    }
}

impl<T: JsonSchema> Asks for Perhaps<T> {
    fn ask(sketch: &mut Sketch<'_>) {
        sketch.body = Some((sketch.forms.read.subschema_for::<T>().into(), false));
    }
}

impl<T: JsonSchema> OperationOutput for Json<T> {
    fn say(sketch: &mut Sketch<'_>) {
        let schema = sketch.forms.written.subschema_for::<T>();
        sketch.answer = Some((StatusCode::OK, schema.into()));
    }
}

/// A response with an explicit status is about a created resource.
impl<T: JsonSchema> OperationOutput for (StatusCode, Json<T>) {
    fn say(sketch: &mut Sketch<'_>) {
        let schema = sketch.forms.written.subschema_for::<T>();
        sketch.answer = Some((StatusCode::CREATED, schema.into()));
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

impl<T: JsonSchema> OperationOutput for Created<T> {
    fn say(sketch: &mut Sketch<'_>) {
        <(StatusCode, Json<T>)>::say(sketch);
        sketch.located = true;
    }
}

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

impl<T: JsonSchema> OperationOutput for Versioned<T> {
    fn say(sketch: &mut Sketch<'_>) {
        Json::<T>::say(sketch);
    }
}

/// With extra headers.
impl<const N: usize, T: OperationOutput> OperationOutput for ([(HeaderName, HeaderValue); N], T) {
    fn say(sketch: &mut Sketch<'_>) {
        T::say(sketch);
    }
}

/// With a renewed session cookie.
impl<T: OperationOutput> OperationOutput for (CookieJar, T) {
    fn say(sketch: &mut Sketch<'_>) {
        T::say(sketch);
    }
}

impl<T: OperationOutput> OperationOutput for Result<T, Refusal> {
    fn say(sketch: &mut Sketch<'_>) {
        T::say(sketch);
    }
}

/// [`Op`](crate::http::contract::Op) has the content types.
impl OperationOutput for Response {
    fn say(_: &mut Sketch<'_>) {}
}
