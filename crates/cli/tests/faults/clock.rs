//! Simulates a wrong clock with a preloaded library that shifts the time of day.
//!
//! Linux time namespaces don't include the time of day. The library needs a C compiler, which
//! Rust's linker setup always provides.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable with the clock's offset in seconds.
pub const OFFSET: &str = "GANTRY_TEST_CLOCK_OFFSET";

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    const char *text = getenv("GANTRY_TEST_CLOCK_OFFSET");
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += offset();
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"#;

/// The library's path. Compiles it into this folder if it is missing.
pub fn shim(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    if !library.exists() {
        std::fs::write(&source, SOURCE).unwrap();
        let made =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(
            made.unwrap().success(),
            "cc failed to compile the library that shifts a worker's clock"
        );
    }
    library
}
