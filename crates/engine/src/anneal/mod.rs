//! anneal
