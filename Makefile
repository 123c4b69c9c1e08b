# The door: everything that a person or a CI machine starts. What it does is in scripts/ and xtask/ (docs/developing.md).
#
#   make run     set up, build, start Gantry: prints an address and two one-time sign-ins; Ctrl-C stops everything
#   make build   the program (target/debug/gantry) and what the browser loads (target/site)
#   make release one file with the page's scripts and styles inside, optimised: target/release/gantry
#   make testbed N SSH servers on this machine as nodes to try things on, beside a running Gantry: make testbed N=8
#   make test    everything that must pass, and what each part took
#   make chaos   everything that may break, broken at random, and a checker: make chaos SEED=1 MINUTES=10
#   make lint    format, clippy, licences, the book and its links, the container file
#   make docs    the book, from docs/, into target/book
#   make pictures the pictures of the README and the book, of a fresh demo
#   make bench   the benchmarks, optimised, in the browser too
#   make clean   what was built in this tree (the cache outside of it stays: see docs/developing.md)
#   make setup   only see to it that everything for `make test` is there
#
# Arguments of `gantry up` go into UP: make run UP='--listen 127.0.0.1:8080'

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

# Where things are built is known to all of this; and a database that Gantry is to use is nobody's business at build time.
unexport CARGO_TARGET_DIR
UP ?=
N ?= 8
TESTBED ?=
SEED ?=
MINUTES ?= 10

.PHONY: run build release testbed test chaos lint docs pictures bench clean setup

run:
	@scripts/setup run
	@env -u DATABASE_URL cargo build --locked
	@cargo xtask site
	@GANTRY_SITE="$(CURDIR)/target/site" exec target/debug/gantry up $(UP)

build:
	@scripts/setup build
	@env -u DATABASE_URL cargo build --locked
	@cargo xtask site

release:
	@scripts/setup build
	@cargo xtask site
	@env -u DATABASE_URL GANTRY_CARRIED_SITE="$(CURDIR)/target/site" \
	    cargo build --locked --release --package cli --features carried-site

testbed:
	@scripts/setup testbed
	@env -u DATABASE_URL cargo build --locked
	@exec target/debug/gantry testbed $(N) $(TESTBED)

# Rust must be there before the rest of the set-up, which is a timed part of the run, can be started by it.
test:
	@export GANTRY_MAKE_BEGAN=$$(date +%s); unset DATABASE_URL GANTRY_OWNER_URL; scripts/setup rust; cargo xtask test

chaos:
	@scripts/setup testbed
	@env -u DATABASE_URL -u GANTRY_OWNER_URL SEED="$(SEED)" MINUTES="$(MINUTES)" cargo test --locked --quiet --package cli --test faults -- \
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
	@cargo xtask site
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
