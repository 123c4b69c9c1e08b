//! Reading barclamp files.
