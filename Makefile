# Everything a developer runs. Each target creates .venv when it is missing, and renews it when
# pyproject.toml changed; needed are only GNU make, a POSIX shell and Python 3.11 or newer.

BIN := .venv/bin
READY := .venv/.ready
SEEDS ?= 500
TURN ?= auto
MINUTES ?= 60
NOT_UNIT := process or spark or sim or mutant

.DEFAULT_GOAL := help
.PHONY: help setup check test lint types format sim agreement mutants chaos bench bench-peers soak \
	demo test-unit test-sim test-mutants test-process test-spark

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1 \2/p' $(MAKEFILE_LIST) | \
		while read -r target text; do printf '  make %-14s %s\n' "$$target" "$$text"; done

setup: $(READY) ## create .venv with antiphon and the developers' tools in it

check: lint types test-unit ## what to run before each commit: lint, types, unit tests

# The stages of `make test`, in this order; every one is a target of its own.
STAGES := lint types test-unit test-sim test-mutants test-process test-spark

test: $(READY) ## all stages, one after the other; goes on after a failure, and fails at the end
	@failed=; \
	for stage in $(STAGES); do \
		echo "== $$stage"; \
		began=$$(date +%s); \
		if $(MAKE) --no-print-directory $$stage; then outcome=passed; \
		else outcome=FAILED; failed="$$failed $$stage"; fi; \
		echo "== $$stage $$outcome in $$(( $$(date +%s) - began )) s"; \
	done; \
	test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

lint: $(READY) ## style: ruff check, ruff format --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## mypy --strict over the package
	$(BIN)/mypy

test-unit: $(READY) ## unit tests and scenarios
	$(BIN)/pytest -q -n 3 -m "not ($(NOT_UNIT))"

# Of the tests in these stages that are marked `in_turn`, a third is run, with each commit the next
# one (tests/rotation.py). TURN=0, 1 or 2 names one, TURN=all leaves out nothing.
test-sim: $(READY) ## simulations with fixed seeds
	$(BIN)/pytest -q -n 2 --dist loadfile -m sim --turn $(TURN)

test-mutants: $(READY) ## planted bugs that must be caught: recent ones, and a third of all
	$(BIN)/pytest -q -n 3 -m mutant --turn $(TURN)

# Three at a time on two cores: they wait more than they work.
test-process: $(READY) ## real processes on loopback
	$(BIN)/pytest -q -n 3 -m "process and not spark" --turn $(TURN)

test-spark: $(READY) ## pipelines on a real Spark
	$(BIN)/pytest -q -n 2 --dist loadfile -m spark --turn $(TURN)

format: $(READY) ## rewrite the sources as lint wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

sim: $(READY) ## simulate SEEDS fresh seeds (default 500)
	$(BIN)/antiphon sim --seeds $(SEEDS)

mutants: $(READY) ## every planted bug
	$(BIN)/python -m tests.mutants.run

agreement: $(READY) ## all judges of groups, over SEEDS simulated runs with planted violations
	$(BIN)/python -m tests.spark.support.agreement $(SEEDS)

bench: $(READY) ## throughput and latency, beside a bare relay
	$(BIN)/antiphon bench throughput
	$(BIN)/antiphon bench latency

soak: $(READY) ## MINUTES of full load (default 60), in which nobody may be suspected
	$(BIN)/antiphon bench soak --minutes $(MINUTES) --json

bench-peers: $(READY) ## the same work by JetStream, RabbitMQ and Redis; gets their servers and clients
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[peers]'
	$(BIN)/antiphon bench peers --fetch

chaos: $(READY) ## real servers and programs under faults, for 30 s
	$(BIN)/antiphon chaos --seconds 30

demo: $(READY) ## the main job, end to end
	$(BIN)/antiphon demo

# A candidate is tried by running it: a version manager may offer commands that only print an error.
$(READY): pyproject.toml
	@if ! $(BIN)/python -c '' 2>/dev/null; then \
		for python in python3.13 python3.12 python3.11 python3 none; do \
			$$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
				2>/dev/null && break; \
		done; \
		if test $$python = none; then \
			echo "antiphon needs Python 3.11 or newer with venv; none was found on PATH" >&2; \
			exit 1; \
		fi; \
		echo "creating .venv with $$($$python --version)"; \
		$$python -m venv --clear .venv; \
	fi
	@echo "installing antiphon and its tools into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,spark,postgres,mdns]'
	@touch $@
	@echo "ready: .venv"
