//! What a run needs to start.
