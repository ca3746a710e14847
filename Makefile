# Each target does its own set-up (.ci/setup): as root it installs what is missing, else it says what to install.

export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/sbin:/sbin
CARGO = cargo

.PHONY: help demo demo-serene test bench fuzz lint setup
help:
	@echo "make demo          build, and show between network namespaces what Symphony does (root)"
	@echo "make demo-serene   the same for training through the switch, with a straggler"
	@echo "make test          lint, unit, integration and end-to-end tests (root)"
	@echo "make bench         criterion benches, and forwarding rates against the Linux bridge (root)"
	@echo "make fuzz          every fuzz target for FUZZ_SECONDS=60 (cargo-fuzz, a nightly toolchain)"
	@echo "make lint          formatting, clippy, shellcheck"

demo: setup
	$(CARGO) build --release --locked
	@[ "$$(id -u)" = 0 ] || { echo "make demo: it is built, and needs root to run: sudo target/release/symphony demo $(DEMO_ARGS)" >&2; exit 1; }
	target/release/symphony demo $(DEMO_ARGS)

demo-serene:
	@.ci/setup data
	$(CARGO) build --release --locked
	@[ "$$(id -u)" = 0 ] || { echo "make demo-serene: it is built, and needs root to run: sudo target/release/symphony demo serene $(DEMO_ARGS)" >&2; exit 1; }
	target/release/symphony demo serene $(DEMO_ARGS)

# End-to-end cases go last, as they tell least about where something is wrong.
test: setup lint
	$(CARGO) test --locked --no-fail-fast
	netns-scripts/run-all.sh

bench: setup
	$(CARGO) bench --locked
	bench/forward.sh
	$(CARGO) run --release --locked --example aggregate

FUZZ_SECONDS = 60
fuzz: setup
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { echo "make fuzz: needs cargo-fuzz: cargo install cargo-fuzz; and a nightly toolchain: rustup toolchain install nightly" >&2; exit 1; }
	for target in $$($(CARGO) fuzz list --fuzz-dir tests/fuzz); do \
		$(CARGO) +nightly fuzz run --fuzz-dir tests/fuzz $$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 || exit 1; \
	done

# clippy and rustfmt are components that a toolchain need not have; shellcheck is a developer's tool.
lint: setup
	@if $(CARGO) fmt --version >/dev/null 2>&1; then $(CARGO) fmt --all --check; \
	else echo "lint: no rustfmt here (rustup component add rustfmt): not checked"; fi
	@if $(CARGO) clippy --version >/dev/null 2>&1; then $(CARGO) clippy --locked --all-targets -- -D warnings && \
		$(CARGO) clippy --locked -p symphony-fuzz --no-default-features -- -D warnings; \
	else echo "lint: no clippy here (rustup component add clippy): not checked"; fi
	@if command -v shellcheck >/dev/null; then shellcheck -x -P SCRIPTDIR .ci/setup .ci/run netns-scripts/*.sh netns-scripts/cases/*.sh bench/*.sh bench/cluster/*.sh; \
	else echo "lint: no shellcheck here (apt-get install shellcheck): not checked"; fi

setup:
	@.ci/setup
