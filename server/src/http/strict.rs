//! Strict JSON: rejects an array where an object is expected.
//!
//! Serde's derived types accept an array for an object, with elements in the order of the fields.
//! No client intends that, and a new field would change its meaning. [`Strict`] wraps a
//! deserializer and everything nested in it. It rejects an array if the type has named fields.
//!
//! Serde buffers the content of internally tagged types (edits) and deserializes it without this
//! wrapper. So for those, only the outer level is checked.

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, Expected, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};

/// Wraps a deserializer, or a seed.
pub(crate) struct Strict<T>(pub T);

/// A visitor. `object`: its type has named fields.
struct Reading<V> {
    visitor: V,
    object: bool,
}

fn any<V>(visitor: V) -> Reading<V> {
    Reading { visitor, object: false }
}

fn object<V>(visitor: V) -> Reading<V> {
    Reading { visitor, object: true }
}

/// Whether a type is internally tagged. A deserializer can tell this only from the visitor's
/// message.
fn is_tagged<'de, V: Visitor<'de>>(visitor: &V) -> bool {
    let expected: &dyn Expected = visitor;
    expected.to_string().starts_with("internally tagged enum")
}

macro_rules! deliver {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(any(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    deliver! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char deserialize_str
        deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option deserialize_unit deserialize_seq deserialize_map
        deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let tagged = is_tagged(&visitor);
        self.0.deserialize_any(Reading { visitor, object: tagged })
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, any(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, any(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple(length, any(visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple_struct(name, length, any(visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, object(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, any(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident: $kind:ty;)*) => {$(
        fn $method<E: Error>(self, value: $kind) -> Result<V::Value, E> {
            self.visitor.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Reading<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.visitor.expecting(f)
    }

    visit! {
        visit_bool: bool; visit_i8: i8; visit_i16: i16; visit_i32: i32; visit_i64: i64;
        visit_i128: i128; visit_u8: u8; visit_u16: u16;
        visit_u32: u32; visit_u64: u64; visit_u128: u128; visit_f32: f32; visit_f64: f64;
        visit_char: char; visit_str: &str;
        visit_borrowed_str: &'de str; visit_string: String; visit_bytes: &[u8];
        visit_borrowed_bytes: &'de [u8]; visit_byte_buf: Vec<u8>;
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Strict(from))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(Strict(from))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, from: A) -> Result<V::Value, A::Error> {
        match self.object {
            true => Err(A::Error::invalid_type(Unexpected::Seq, &"an object")),
            false => self.visitor.visit_seq(Strict(from)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, from: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Strict(from))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, from: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(Strict(from))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(from))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(Strict(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Strict<A> {
    type Error = A::Error;
    type Variant = Strict<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        self.0.variant_seed(Strict(seed)).map(|(value, variant)| (value, Strict(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Strict(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(length, any(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, object(visitor))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::{Value, json};

    use crate::http::strict::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        list: Vec<Inner>,
        #[serde(default)]
        maybe: Option<Inner>,
        #[serde(default)]
        named: BTreeMap<String, Inner>,
        #[serde(default)]
        pair: Option<(u8, u8)>,
        #[serde(default)]
        tagged: Option<Tagged>,
        #[serde(default)]
        one_of: Option<OneOf>,
        #[serde(default)]
        any: Value,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Inner {
        a: u8,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum Tagged {
        Bind { a: u8 },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum OneOf {
        Plain,
        Named { a: u8 },
        Wrapped(Inner),
    }

    fn read(value: &Value) -> Result<Outer, serde_json::Error> {
        let text = value.to_string();
        Outer::deserialize(Strict(&mut serde_json::Deserializer::from_str(&text)))
    }

    #[test]
    fn valid_json_is_unaffected() {
        for good in [
            json!({"list": []}),
            json!(
                {"list": [{"a": 1}], "maybe": {"a": 2}, "named": {"x": {"a": 3}}, "pair": [4, 5]}
            ),
            json!(
                {
                    "list": [], "maybe": null, "tagged": {"kind": "bind", "a": 1}, "any": [
                        [1],
                        {"x": [2.5, null, "t", true]}
                    ]
                }
            ),
            json!({"list": [], "one_of": "plain"}),
            json!({"list": [], "one_of": {"named": {"a": 1}}}),
            json!({"list": [], "one_of": {"wrapped": {"a": 1}}}),
        ] {
            assert_eq!(
                read(&good).unwrap(),
                serde_json::from_value(good.clone()).unwrap(),
                "{good}"
            );
        }
    }

    #[test]
    fn array_for_object_is_rejected_at_any_depth() {
        for bad in [
            json!([[]]),
            json!({"list": [[1]]}),
            json!({"list": [], "maybe": [1]}),
            json!({"list": [], "named": {"x": [1]}}),
            json!({"list": [], "tagged": ["bind", 1]}),
            json!({"list": [], "one_of": {"named": [1]}}),
            json!({"list": [], "one_of": {"wrapped": [1]}}),
        ] {
            assert!(
                serde_json::from_str::<Outer>(&bad.to_string()).is_ok(),
                "serde alone accepts this: {bad}"
            );
            let error = read(&bad).unwrap_err().to_string();
            assert!(error.contains("invalid type: sequence, expected an object"), "{bad}: {error}");
        }
    }
}
