//! People: accounts, permissions, sign-in links, sessions, tokens and second factors.
//!
//! * This module handles only the SHA-256 of a token, so the database's content does not allow
//!   anyone to sign in.
//! * All times are the database's (`now()`), because several servers check the same session and
//!   their clocks differ.
//! * Each request checks the rows of its session and its person, without a cache. So disabling a
//!   person takes effect on the next request. The same applies to permissions, everywhere
//!   (`person.permissions`) and in parts of the tree (`scoped_grant`, which includes descendants).

pub mod access;
pub mod accounts;
mod admins;
pub mod api_tokens;
mod first_steps;
pub mod passkeys;
mod person;
pub mod second_factor;
mod sessions;
mod sign_in_links;

pub use admins::admins;
pub use first_steps::{DEMO_CHANGE, FirstStepsRow, first_steps};
pub use person::{
    HUMAN, PersonRow, SERVICE, TokenHash, insert_person, lock_person, person, person_by_name,
    set_disabled,
};
pub use sessions::{
    MAX_SESSIONS, Origin, SessionListRow, SessionRow, SessionTimeouts, act_as,
    begin_session_by_link, begin_session_by_password, delete_expired_sessions, end_all_sessions,
    end_session, end_session_by_id, insert_session, record_visit, session, sessions,
};
pub use sign_in_links::{
    LinkError, REQUIRES_PASSWORD, insert_sign_in_link, link_error, revoke_sign_in_links,
};
