# Every command of the project. `make` alone lists them; CONTRIBUTING.md says when to use which.

CARGO   ?= cargo
SECONDS ?= 60
PREFIX  ?= $(HOME)/.local

RUN     = $(CARGO) run --release --quiet --locked --features full --
# Every command, and the socket APIs and encryption of the protocol crates.
FEATURES = --features trunkline/full,trunkline-arq/tokio,trunkline-arq/aead,trunkline-llc/sockets,trunkline-bundle/sockets
# Long tests, which only `make soak` runs, must compile.
SOAK     = ,trunkline/soak,trunkline-agent/soak,trunkline-arq/soak,trunkline-bundle/soak,trunkline-congestion/soak,trunkline-lab/soak,trunkline-live/soak,trunkline-llc/soak,trunkline-models/soak,trunkline-sim/soak,trunkline-tcp/soak,trunkline-traffic/soak
TARGET  = $(or $(CARGO_TARGET_DIR),target)
# Most tests wait for other programs or for timers: run three per processor.
THREADS = RUST_TEST_THREADS=$$((3 * $$(nproc)))
# Root has every privilege that tests need, so no test may be skipped.
MUST    = $(if $(filter 0,$(shell id -u)),TRUNKLINE_MUST=1)
VERSION = $(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)

.DEFAULT_GOAL := help
.PHONY: help test check targets deps fmt lint doc docs bench fuzz soak install clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1|/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target what; do printf '  make %-8s %s\n' "$$target" "$$what"; done
	@echo
	@echo "  fuzz and soak take SECONDS=$(SECONDS); install takes PREFIX=$(PREFIX)."

# Most tests wait for timers and programs, so lints and documentation use what they leave of the processors.
test: ## what a change must pass: packages, format, lints, documentation, all tests
	@bash .ci/packages
	$(CARGO) fmt --all --check
	$(CARGO) test --workspace --locked $(FEATURES) --no-run
	@bash .ci/beside "make --no-print-directory lint doc && bash .ci/book --if-installed" \
		"$(THREADS) $(MUST) $(CARGO) test --workspace --locked $(FEATURES)"

check: ## a quick look at a change: format, compile everything, rules of the source tree
	$(CARGO) fmt --all --check
	$(CARGO) check --workspace --all-targets --locked $(FEATURES)
	$(CARGO) test --quiet --locked -p trunkline $(FEATURES) --test conventions

targets: ## compile agents for FreeBSD and macOS, without linking; needs their Rust targets and Zig
	@bash .ci/targets

deps: ## install what the tests need, or say what is missing
	@bash .ci/packages

fmt: ## format all sources
	$(CARGO) fmt --all

lint: ## formatting and clippy; any warning fails
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked $(FEATURES)$(SOAK) -- -D warnings
	$(CARGO) check --locked -p trunkline

doc: ## the API documentation of every crate; any warning fails
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked $(FEATURES)

docs: ## the book, in target/book; installs mdbook below target if it is missing
	bash .ci/book

bench: ## figures beside other programs, as ratios (docs/benchmarks.md); wants an idle machine
	$(CARGO) bench -p trunkline --features full --bench figures --locked
	$(CARGO) bench -p trunkline-bundle --features sockets --bench receive --locked
	$(CARGO) bench -p trunkline-bundle --features sockets --bench through --locked
	$(CARGO) bench -p trunkline-bundle --features sockets --bench delay --locked
	$(CARGO) bench -p trunkline --features full --bench monitor --locked
	$(CARGO) bench -p trunkline-counters --bench archive --features postgres --locked
	$(CARGO) bench -p trunkline-collector --bench poll --locked
	$(CARGO) bench -p trunkline-sim --bench cost --locked
	$(CARGO) bench -p trunkline-arq --bench engine --features aead --locked
	$(CARGO) bench -p trunkline-arq --bench sockets --features sockets --locked
	$(CARGO) bench -p trunkline-arq --bench line --features sockets --locked
	$(CARGO) bench -p trunkline-llc --bench ethernet --features sockets --locked

# cargo-fuzz asks for nightly flags; RUSTC_BOOTSTRAP grants them to any compiler.
fuzz: ## throw texts at the language, segments at TCP, frames at arq, llc and the bundle converter, chunks at the archive, datagrams at consent, packets at STAMP, for SECONDS each; needs a C++ compiler and cargo-fuzz
	@command -v cargo-fuzz >/dev/null || { echo "cargo-fuzz is missing: cargo install --locked cargo-fuzz" >&2; exit 1; }
	@mkdir -p fuzz/corpus/experiment
	CARGO_PROFILE_RELEASE_STRIP=false RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run experiment fuzz/corpus/experiment \
		experiments crates/experiment/tests/good crates/experiment/tests/bad -- \
		-dict=fuzz/experiment.dict -max_total_time=$(SECONDS) -print_final_stats=1
	for target in tcp arq_frames arq_operations llc_pdu llc_station bundle_classic bundle_format2 bundle_dis bundle_machines \
		series_chunk consent stamp; do \
		case $$target in \
			bundle_classic|bundle_dis|series_chunk) longest=16384;; \
			tcp|arq_frames|llc_pdu) longest=4096;; \
			*) longest=2048;; \
		esac; \
		mkdir -p fuzz/corpus/$$target && \
		CARGO_PROFILE_RELEASE_STRIP=false RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $$target fuzz/corpus/$$target fuzz/seeds/$$target -- \
			-max_len=$$longest -max_total_time=$(SECONDS) -print_final_stats=1 || exit 1; \
	done

# Every round has a seed of its own; the one that fails is the last one printed.
soak: ## what takes long: theory and real peers, then experiments for SECONDS, seed after seed; the first that fails ends it
	$(CARGO) test --release --locked -p trunkline-traffic --features soak --test soak_hurst --test models
	$(CARGO) test --release --locked -p trunkline-models -p trunkline-tcp -p trunkline-arq -p trunkline-llc -p trunkline-live -p trunkline-bundle -p trunkline-sim \
		--features trunkline-sim/soak,trunkline-models/soak,trunkline-tcp/soak,trunkline-arq/soak,trunkline-arq/aead,trunkline-llc/soak,trunkline-live/soak,trunkline-bundle/soak \
		--tests soak_
	MOMENTS=100 $(CARGO) test --release --locked -p trunkline-counters archive_crash::
	SOAK_SECONDS=$(SECONDS) $(CARGO) test --release --locked -p trunkline-llc --features sockets,soak \
		--test ring_stations -- --nocapture
	$(CARGO) test --release --locked -p trunkline --features full,soak --test main -- --nocapture converter_replay converter_router monitor_poll agents::
	$(CARGO) test --release --locked -p trunkline-agent --features soak --test hostile -- --nocapture
	$(CARGO) test --release --locked -p trunkline-lab --features soak --test main killed_labs
	$(CARGO) build --release --locked -p trunkline --features full
	@set -eu; until=$$(( $$(date +%s) + $(SECONDS) )); seed=0; \
	while [ "$$(date +%s)" -lt "$$until" ]; do seed=$$(( seed + 1 )); \
		for name in quickstart netspec3; do \
			echo "$$name, seed $$seed"; \
			$(RUN) run experiments/$$name.ns --seed $$seed --set duration=2s --json \
				--out "$(TARGET)/soak/$$name" --archive "$(TARGET)/soak/archive.sqlite" >/dev/null; \
		done; \
	done

# A library for C: its package, and its name. Programs that were linked with a library of its soname run with any that has it.
# The one in target/release must not have one, to be found by its path: so the installed one is built aside.
define library
	$(CARGO) rustc --release --locked -p $(1) --lib --crate-type cdylib,staticlib \
		--target-dir "$(TARGET)/install" -- -C link-arg=-Wl,-soname,lib$(2).so.0
	install -m 644 bindings/c/$(2).h "$(PREFIX)/include/$(2).h"
	install -m 644 "$(TARGET)/install/release/lib$(2).a" "$(PREFIX)/lib/lib$(2).a"
	install -m 755 "$(TARGET)/install/release/lib$(2).so" "$(PREFIX)/lib/lib$(2).so.$(VERSION)"
	ln -sf lib$(2).so.$(VERSION) "$(PREFIX)/lib/lib$(2).so.0"
	ln -sf lib$(2).so.0 "$(PREFIX)/lib/lib$(2).so"
	sed -e 's|@PREFIX@|$(abspath $(PREFIX))|' -e 's|@VERSION@|$(VERSION)|' bindings/c/$(2).pc.in \
		>"$(PREFIX)/lib/pkgconfig/$(2).pc"
endef

install: ## the command, its man pages and shell completions, and LLC and the bundle converter for C, below PREFIX
	$(CARGO) install --locked --features full --path crates/trunkline --root "$(PREFIX)"
	mkdir -p "$(PREFIX)/share/bash-completion/completions" "$(PREFIX)/share/zsh/site-functions" \
		"$(PREFIX)/share/fish/vendor_completions.d"
	"$(PREFIX)/bin/trunkline" completions bash >"$(PREFIX)/share/bash-completion/completions/trunkline"
	"$(PREFIX)/bin/trunkline" completions zsh >"$(PREFIX)/share/zsh/site-functions/_trunkline"
	"$(PREFIX)/bin/trunkline" completions fish >"$(PREFIX)/share/fish/vendor_completions.d/trunkline.fish"
	"$(PREFIX)/bin/trunkline" man "$(PREFIX)/share/man/man1"
	install -d "$(PREFIX)/include" "$(PREFIX)/lib/pkgconfig"
	$(call library,trunkline-capi-llc,llcio)
	$(call library,trunkline-capi-bundle,bundle)

clean: ## remove what was built and what was fuzzed
	$(CARGO) clean
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts fuzz/coverage
