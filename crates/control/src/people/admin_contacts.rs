//! Adds contacts to a permission refusal: it names some of the admins who can grant the permission.
//!
//! Use cases refuse before they read anything, so they only mark such a refusal
//! ([`Problem::needs_admin`]). The response layer adds the names, for every kind of request.

use api::Problem;

use crate::Control;

/// Maximum number of admins that one refusal names.
const NAMED: usize = 3;

impl Control {
    /// Adds the names of admins to a refusal for a missing permission. All other problems, and a
    /// refusal whose admins the database cannot return, stay unchanged.
    pub async fn add_admin_contacts(&self, problem: Problem) -> Problem {
        if !problem.needs_admin {
            return problem;
        }
        let Ok(mut connection) = self.connection().await else { return problem };
        let Ok(admins) = store::people::admins(&mut connection, NAMED as u64 + 1).await else {
            return problem;
        };
        Problem {
            detail: format!("{}. {}", problem.detail.trim_end_matches('.'), named(&admins)),
            needs_admin: false,
            ..problem
        }
    }
}

fn named(admins: &[String]) -> String {
    let shown = &admins[..admins.len().min(NAMED)];
    match (admins.len(), shown) {
        (_, []) => "There is no admin yet. Ask the owner of the database to add one with `gantry \
                    admin NAME`."
            .to_owned(),
        (more, _) if more > NAMED => format!("Admins are {} and others.", shown.join(", ")),
        (_, [one]) => format!("The admin is {one}."),
        (_, [first @ .., last]) => format!("Admins are {} and {last}.", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use crate::people::admin_contacts::*;

    #[test]
    fn refusal_names_up_to_three_admins() {
        let text = |count: usize| {
            named(
                &["ada", "bo", "cy", "di"][..count]
                    .iter()
                    .map(|n| (*n).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert!(text(0).starts_with("There is no admin yet"));
        assert_eq!(text(1), "The admin is ada.");
        assert_eq!(text(3), "Admins are ada, bo and cy.");
        assert_eq!(text(4), "Admins are ada, bo, cy and others.");
    }
}
