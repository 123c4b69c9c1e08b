//! Times and durations as people write them.

use std::time::Duration;

use api::At;

/// Parses a duration: `90s`, `30m`, `2h`, `7d`. A plain number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("invalid duration {text:?}, use for example 90s, 30m, 2h or 7d");
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit).map(Duration::from_secs).ok_or_else(wrong)
}

/// Unix time of the year 1, the earliest time that servers accept.
const YEAR_1: i64 = -62_135_596_800;

/// Parses a date and time, or an age, to a time.
pub(crate) fn parse_time(text: &str) -> Result<At, String> {
    let wrong = || {
        format!("invalid time {text:?}, use for example 2026-09-22T14:00:00Z, or an age such as 2h")
    };
    let now = time::OffsetDateTime::now_utc();
    let at = match duration(text) {
        Ok(age) if !text.is_empty() => {
            now.checked_sub(age.try_into().map_err(|_| wrong())?).ok_or_else(wrong)?
        }
        _ => time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339)
            .map_err(|_| wrong())?,
    };
    if at.unix_timestamp() < YEAR_1 {
        return Err(format!("the time {text:?} is before the year 1"));
    }
    i64::try_from(at.unix_timestamp_nanos() / 1_000_000).map(At).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let seconds = |text: &str| duration(text).map(|time| time.as_secs());
        assert_eq!(
            (seconds("90"), seconds("90s"), seconds("2h"), seconds("7d")),
            (Ok(90), Ok(90), Ok(7_200), Ok(604_800))
        );
        for wrong in ["", "h", "2 h", "-1s", "2w", "99999999999999999999s", "18446744073709551615d"]
        {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_dates_or_ages() {
        assert_eq!(parse_time("1970-01-01T00:00:01Z"), Ok(At(1_000)));
        assert_eq!(parse_time("1970-01-01T01:00:00+01:00"), Ok(At(0)));
        assert!(parse_time("1h").unwrap() < parse_time("1s").unwrap());
        assert!(parse_time("99999999h").unwrap_err().contains("before the year 1"));
        assert!(
            parse_time("yesterday").is_err()
                && parse_time("").is_err()
                && parse_time("999999999999999d").is_err()
        );
    }
}
