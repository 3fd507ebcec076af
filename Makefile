# `make` lists the targets. Everything runs in .venv, which is made on first use.

PYTHON ?= python3
OLDEST ?= python3.10
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DOCS   := $(VENV)/.installed-docs
ROUNDS ?= 1
JOBS   ?= 4
# Each fault needs a cluster of its own, and slow tests meet limits of seconds.
SLOW_JOBS ?= 2

DEVICE ?= cuda
GPU_OUT ?= build/gpu

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-unit test-slow test-faults test-all gpu gpu-wheels lint docs bench cluster cluster-down constraints clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP)  ## make .venv with the package, its training part and the tools
	@:

# Check that Python is new enough, and make the environment if it does not exist.
define MAKE_VENV
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
  echo "slurm-jobs needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1)." \
       "Say which one to use: make PYTHON=/path/to/python3.12" >&2; exit 1; }
@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
  echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
endef
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

$(STAMP): pyproject.toml constraints.txt
	$(MAKE_VENV)
	@echo "installing into $(VENV) (once; minutes on a slow network)"
	@$(INSTALL) -e '.[train,dev]'
	@touch $@

$(DOCS): pyproject.toml constraints.txt
	$(MAKE_VENV)
	@echo "installing Sphinx into $(VENV) (once)"
	@$(INSTALL) -e '.[docs]'
	@touch $@

demo: venv  ## one YAML file to a trained model and a report, on this machine
	@$(BIN)/slurm-jobs run configs/demo.yaml

test: venv  ## the tests without the slow ones, on JOBS processes (4; as root on Debian or Ubuntu on a real Slurm too)
	@$(BIN)/python -m pytest -m "not slow" -n $(JOBS) --dist loadscope \
	  --no-loadscope-reorder $(PYTEST_ARGS)

UNIT = $(addprefix tests/slurm_jobs/,cluster nodes plan report run run_folder schedulers base formats spec status worker) \
  $(addprefix tests/pipeline/,data timing)

test-unit: venv  ## the tests that need neither Slurm nor a training, in two minutes
	@$(BIN)/python -m pytest -m "not slow and not cluster" -n $(JOBS) --dist loadscope \
	  --no-loadscope-reorder $(UNIT) $(PYTEST_ARGS)

test-slow: venv  ## the slow tests without the faults, all examples of the fuzz tests, then what measures, one at a time
	@failed=0; \
	$(BIN)/python -m pytest -m "slow and not faults and not alone" -n $(SLOW_JOBS) --dist loadscope \
	  --no-loadscope-reorder $(PYTEST_ARGS) || test $$? -eq 5 || failed=1; \
	$(if $(PYTEST_ARGS),:,SLURM_JOBS_FUZZ=1 $(BIN)/python -m pytest -m "not slow" -n $(SLOW_JOBS) tests/fuzz) || failed=1; \
	SLURM_JOBS_CAUSES_PAGE=docs/explanation/report-causes.md $(BIN)/python -m pytest -m "slow and alone" $(PYTEST_ARGS) \
	  || test $$? -eq 5 || failed=1; \
	exit $$failed  # 5: none of the tests that were asked for is of this part

test-faults: venv  ## kill, preempt, switch off, ROUNDS times (1), on SLOW_JOBS test clusters; writes docs/explanation/reliability.md
	@SLURM_JOBS_FAULT_ROUNDS=$(ROUNDS) SLURM_JOBS_RELIABILITY_PAGE=docs/explanation/reliability.md \
	  $(BIN)/python -m pytest -m faults -n $(SLOW_JOBS) --dist loadscope $(PYTEST_ARGS)

test-all: test test-slow test-faults  ## every test

# Without `venv`: a machine with a GPU may have no network, and has its own torch.
GPU_PYTHON = $(if $(and $(filter file,$(origin PYTHON)),$(wildcard $(BIN)/python)),$(BIN)/python,$(PYTHON))

gpu:  ## show on a GPU what a CPU cannot (DEVICE=cpu: as far as it can); results in GPU_OUT (build/gpu)
	@$(GPU_PYTHON) -m tests.gpu --device $(DEVICE) --out $(GPU_OUT) $(GPU_ARGS)

gpu-wheels:  ## collect what a machine without a network may lack for `make gpu` in .gpu-wheels
	@$(GPU_PYTHON) -m tests.gpu.wheels

lint: venv  ## ruff, formatting, types, layers, plain words, nothing newer than the oldest Python
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python .ci/check_words.py
	@$(BIN)/vermin --quiet --no-tips --violations --target=3.10- slurm_jobs pipeline

docs: $(DOCS)  ## build the documentation into build/docs/html; a warning is an error
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env -d build/docs/read docs build/docs/html
	@echo "open build/docs/html/index.html"

bench: venv  ## measure against peers, and write docs/explanation/performance.md
	@$(BIN)/python -m benchmarks

cluster: venv  ## start the Slurm test cluster for use by hand (root, Debian or Ubuntu)
	@$(BIN)/python -m tests.cluster up

cluster-down: venv  ## stop it and remove its folder; Slurm and the user sjtest stay
	@$(BIN)/python -m tests.cluster down

constraints:  ## resolve the newest allowed versions, with PYTHON and OLDEST, and write constraints.txt
	@rm -rf build/resolve && $(PYTHON) -m venv build/resolve/newer && $(OLDEST) -m venv build/resolve/oldest
	@build/resolve/newer/bin/python -m pip install --quiet -e '.[train,dev,bench,docs]' hatchling editables
	@build/resolve/oldest/bin/python -m pip install --quiet -e '.[train,dev]' hatchling editables
	@for which in newer oldest; do build/resolve/$$which/bin/python -m pip list --format=freeze \
	    --exclude-editable --exclude pip > build/resolve/$$which.txt || exit 1; done
	@$(PYTHON) .ci/make_constraints.py constraints.txt build/resolve/newer.txt build/resolve/oldest.txt
	@rm -rf build/resolve

clean:  ## remove .venv, caches and build outputs; runs stay
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
