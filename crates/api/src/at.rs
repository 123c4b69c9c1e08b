//! Times.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A time in milliseconds since 1970-01-01T00:00:00Z. In JSON and in queries, it is a text in the
/// format of RFC 3339, in UTC: `2026-11-21T08:15:02.250Z`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At(pub i64);

/// A text that is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid time {0:?}. Use the format of RFC 3339, for example 2026-11-21T08:15:02Z")]
pub struct InvalidTime(String);

/// The range that RFC 3339 can express, in milliseconds.
const YEARS: (i64, i64) = (-62_167_219_200_000, 253_402_300_799_999);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.clamp(YEARS.0, YEARS.1);
        let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000)
            .map_err(|_| fmt::Error)?;
        let (year, month, day) = at.to_calendar_date();
        let (hour, minute, second, millis) = at.to_hms_milli();
        let month = u8::from(month);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

impl FromStr for At {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        let invalid = || InvalidTime(text.chars().take(60).collect());
        let at = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| invalid())?;
        let millis = at.unix_timestamp_nanos().div_euclid(1_000_000);
        i64::try_from(millis).map(Self).map_err(|_| invalid())
    }
}

impl Serialize for At {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for At {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = At;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time in the format of RFC 3339")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<At, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for At {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "At".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "format": "date-time",
            "description": "A time in the format of RFC 3339. Responses have UTC and milliseconds.",
            "examples": ["2026-11-21T08:15:02.250Z"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_format_of_rfc_3339() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (1_795_248_902_250, "2026-11-21T08:15:02.250Z"),
            (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
            (YEARS.1, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(serde_json::to_value(At(millis)).unwrap(), text);
            assert_eq!(serde_json::from_value::<At>(text.into()).unwrap(), At(millis));
        }
        assert_eq!(At(i64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
        assert_eq!(At(i64::MIN).to_string(), "0000-01-01T00:00:00.000Z");
        assert_eq!("2026-11-21T09:15:02+01:00".parse(), Ok(At(1_795_248_902_000)));
    }

    #[test]
    fn invalid_times_are_rejected() {
        for text in ["", "yesterday", "1795248902000", "2026-11-21", "2026-13-01T00:00:00Z"] {
            assert!(text.parse::<At>().unwrap_err().to_string().contains("RFC 3339"), "{text}");
        }
        assert!(serde_json::from_value::<At>(1_795_248_902_000_i64.into()).is_err());
    }
}
