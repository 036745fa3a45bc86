# edl: `make` lists the targets. Everything runs from a bare Python >= 3.11: the first target that needs it makes .venv.
SHELL := /bin/sh
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NODES ?= tests/e2e/control_plane/mixes/twenty.yaml
CLUSTER_FLAGS ?=
LIVES ?= 20

.PHONY: help demo test check lint format unit campaign planted faults kills e2e scale-e2e quiet cluster cluster-down
.PHONY: real-cluster real-cluster-down real-test real-missions generate sessions benchmarks example train-ft clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "edl needs Python 3.11 or newer and $(PYTHON) is older; name one: make PYTHON=python3.12 ..." >&2; exit 2; }
	@echo "making $(VENV) (about a minute, once)" >&2
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "$(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 2; }
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

demo: $(STAMP) ## a real control plane, the controller, three jobs and a serving wave; leaves nothing behind
	@$(BIN)/python -m tests.e2e.demo

test: lint ## everything that must pass: linters, types, layers, all tests
	@$(BIN)/python -m tests.e2e.control_plane build
	@$(BIN)/python -m pytest -n 2 --dist loadfile

check: test ## the same

lint: $(STAMP) ## ruff, mypy --strict and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP) ## let ruff lay out the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

unit: $(STAMP) ## the tests that need no control plane (a few minutes)
	@$(BIN)/python -m pytest -n 2 --dist loadfile --ignore=tests/e2e

campaign: $(STAMP) ## far more random lives of jobs than `make test` plays, new ones each time: make campaign [LIVES=20]
	@EDL_CAMPAIGN=$(LIVES) $(BIN)/python -m pytest --hypothesis-profile=explore tests/controller/test_life_machine.py -o timeout=0

planted: $(STAMP) ## plant each known bug in a copy of edl and see the test that is named for it fail
	@$(BIN)/python -m tests.planted

e2e: $(STAMP) ## the tests on a real control plane
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/e2e

scale-e2e: $(STAMP) ## serving waves over 133 nodes and an oscillating load, in full length, with the figures (about 50 minutes)
	@$(BIN)/python -m pytest -s --campaign full tests/e2e/test_serving_wave.py tests/e2e/test_scale.py tests/e2e/test_oscillation.py

quiet: $(STAMP) ## ten quiet minutes of a real cluster: no write but the renewal of the lease, by the audit log
	@$(BIN)/python -m pytest -s --campaign full -o timeout=900 tests/e2e/faults/test_quiet.py

cluster: $(STAMP) ## a real control plane to try things on: make cluster [NODES=FILE] [CLUSTER_FLAGS="--pod-delete-s 8"]
	@$(BIN)/python -m tests.e2e.control_plane up --nodes $(NODES) $(CLUSTER_FLAGS)

cluster-down: $(STAMP) ## stop it
	@$(BIN)/python -m tests.e2e.control_plane down

real-cluster: $(STAMP) ## as root: two real kubelets with containerd, and edl's images on them, to try things on
	@$(BIN)/python -m tests.real.cluster up

real-cluster-down: $(STAMP) ## as root: stop it; nothing stays
	@$(BIN)/python -m tests.real.cluster down

real-test: $(STAMP) ## as root: the kubelets, the images and the installed controller, in real containers (docs/real-cluster.md)
	@$(BIN)/python -m pytest $(patsubst %,tests/real/test_%.py,ending images installed kubelets removal)

real-missions: $(STAMP) ## as root: those, and real training under faults, gangs, scaling, jobs that cannot train (a quarter of an hour)
	@$(BIN)/python -m pytest tests/real

generate: $(STAMP) ## write the generated files again: crds/, deploy/, the tables of docs/
	@$(BIN)/python -m edl.install.reference

sessions: $(STAMP) ## record docs/kubectl.md anew on a real control plane (about a minute and a half)
	@$(BIN)/python -m tests.e2e.record_sessions

faults: $(STAMP) ## 100,000 simulated faults of trainers, wire and master: nothing lost, nothing counted twice
	@$(BIN)/python -m tests.core.ledger_world 100000

kills: $(STAMP) ## real trainers and a real master, killed 60 times
	@EDL_TEST_EPOCHS=10 EDL_TEST_RECORDS=8000 EDL_TEST_KILLS=60 $(BIN)/python -m pytest tests/master/test_kills.py

benchmarks: $(STAMP) ## measure the planner (CPU seconds, gap to the bound) and the data master (tasks/s, waits, restart)
	@$(BIN)/python -m benchmarks.planner
	@$(BIN)/python -m benchmarks.journal
	@$(BIN)/python -m benchmarks.master

example: $(STAMP) ## example/fit_flights with real processes on this machine: trainers and a pserver killed, five seeds
	@$(BIN)/python -m example.fit_flights.local --seeds 5 --kills 20 --pserver-kills 1

train-ft: ## example/train_ft.py with kills, in .venv-paddle, which is made first (with Paddle: 1.3 GB)
	@test -x .venv-paddle/bin/python || $(PYTHON) -m venv .venv-paddle
	@.venv-paddle/bin/pip install --quiet --disable-pip-version-check -e '.[controller]' 'paddlepaddle>=3.0' scikit-learn
	@.venv-paddle/bin/python -m tests.example.train_ft

clean: ## remove the virtual environment and caches of this checkout
	@[ ! -d .cluster ] || $(MAKE) --no-print-directory cluster-down
	@rm -rf .cluster $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
