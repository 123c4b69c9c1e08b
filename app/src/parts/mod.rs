//! What pages are made of.

pub mod act;
mod area;
mod ask;
pub mod badge;
mod deployment_field;
pub mod dialog;
pub mod fault;
pub mod feed;
pub mod foresight;
mod form;
pub mod heed;
pub mod icon;
pub mod json;
pub mod list;
pub mod list_page;
pub mod load;
pub mod notice;
pub mod provenance;
pub mod pulse;
mod refused;
pub mod rows;
pub mod same;

pub use act::act;
pub use area::in_area;
pub use ask::Ask;
pub use badge::{Counts, RunPill, StatePill, mark};
pub use deployment_field::DeploymentField;
pub use dialog::{Dialog, DialogHandle};
pub use fault::Fault;
pub use feed::Feed;
pub use icon::{Icon, icon};
pub use load::{load, load_one, load_or};
pub use notice::{Empty, ProblemNotice, problem_of_one, problem_page, problem_page_with};
pub use refused::{Refused, TYPED};
pub use rows::rows;
pub use same::{Same, SameList, Typed};
