# Entry point for developers and CI. scripts/ and xtask/ do the work (docs/developing.md).
#
#     make run      set up, build and start Gantry; prints a URL and two one-time sign-in links;
#                   Ctrl-C stops everything
#     make build    all programs (target/debug) and the browser files (target/site), unoptimized
#     make release  one optimized file with the embedded site: target/release/gantry
#     make testbed  N local SSH servers as test nodes of a running Gantry: make testbed N=8
#     make test     all checks and tests, with the time of each part
#     make chaos    random faults, then a checker: make chaos SEED=1 MINUTES=10
#     make lint     format, clippy, licenses, the book and its links, the container file
#     make docs     the book, from docs/ into target/book
#     make pictures the screenshots of the book, from a new demo
#     make bench    the optimized benchmarks, also in the browser
#     make clean    delete build results in this tree, but not the cache (docs/developing.md)
#     make setup    only install the requirements of `make test`
#
# `UP` has arguments for `gantry up`: make run UP='--listen 127.0.0.1:8080'

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

# All parts rely on the default build folder. Recipes unset the database variables, because a build
# must not depend on a database.
unexport CARGO_TARGET_DIR
UP ?=
N ?= 8
TESTBED ?=
SEED ?=
MINUTES ?= 10
JOBS := $(shell nproc)

.PHONY: run program module build release testbed test chaos lint docs pictures bench clean setup

# Both builds run at once, because each leaves a processor idle at its end. They share make's job
# slots, so together they run one compiler for each processor.
run:
	@scripts/setup run
	@echo "gantry: building the program and the browser files. The first build takes about 8 minutes on two cores."
	+@$(MAKE) --no-print-directory --jobs=$(JOBS) program module
	@cargo xtask site --dev
	@echo 'gantry: to use the command line, run in another terminal: export PATH="$(CURDIR)/target/debug:$$PATH"'
	@GANTRY_SITE="$(CURDIR)/target/site" exec target/debug/gantry up $(UP)

program:
	+@env -u DATABASE_URL cargo build --locked --bin gantry --bin xtask --bin browser-module
	@echo "gantry: the program is built."

module:
	+@CARGO_TERM_QUIET=true scripts/browser-wasm wasm-dev >/dev/null

build:
	@scripts/setup build
	@env -u DATABASE_URL cargo build --locked
	@cargo xtask site --dev

release:
	@scripts/setup build
	@cargo xtask site
	@env -u DATABASE_URL GANTRY_EMBEDDED_SITE="$(CURDIR)/target/site" \
	    cargo build --locked --release --package cli --features embedded-site

testbed:
	@scripts/setup testbed
	@env -u DATABASE_URL cargo build --locked
	@exec target/debug/gantry testbed $(N) $(TESTBED)

# The rest of the setup is a timed part of the run. It needs Rust first.
test:
	@export GANTRY_MAKE_BEGAN=$$(date +%s); unset DATABASE_URL GANTRY_OWNER_URL; scripts/setup rust; cargo xtask test

chaos:
	@scripts/setup testbed
	@env -u DATABASE_URL -u GANTRY_OWNER_URL SEED="$(SEED)" MINUTES="$(MINUTES)" cargo test --locked --quiet --test faults -- \
	    --exact chaos::chaos_of_a_seed --ignored --nocapture

lint:
	@scripts/setup test
	@cargo xtask lint

docs:
	@scripts/setup rust
	@scripts/mdbook build docs

pictures:
	@scripts/setup test
	@env -u DATABASE_URL cargo build --locked
	@cargo xtask site --dev
	@node end2end/pictures.mjs

bench:
	@scripts/setup test
	@env -u DATABASE_URL -u GANTRY_OWNER_URL cargo bench --locked
	@env -u DATABASE_URL cargo build --locked --release --package cli
	@cargo xtask site
	@GANTRY_BIN="$(CURDIR)/target/release/gantry" node end2end/plan-speed.mjs
	@GANTRY_BIN="$(CURDIR)/target/release/gantry" node end2end/graph-size.mjs
	@GANTRY_BIN="$(CURDIR)/target/release/gantry" node end2end/page-speed.mjs

clean:
	@rm -rf target end2end/node_modules end2end/results

setup:
	@scripts/setup test
