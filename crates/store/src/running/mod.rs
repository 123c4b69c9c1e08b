//! Claim, lease, finish, janitor: how steps move between commits.
