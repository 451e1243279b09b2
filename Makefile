# Everything a person or a machine does with this repository. Nothing outside this folder is changed: the tools live in .venv.

PYTHON ?= python3
JOBS   ?= 2
VENV   := .venv
TORCH  := .venv-torch
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL: # two installers in one .venv would disturb each other
.PHONY: help demo web fleet bench-slates test test-ranking test-silos test-texts test-slates test-slow test-minutes test-bounds test-full-xla test-all \
  test-flower test-flower-wings test-platforms test-torch sdk-js test-sdk-js test-release numbers screens mutants check format bench bench-hub bench-sketches docs dist clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z -]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.stamp-demo ## train a ranker on generated data and write a report (a minute or two)
	@$(BIN)/fedrank demo

web: $(VENV)/.stamp-serve ## a search page that learns from its visitors, in your browser, until Ctrl-C
	@$(BIN)/fedrank demo web --browser

fleet: $(VENV)/.stamp-zoo ## a private learning server with 50 device processes on this machine, for a minute; open its /status
	@$(BIN)/python -m fedrank hub serve runs/hub --n-features 46 --devices 50 --round-seconds 20 --deadline 20 & hub=$$!; \
	  trap 'kill $$hub 2> /dev/null; wait $$hub' EXIT INT TERM; \
	  while [ ! -e runs/hub/hub.url ] && kill -0 $$hub 2> /dev/null; do sleep 0.2; done; \
	  $(BIN)/python -m fedrank hub simulate runs/hub --devices 50

# Tests write compiled Python files: pytest rewrites all test modules, which takes longer than to run most of them. A
# process has one core: threads of OpenMP that wait for another keep it busy.
TEST   := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
# Processes of Flower stay by themselves.
FLOWER := FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
# Numbers that must not depend on how programs are compiled.
NUMERIC := tests/core tests/aggregation tests/metrics tests/privacy/oracle tests/ranking/oracle tests/silos/oracle tests/slates/oracle

test: $(VENV)/.stamp-dev ## run the tests, without the slow ones
	@$(TEST) -m "not slow and not minutes" $(ARGS)

test-ranking test-silos test-texts test-slates: test-%: $(VENV)/.stamp-dev ## run the quick tests of one wing
	@$(TEST) -m "not slow and not minutes" tests/$* $(ARGS)

test-slow: $(VENV)/.stamp-dev ## run the tests that take a second to five each (ten minutes)
	@$(TEST) -m "slow and not minutes" $(ARGS)

test-minutes: $(VENV)/.stamp-dev ## run what takes longer: learning, real processes, studies on real data (an hour or two)
	@$(FLOWER) $(BIN)/python -m pytest -m minutes $(ARGS)

test-bounds: $(VENV)/.stamp-dev ## run everything that has compiled kernels with the bounds of arrays checked (minutes)
	@$(BIN)/python -m tests.golden.runs.bounds

test-full-xla: $(VENV)/.stamp-dev ## run the numeric core compiled as users compile it, not as tests do
	@FEDRANK_TEST_FULL_XLA=1 $(TEST) -m "not slow and not minutes" $(NUMERIC) $(ARGS)

test-all: test test-slow test-bounds test-full-xla test-minutes ## run all tests: quick and slow, kernels in bounds, the numeric core at full optimisation, minutes

test-flower: $(VENV)/.stamp-dev ## run Flower for real: a link and two nodes on this machine, two rounds
	@$(FLOWER) $(BIN)/python -m pytest -q -m minutes tests/deploy/contract/test_flower_runs.py

test-flower-wings: $(VENV)/.stamp-dev ## the same for silos with tables and for silos with texts (minutes)
	@$(FLOWER) $(BIN)/python -m pytest -q -m minutes tests/deploy/contract/test_flower_silos_runs.py \
	  tests/deploy/contract/test_flower_texts_runs.py

test-platforms: $(VENV)/.stamp-dev ## run two platforms, their coordinator and their users as processes on this machine
	@$(BIN)/python -m pytest -q -m "slow or minutes" tests/deploy/contract/test_platform_processes.py tests/deploy/law/test_platform_sessions.py

test-torch: $(VENV)/.stamp-dev $(TORCH)/.stamp ## run the tests that need PyTorch, which is large and goes into a folder of its own (minutes)
	@PYTHONPATH=$(TORCH) $(BIN)/python -m pytest -q -k pytorch tests/ranking/law/test_own_rankers.py \
	  tests/engine/law/test_models.py tests/docs/test_programs.py $(ARGS)

sdk-js: ## fetch what the JavaScript SDK is built with: esbuild and TypeScript (needs Node.js 20)
	@cd sdk/js && npm install --no-audit --no-fund --loglevel=error

test-sdk-js: $(VENV)/.stamp-dev sdk-js ## the JavaScript SDK: size, vectors, a real hub, a browser if there is one (seconds)
	@$(BIN)/python -m pytest -q -m "slow or minutes" tests/deploy/sdk_js $(ARGS)

test-release: $(VENV)/.stamp-dev ## build what is released, install it into empty environments, run the README there (an hour)
	@$(BIN)/python -m pytest -m "slow or minutes" tests/release $(ARGS)

numbers: $(VENV)/.stamp-dev ## measure the numbers in README and documentation anew, and write them there (minutes)
	@$(BIN)/python docs/measured.py

screens: $(VENV)/.stamp-dev ## make the pictures of served pages anew: a hub's, the page that learns, a portal (needs Chromium; minutes)
	@$(BIN)/python docs/screens.py

mutants: $(VENV)/.stamp-dev ## how many deliberate faults the tests notice, by area (half an hour)
	@$(BIN)/python -m tests.mutants.run --jobs $(JOBS) $(ARGS)

check: $(VENV)/.stamp-dev ## lint, formatting, types, layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports

format: $(VENV)/.stamp-dev ## mend what can be mended by itself
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.stamp-dev ## measure interactions per second, and a run of silos, on this machine
	@$(BIN)/python -m benchmarks.interactions
	@$(BIN)/python -m benchmarks.silo_runs

bench-sketches: $(VENV)/.stamp-dev ## measure sketches of documents: building, answering, beside Apache datasketches
	@$(BIN)/python -m benchmarks.sketches

bench-slates: $(VENV)/.stamp-dev ## measure platforms that share users: steps of the world, whole training runs
	@$(BIN)/python -m benchmarks.slate_worlds
	@$(BIN)/python -m benchmarks.slate_training

bench-hub: $(VENV)/.stamp-dev ## measure a hub: reports per second, kill -9 in a loop, devices that die (25 minutes)
	@$(BIN)/python -m benchmarks.hub.load
	@$(BIN)/python -m benchmarks.hub.faults deaths
	@$(BIN)/python -m benchmarks.hub.faults clock
	@$(BIN)/python -m benchmarks.hub.faults kills

docs: $(VENV)/.stamp-docs ## build the documentation into docs/_build/html; a warning is an error
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "documentation: docs/_build/html/index.html"

dist: $(VENV)/.stamp-dev ## build source distributions and wheels of fedrank, its device, zoo and Flower adapter into dist/
	@$(BIN)/python -m hatchling build --directory dist
	@for part in device zoo flower; do (cd $$part && ../$(BIN)/python -m hatchling build --directory ../dist) || exit 1; done

clean: ## remove what the other targets made, .venv included; runs/ stays
	rm -rf $(VENV) $(TORCH) dist build docs/_build docs/generated .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@command -v $(PYTHON) > /dev/null || { echo "There is no '$(PYTHON)' here. Name yours: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "fedrank needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Name another: make PYTHON=python3.11" >&2; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# One stamp a set of extras, so that the demo does not wait for the test tools.
$(VENV)/.stamp-demo: pyproject.toml | $(BIN)/python
	@echo "installing fedrank into $(VENV) (half a minute, the first time)"
	@$(PIP) --no-compile -e .
	@touch $@

$(VENV)/.stamp-serve: pyproject.toml | $(BIN)/python
	@echo "installing fedrank and what its hub needs into $(VENV) (half a minute, the first time)"
	@$(PIP) --no-compile -e '.[serve]'
	@touch $@ $(VENV)/.stamp-demo

$(VENV)/.stamp-zoo: zoo/pyproject.toml | $(VENV)/.stamp-serve
	@$(PIP) --no-compile -e ./zoo
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml zoo/pyproject.toml flower/pyproject.toml | $(BIN)/python
	@echo "installing fedrank and its test tools into $(VENV) (minutes, the first time)"
	@$(PIP) -e '.[dev]' -e ./zoo -e ./flower
	@touch $@ $(VENV)/.stamp-demo $(VENV)/.stamp-serve $(VENV)/.stamp-zoo

# What the extra torch names, and what that needs: read from the file that declares it.
$(TORCH)/.stamp: pyproject.toml | $(BIN)/python
	@echo "installing PyTorch into $(TORCH) (minutes, the first time)"
	@$(PIP) --target $(TORCH) --upgrade $$($(BIN)/python -c \
	  'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["torch"])')
	@touch $@

$(VENV)/.stamp-docs: pyproject.toml zoo/pyproject.toml flower/pyproject.toml | $(BIN)/python
	@echo "installing fedrank and its documentation tools into $(VENV) (minutes, the first time)"
	@$(PIP) -e '.[docs]' -e ./zoo -e ./flower
	@touch $@ $(VENV)/.stamp-demo
