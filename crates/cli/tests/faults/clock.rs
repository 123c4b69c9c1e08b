//! A clock that is off: a library, loaded before all others, through which a program asks for the time of day.
//!
//! Linux has no time namespace for the time of day. The compiler is there wherever Rust links, so nothing has to be installed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable with the seconds by which the clock is off.
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

/// The library, made in that folder when it isn't there.
pub fn shim(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    if !library.exists() {
        std::fs::write(&source, SOURCE).unwrap();
        let made =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(made.unwrap().success(), "cc makes the library by which a worker's clock is off");
    }
    library
}
