# One word per need. `lint` edits, `check` only reads.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
export DO_NOT_TRACK = 1
export PREFECT_SERVER_ANALYTICS_ENABLED = false
export MLFLOW_DISABLE_TELEMETRY = true
export DVC_NO_ANALYTICS = true

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-times near test-slow audit nightly pins check lint benchmark repro sbom clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

setup: $(READY)  ## make .venv and install, once

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 -c constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# more threads than free cores wait for each other
demo repro test test-times near test-slow audit nightly: export OMP_NUM_THREADS ?= 1
# each process would compile all modules anew where a shell forbids to keep them
test test-times near test-slow: export PYTHONDONTWRITEBYTECODE =

demo: $(READY)  ## the main job on the built-in demo data, end to end
	$(BIN)/cloister demo

# where tests write: memory, if it has room and runs programs, since SQLite waits for a disk at each
# of the thousands of commits; tests read there as another user, and what failed leaves its folder
MEMORY := $(shell test "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 8000000 2>/dev/null \
	&& ! findmnt -no OPTIONS /dev/shm | grep -q noexec && echo /dev/shm || echo "$${TMPDIR:-/tmp}")
SUITE = $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

# one process a core; tests of a file share what is costly to make
test: $(READY)  ## the default suite, 7 minutes on 2 cores
	folder=$$(mktemp -d -p $(MEMORY)) && chmod 755 $$folder && TMPDIR=$$folder $(SUITE) && rm -rf $$folder

test-times: $(READY)  ## the default suite, and where it spends its time; records the balance of test
	folder=$$(mktemp -d -p $(MEMORY)) && chmod 755 $$folder && TMPDIR=$$folder $(SUITE) -p times && rm -rf $$folder

near: $(READY)  ## the tests nearest to FILES, or to what changed, in a tenth of the time of test
	files="$$($(BIN)/python tests/helpers/nearby.py $(FILES))" && $(BIN)/python -m pytest $$files

test-slow: $(READY)  ## statistical, fault and full-size suites
	$(BIN)/python -m pytest -m slow

audit: $(READY)  ## attacks on every method, and twins that they must catch, an hour on 2 cores
	failed=0; \
	AUDIT_PAGE=docs/audit.md $(BIN)/python -m pytest -m audit tests/audit || failed=1; \
	$(BIN)/cloister audit --minutes 35 --markdown docs/audit.md || failed=1; \
	exit $$failed

nightly: $(READY)  ## what takes hours, resumable: slow suite, examples, kills, corrupted files, newest versions
	$(BIN)/python tests/helpers/nightly.py

pins: $(READY)  ## whether a redesign changed a plan, a model or a row: BASE=COMMIT
	$(BIN)/python tests/helpers/pins.py $(BASE)

check: $(READY)  ## format, lint, types, import direction, names; reads only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --noconftest tests/rules

lint: $(READY)  ## format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

benchmark: $(READY)  ## figures of docs/benchmarks/scale.md
	$(BIN)/python -m pytest -m benchmark -s

repro: $(READY)  ## replay the demo release through dvc.yaml
	$(BIN)/dvc repro

# in an environment of its own: what lists the packages is none of them
sbom: $(READY)  ## sbom.json: every installed package with version and licence, in CycloneDX
	test -x build/sbom/bin/cyclonedx-py || ($(PYTHON) -m venv build/sbom && \
	  build/sbom/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0)
	build/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application \
	  --output-reproducible --output-file sbom.json $(BIN)/python

clean:  ## remove what can be made again
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache build *.egg-info
