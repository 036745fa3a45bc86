# `make` lists the targets. They need the Python that pyproject.toml asks for; the first one that runs Python creates .venv: with what the
# sandbox needs for `make demo`, and with what tests need besides for the others.
SHELL := /bin/sh
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SANDBOX := $(VENV)/.sandbox
STAMP := $(VENV)/.installed
DOCS := $(VENV)/.docs
# Python compiles what is imported; compiling everything else takes longer than the demonstration needs it.
# The versions that the tests have passed with; the package itself has lower bounds (docs/design/releases-and-documents.md), which requirements/lowest.txt has.
# On a terminal pip shows what it loads and installs, because that can take minutes.
TERMINAL := $(shell test -t 2 && echo yes)
# pip reads the first variable up to version 25.2 for what builds edl, too, and later ones the second.
CONSTRAINTS := requirements/constraints.txt
PIP := PIP_CONSTRAINT=$(abspath $(CONSTRAINTS)) PIP_BUILD_CONSTRAINT=$(abspath $(CONSTRAINTS)) $(BIN)/pip install \
  $(if $(TERMINAL),--progress-bar on,--quiet) --disable-pip-version-check --no-compile
REQUIRED := $(shell sed -n 's/^requires-python = ">=\(.*\)"/\1/p' pyproject.toml)
NAMED := $(shell sed -n 's/^ *"Programming Language :: Python :: \(3\.[0-9]*\)",/\1/p' pyproject.toml)
# Fails with a sentence if PYTHON is older than that.
FIT := $(PYTHON) -c 'import sys; sys.exit(sys.version_info < tuple(map(int, "$(REQUIRED)".split("."))))' || \
  { echo "edl needs Python $(REQUIRED) or newer, but $(PYTHON) is older; choose another one: make PYTHON=python3.12 ..." >&2; exit 2; }
NODES ?= tests/e2e/control_plane/mixes/twenty.yaml
WORLDS ?= 10000
SEEDS ?= 10
NAMESPACES ?= 0
MINUTES ?= 10
PACE ?= 1
HISTORIES ?= 20000
STORMS ?= 150
WAVES ?= 9
MIXES ?= 300
STATES ?= 2000000
SCOPE ?= 2000
FUZZ_S ?= 60
SEED ?= 1
JOBS ?= 1000
TIMES ?= 20
SCENES ?=
SHARED ?= some
EXAMPLES ?= readme clicks torch
MUTANTS ?= edl.planner.guard.*
CLUSTER_FLAGS ?=

# Each step of a long target is printed with the minutes and seconds since make started; pytest continues the count.
export EDL_STARTED := $(shell date +%s)
# Without compiled files every process of a sandbox compiles all that it imports, which doubles the time of the tests.
unexport PYTHONDONTWRITEBYTECODE
STEP := step() { now=$$(( $$(date +%s) - $(EDL_STARTED) )); printf '%d:%02d  %s\n' $$((now / 60)) $$((now % 60)) "$$1"; }; step
# Each process takes a whole file at a time, the longest files first (tests/distribution.py). Many tests wait, so two
# cores are busy with five processes, or with three that each have a real control plane.
PYTEST := $(BIN)/python -m pytest
BY_FILE := -q --progress --dist loadfile --no-loadscope-reorder
IN_TWO := $(BY_FILE) -n 2
IN_THREE := $(BY_FILE) -n 3
IN_FIVE := $(BY_FILE) -n 5
# What compares seconds with those of an idle cluster, or of one without attackers: a slow machine has other ones.
AT_SCALE := $(patsubst %,tests/e2e/scenarios/test_%.py,serving_wave scale lending_at_scale oscillation sharing)
HOSTILE := tests/e2e/scenarios/test_hostile_tenants.py
# What make unit leaves to make test: whole clusters and sandboxes, training, planted bugs, searches, the simulator, most
# days of whole controllers, the documents, and half of the random cases.
WHOLE_SANDBOXES := $(patsubst %,tests/sandbox/test_%.py,command command_listeners demo stack stack_broken_node stack_devices)
NO_CLUSTER := $(addprefix --ignore=,tests/e2e tests/contract $(WHOLE_SANDBOXES))
SHORT_LOOPS := $(patsubst %,tests/controller/loop/test_%.py,loop loop_quiet loop_with_planner loop_without_plan)
LONG_LOOPS := $(filter-out $(SHORT_LOOPS),$(wildcard tests/controller/loop/test_*.py)) $(wildcard tests/lifecycle/trials/test_*_in_a_cluster.py)
LONG_PLANS := $(patsubst %,tests/planner/decide/test_decide_%.py,random_worlds oscillation brute_force in_time) \
  tests/planner/policies/test_edl_2017_experiment.py tests/sim tests/shadow/test_process.py tests/controller/master_monitor tests/kube/bounds \
  $(patsubst %,tests/benchmarks/test_%.py,hostile_specs hostile_bytes master_memory)
DOCUMENTS := $(patsubst %,tests/test_%.py,code_blocks design docs figures how_to_guides plain_english planted walks) \
  $(wildcard tests/tools/test_verify_*.py)
# What make test leaves to make searches: long searches, whole days of controllers, and scenes in the sandbox of which it plays
# others of the same kind. make test-cluster plays scenes on a real control plane.
PLAYED := $(patsubst %,tests/e2e/scenarios/test_%.py,main_job masters modes queues install) $(wildcard tests/e2e/worlds/test_*.py) \
  $(patsubst %,tests/e2e/parts/test_%.py,cache hollow launch page resource rights without_kubectl writer)
SEARCHES := $(LONG_LOOPS) $(LONG_PLANS) $(filter-out tests/sandbox/test_demo.py,$(WHOLE_SANDBOXES)) \
  $(filter-out $(PLAYED),$(wildcard tests/e2e/*/test_*.py)) \
  $(wildcard tests/kube/translate/kueue/test_*_loop.py tests/kube/translate/kueue/test_*_histories.py tests/controller/pauses/test_undone_*.py) \
  $(patsubst %,tests/%.py,example/test_fit_flights kube/translate/devices/test_apart kube/test_snapshot_files planner/sizes/test_search test_planted)
IN_PARTS := $(addprefix --ignore=,tests/example tests/sandbox/kubelet/test_kubelet.py $(LONG_LOOPS) $(LONG_PLANS) $(DOCUMENTS))
QUICK := $(IN_PARTS) --hypothesis-profile=quick

# Every target with a description is a command, not a file.
.PHONY: $(shell awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {print $$1}' $(MAKEFILE_LIST))

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(SANDBOX): pyproject.toml $(CONSTRAINTS)
	@$(FIT)
	@echo "creating $(VENV) and installing into it what the sandbox needs (once: half a minute, or minutes if the machine is busy)" >&2
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "$(PYTHON) cannot create a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 2; }
	@$(PIP) -e '.[sandbox]'
	@touch $@

$(STAMP): $(SANDBOX)
	@echo "adding what the tests need to $(VENV) (once)" >&2
	@$(PIP) -e '.[test]'
	@touch $@

# What the tests need includes what the site needs.
$(DOCS): $(SANDBOX)
	@test -e $(STAMP) || { echo "adding what the site needs to $(VENV) (once)" >&2; $(PIP) -e '.[docs]'; }
	@touch $@

demo: $(SANDBOX) ## two jobs train around serving pods in a sandbox; a trainer and a master are killed; nothing stays
	@$(BIN)/edl sandbox --demo

demo-conditions: $(SANDBOX) ## as root: the demo as root and as an ordinary user, without a network, with 127.0.0.1 alone
	@$(BIN)/python -m tests.sandbox.demo_conditions

demo-cluster: $(STAMP) ## three jobs and a wave of serving pods on a real control plane; stops everything at the end
	@$(BIN)/python -m tests.e2e.demo

test: $(STAMP) ## unit and property tests, and the main end-to-end tests in the sandbox (about five minutes on two idle cores)
	@$(STEP) 'unit and property tests, and the main end-to-end tests in the sandbox'
	@$(PYTEST) $(IN_FIVE) $(addprefix --ignore=,$(SEARCHES))

searches: $(STAMP) ## the tests that take long and need no cluster: searches, days of controllers, scenes and faults in the sandbox
	@$(STEP) 'searches, days of controllers, and scenes in the sandbox'
	@$(PYTEST) $(IN_FIVE) $(SEARCHES)

test-cluster: $(STAMP) ## end-to-end tests on a real control plane, and the sandbox's API server compared with it; SHARED=all plays all scenes
	@$(STEP) 'build the programs of the control plane, if they are missing'
	@$(BIN)/python -m tests.e2e.control_plane build
	@$(STEP) 'contract tests, then end-to-end tests on the real control plane'
	@$(PYTEST) $(IN_THREE) --on cluster --shared $(SHARED) $(addprefix --ignore=,$(AT_SCALE) $(HOSTILE)) tests/contract tests/e2e

lint: $(STAMP) ## ruff, the import contracts and mypy --strict
	@$(STEP) 'lint: ruff, the import contracts, mypy'
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy

check: lint docs test searches ## all that a change passes before a merge

format: $(STAMP) ## format the code with ruff
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

unit: $(STAMP) ## the tests of single parts, with a few of their random cases
	@$(PYTEST) $(IN_THREE) $(NO_CLUSTER) $(QUICK)

# Each in an environment of its own (tools/pythons.py), the oldest with the lowest versions of the libraries.
oldest: ## make test and make searches on the oldest Python of this machine, with the lowest libraries that pyproject.toml allows
	@$(FIT)
	@chosen=$$($(PYTHON) -m tools.pythons oldest) && $(MAKE) --no-print-directory test searches $$chosen

newest: ## make unit on the newest Python of this machine
	@$(FIT)
	@chosen=$$($(PYTHON) -m tools.pythons newest) && $(MAKE) --no-print-directory unit $$chosen

environment: $(STAMP) ## make the environment of the tests, and run none

environment-oldest environment-newest: environment-%: ## the same for make oldest and for make newest
	@$(FIT)
	@chosen=$$($(PYTHON) -m tools.pythons $*) && $(MAKE) --no-print-directory environment $$chosen

thorough: $(STAMP) ## the tests that need no cluster, with all their random cases (about ten minutes)
	@$(PYTEST) $(IN_FIVE) --hypothesis-profile=thorough $(NO_CLUSTER)

campaign: $(STAMP) ## new random events for jobs, far more than in make searches
	@$(PYTEST) --hypothesis-profile=explore tests/controller/loop/test_loop_random_events.py -o timeout=0

histories: $(STAMP) ## 20,000 random histories of jobs, serving, nodes and API faults (make searches plays 400)
	@EDL_HISTORIES=$(HISTORIES) $(PYTEST) -q tests/controller/loop/test_loop_random_histories.py -o timeout=0

storms: $(STAMP) ## 150 hours of virtual time in which the world goes wrong at random (make searches plays five): make storms [STORMS=1000]
	@EDL_STORMS=$(STORMS) $(PYTEST) -q tests/controller/loop/test_loop_storms.py -o timeout=0

small-scope: $(STAMP) ## every history of very small clusters under the controller, with figures: make small-scope [SCENES="serving"]
	@EDL_STATES=$(STATES) $(BIN)/python -m tests.worlds.small_scope $(SCENES)

kueue-scope: $(STAMP) ## histories of two jobs beside models of Kueue, an HPA and a node autoscaler, with figures: make kueue-scope [SCOPE=2000]
	@EDL_STATES=$(SCOPE) $(BIN)/python -m tests.worlds.kueue

api-faults: $(STAMP) ## each call of the controller goes wrong in each way, once (make searches tries a sample); prints a table
	@$(PYTEST) -s --campaign full -o timeout=600 tests/e2e/calls

planted: $(STAMP) ## put each of the known bugs into edl and check that its test fails (about twenty minutes)
	@$(BIN)/python -m tests.planted

mutants: $(STAMP) ## change ledger, lifecycle or guard in a thousand small ways, and list what no test notices: make mutants [MUTANTS="edl.ledger.*"]
	@$(PIP) 'mutmut>=3.8'
	@$(BIN)/mutmut run '$(MUTANTS)'; $(BIN)/mutmut results | grep -v 'not checked'; $(BIN)/mutmut export-cicd-stats; cat mutants/mutmut-cicd-stats.json

contract: $(STAMP) ## the tests that the embedded API server and a real one must both pass
	@$(PYTEST) $(IN_TWO) --on cluster tests/contract

e2e: $(STAMP) ## the end-to-end tests in the sandbox, and the tests of whole sandboxes
	@$(PYTEST) $(IN_FIVE) tests/e2e $(WHOLE_SANDBOXES)

scale-e2e: $(STAMP) ## the serving waves on 133 nodes at full length, and ten jobs that share, with figures (over an hour)
	@$(PYTEST) -s --on cluster --campaign full $(AT_SCALE)

quiet: $(STAMP) ## ten minutes without a change on a real control plane: only the lease is written
	@$(PYTEST) -s --on cluster --campaign full -o timeout=900 tests/e2e/faults/test_quiet.py

cluster: $(STAMP) ## start a real control plane: make cluster [NODES=FILE] [CLUSTER_FLAGS="--pod-delete-s 8"]
	@$(BIN)/python -m tests.e2e.control_plane up --nodes $(NODES) $(CLUSTER_FLAGS)

cluster-down: $(STAMP) ## stop that control plane
	@$(BIN)/python -m tests.e2e.control_plane down

real-cluster: $(STAMP) ## as root: start a cluster with two real kubelets, containerd and edl's images
	@$(BIN)/python -m tests.real.cluster up

real-cluster-down: $(STAMP) ## as root: stop and remove that cluster
	@$(BIN)/python -m tests.real.cluster down

real-test: $(STAMP) ## as root: the tests of images and installation in real containers (docs/real-cluster.md)
	@$(PYTEST) $(patsubst %,tests/real/test_%.py,ending images installed kubelets removal)

page-test: $(STAMP) ## the page in a real Chromium (Debian's package chromium; two minutes)
	@$(PYTEST) tests/browser

prometheus-test: $(STAMP) ## rules, alerts, dashboards and metrics, by promtool and Prometheus (Debian's package prometheus)
	@$(PYTEST) tests/prometheus

volcano-test: $(STAMP) ## jobs beside the real Volcano (docs/volcano.md), without the random mixes; the first run builds it from its Go module
	@$(STEP) 'build Volcano, if it is missing'
	@$(BIN)/python -c "from tests.e2e.control_plane.build import ensure_volcano; ensure_volcano()"
	@$(STEP) 'tests beside the real Volcano'
	@$(PYTEST) $(IN_TWO) --on cluster --ignore=tests/volcano/test_mixes.py tests/volcano

volcano-full: volcano-test volcano-mixes ## the same with the random mixes

karpenter-test: $(STAMP) ## jobs beside the real Karpenter (docs/how-to/nodes-on-demand.md); the first run builds it from its Go module
	@$(BIN)/python -c "from tests.e2e.control_plane.build import ensure_karpenter; ensure_karpenter()"
	@$(PYTEST) --on cluster tests/karpenter

kuberay-test: $(STAMP) ## RayClusters beside the real KubeRay (docs/ray.md); the first run builds it from its Go module
	@$(BIN)/python -c "from tests.e2e.control_plane.build import ensure_kuberay; ensure_kuberay()"
	@$(PYTEST) --on cluster tests/kuberay

kueue-test kueue-waves kueue-sessions: export EDL_KUEUE = $(KUEUE)
kueue-test: $(STAMP) ## Jobs that Kueue admits and edl sizes (docs/how-to/kueue.md); the first run builds Kueue from its Go module; KUEUE=0.19.1 is a newer one
	@$(STEP) 'build Kueue, the training operator and KubeRay, if they are missing'
	@$(BIN)/python -c "from tests.e2e.control_plane.build import ensure_kubeflow, ensure_kuberay, ensure_kueue; ensure_kueue(); ensure_kubeflow(); ensure_kuberay()"
	@$(STEP) 'tests beside the real Kueue'
	@$(PYTEST) --on cluster tests/kueue

kueue-waves: $(STAMP) ## random waves beside the real Kueue, with edl and with Kueue alone: make kueue-waves [WAVES=1000 COHORTS=12 SEED=2 MODES=owner]
	@$(BIN)/python -c "from tests.e2e.control_plane.build import ensure_kueue; ensure_kueue()"
	@EDL_KUEUE_SEED=$(SEED) EDL_KUEUE_MODES="$(MODES)" EDL_KUEUE_WAVES=$(WAVES) EDL_KUEUE_COHORTS=$(COHORTS) \
	  $(PYTEST) -s --on cluster tests/kueue/play_waves.py

kueue-sessions: $(STAMP) ## record docs/kueue-sessions.md on a real control plane with Kueue
	@$(BIN)/python -m tests.kueue.record_sessions

lws-test: $(STAMP) ## LeaderWorkerSets beside their real controller (docs/leaderworkersets.md); the first run builds it from its Go module
	@$(BIN)/python -c "from tests.e2e.control_plane.build import ensure_lws; ensure_lws()"
	@$(PYTEST) --on cluster tests/lws

kubeflow-test: $(STAMP) ## PyTorchJobs beside the real training operator (docs/pytorchjobs.md); the first run builds it from its Go module
	@$(STEP) 'build the training operator, if it is missing'
	@$(BIN)/python -c "from tests.e2e.control_plane.build import ensure_kubeflow; ensure_kubeflow()"
	@$(STEP) 'tests beside the real training operator'
	@$(PYTEST) --on cluster tests/kubeflow

volcano-mixes: $(STAMP) ## ten random mixes of all kinds of jobs beside the real Volcano: serving waits as beside TrainingJobs alone
	@$(BIN)/python -c "from tests.e2e.control_plane.build import ensure_volcano; ensure_volcano()"
	@$(PYTEST) -s --on cluster tests/volcano/test_mixes.py

volcano-sessions: $(STAMP) ## record docs/volcano-sessions.md on a real control plane with Volcano
	@$(BIN)/python -m tests.volcano.record_sessions

mixes: $(STAMP) ## 300 random mixes of all kinds of jobs in virtual time (make searches plays five): make mixes [MIXES=1000]
	@EDL_MIXES=$(MIXES) $(PYTEST) -q tests/controller/loop/test_loop_mixes.py -o timeout=0

prometheus-hour: $(STAMP) ## an hour on a real control plane as Prometheus sees it, panel by panel and alert by alert; MINUTES=60
	@$(BIN)/python -m tests.prometheus.hour --minutes $(or $(MINUTES),60)

chart-test: $(STAMP) ## the Helm chart, by Helm itself (the first run builds it from its Go module)
	@$(BIN)/python -c "from tests.e2e.control_plane.build import ensure_helm; ensure_helm()"
	@$(PYTEST) tests/chart

chart-cluster: $(STAMP) ## install, upgrade, roll back and uninstall the chart on a real control plane, beside a job
	@$(BIN)/python -c "from tests.e2e.control_plane.build import ensure_helm; ensure_helm()"
	@$(PYTEST) --on cluster tests/chart/test_releases.py

drills: $(STAMP) ## disasters beside a job that trains: sandbox first, then a real control plane (docs/drills.md)
	@$(PYTEST) tests/drills
	@$(PYTEST) --on cluster tests/drills/test_control_plane.py

panels: $(STAMP) ## draw the panels of the dashboards for the docs, from what Prometheus saw (two minutes)
	@$(BIN)/python -m tests.prometheus.draw

screenshots: $(STAMP) ## take the pictures of the page for the docs, in Chromium
	@$(BIN)/python -m tests.browser.screenshots

real-missions: $(STAMP) ## as root: all tests in real containers, with training under faults (15 minutes)
	@$(PYTEST) tests/real

real-examples: $(STAMP) ## as root: the examples on PyTorch and Paddle on real kubelets, as users apply them: make real-examples [EXAMPLES=readme]
	@for name in $(EXAMPLES); do $(PYTEST) -s -o timeout=2400 tests/real/example_cases.py -k $$name || exit 1; done

real-lending: $(STAMP) ## as root: serving that comes and goes beside training on a real kubelet, with lending and without: a table (12 minutes)
	@$(BIN)/python -m tests.real.lending

docs: $(DOCS) ## build the site of the documents into site/; fails on a dead link, an orphan page, a foreign script
	@$(STEP) 'docs: the site'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

release: $(STAMP) ## build and check wheel, sdist, SBOM, the chart (if make chart-test has built Helm) and the image (if Docker runs)
	@$(PIP) 'build>=1.6.1'
	@$(BIN)/python -m tools.release $(addprefix --helm ,$(lastword $(wildcard $(HOME)/.cache/edl/control-plane/helm-*/helm))) \
	  $$(docker info >/dev/null 2>&1 && echo --docker docker)
	@$(MAKE) --no-print-directory sbom

# What the image installs, on any machine that it can be built for, and what this Makefile installs for tests;
# `make lock UPGRADE=--upgrade` takes newer versions.
COMPILE := pip compile --quiet --universal --python-version $(REQUIRED) --generate-hashes --no-header $(UPGRADE)
BUILD := $(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')"
EVERYTHING := --no-generate-hashes --no-annotate --extra dev
WHEELS := $(BIN)/uv pip install --quiet --dry-run --target $(VENV)/none --only-binary :all:

lock: $(STAMP) ## pin what the image installs, by hash, and what the tests use: requirements/*.txt; UPGRADE=--upgrade takes newer versions
	@$(PIP) 'uv>=0.9'
	@$(BIN)/uv $(COMPILE) --extra controller --extra lines --output-file requirements/controller.txt pyproject.toml
	@$(BUILD) | $(BIN)/uv $(COMPILE) $(EVERYTHING) --output-file requirements/constraints.txt pyproject.toml -
	@$(BUILD) | $(BIN)/uv $(COMPILE) --output-file requirements/build.txt -
	@rm -f requirements/lowest.txt # uv would keep the version of a library whose bound has become lower
	@$(BUILD) | $(BIN)/uv $(COMPILE) $(EVERYTHING) --resolution lowest-direct --output-file requirements/lowest.txt pyproject.toml -
	@for kind in x86_64 aarch64; do \
	  $(WHEELS) --python-platform $$kind-manylinux_2_28 --python-version 3.12 --require-hashes --requirement requirements/controller.txt || exit 1; \
	  for python in $(REQUIRED) $(NAMED); do \
	    $(WHEELS) --python-platform $$kind-manylinux_2_28 --python-version $$python --requirement requirements/lowest.txt || exit 1; done; done

audit: $(STAMP) ## look up the known defects of the libraries that the image installs (asks the package index)
	@$(PIP) 'pip-audit>=2.9'
	@for file in requirements/controller.txt requirements/build.txt; do $(BIN)/pip-audit --strict --disable-pip --require-hashes --requirement $$file || exit 1; done

sbom: $(STAMP) ## list the libraries of the image as CycloneDX: dist/edl-controller.cdx.json; check it by its schema
	@$(BIN)/python -m tools.sbom
	@$(PIP) 'cyclonedx-python-lib[json-validation]>=10'
	@$(BIN)/python -c "import pathlib, sys; from cyclonedx.schema import SchemaVersion; from cyclonedx.validation.json import \
	  JsonStrictValidator as V; sys.exit(V(SchemaVersion.V1_6).validate_str(pathlib.Path('dist/edl-controller.cdx.json').read_text()))"

pictures: $(STAMP) ## draw the pictures of the documents: docs/images/*.svg
	@$(BIN)/python -m tools.pictures

generate: $(SANDBOX) ## write the generated files: crds/, deploy/, the tables of docs/
	@$(BIN)/python -m edl.install.reference
	@$(BIN)/python -m tools.make_scenarios schema > docs/reference/scenario.schema.json

sessions: $(STAMP) ## record docs/kubectl.md on a real control plane (90 seconds)
	@$(BIN)/python -m tests.e2e.record_sessions

faults: $(STAMP) ## 100,000 simulated faults of trainers, network and master: no record is lost or counted twice
	@$(BIN)/python -m tests.worlds.ledger.simulation 100000

kills: $(STAMP) ## real trainers and a real master as processes, killed 60 times
	@EDL_TEST_EPOCHS=10 EDL_TEST_RECORDS=8000 EDL_TEST_KILLS=60 $(PYTEST) tests/master/test_master_kills.py

certificates: $(STAMP) ## 100,000 changed plans and certificates: every harmful change is refused (about five minutes)
	@$(BIN)/python -m tests.tools.mutations 100000

benchmarks: $(STAMP) ## measure the planner (CPU seconds, gap to the optimum) and the data master (tasks/s, latency)
	@$(BIN)/python -m benchmarks.planner
	@$(BIN)/python -m benchmarks.certificate
	@$(BIN)/python -m benchmarks.journal
	@$(BIN)/python -m benchmarks.master

scale-5000: $(STAMP) ## from an event to the controller's first write on 5,000 nodes: make scale-5000 [NODES=1500] [JOBS=300] [TIMES=20]
	@$(BIN)/python -u -m tests.e2e.scale five-thousand --times $(TIMES) --jobs $(JOBS) \
	  --nodes $(if $(filter command,$(origin NODES)),$(NODES),5000)

scale-peer: $(STAMP) ## 500 nodes full of 4,000 trainers: reclaim one slot, reclaim 250, and the verdict on a giant job [TIMES=20]
	@$(BIN)/python -u -m tests.e2e.scale peer --times $(TIMES)

worst-days: $(STAMP) ## measure the planner on its worst days, beside its peers: make worst-days [WORDS="many sizes"]
	@$(BIN)/python -m benchmarks.worst_days $(if $(WORDS),"$(WORDS)")

contended: $(STAMP) ## measure the planner on small contended clusters: make contended [WORDS="30x15"]
	@$(BIN)/python -m benchmarks.contended $(WORDS)

fuzz: $(STAMP) ## search for job specs that make a decision slow, and for bytes that break a parser or a port: make fuzz [FUZZ_S=3600]
	@$(STEP) 'fuzz: specs of jobs, and bytes for parsers and ports'
	@$(BIN)/python -m benchmarks.hostile_bytes --seconds $(FUZZ_S) --seed $(SEED) & bytes=$$!; \
	  $(BIN)/python -m benchmarks.hostile_specs --seconds $(FUZZ_S) --seed $(SEED); specs=$$?; wait $$bytes && exit $$specs

hostile-tenants: $(STAMP) ## honest jobs without and with all hostile tenants on a real control plane, with figures: make hostile-tenants [MINUTES=10] [NAMESPACES=100] [PACE=0.25]
	@MINUTES=$(MINUTES) NAMESPACES=$(NAMESPACES) PACE=$(PACE) $(PYTEST) -s --on cluster -o timeout=0 $(HOSTILE)

shadow-promise: $(STAMP) ## what edl shadow promises beside what comes, on a real control plane: make shadow-promise [MINUTES=10]
	@out=$$(mktemp -d)/shadow && $(BIN)/python -m tests.e2e.scale.promise --minutes $(MINUTES) --out $$out && echo "reports in $$out"

tenants-hour: $(STAMP) ## an hour of virtual time beside a bad neighbour, with and without the cure
	@$(BIN)/python -m benchmarks.tenants

worlds: $(STAMP) ## plan 10,000 random worlds of all families (hours): make worlds [WORLDS=10000]
	@EDL_WORLDS=$(WORLDS) $(PYTEST) -q tests/planner/decide/test_decide_random_worlds.py -o timeout=0

simulations: $(STAMP) ## run the stored scenarios in virtual time and write docs/simulations.md (hours; see docs/simulator.md)
	@for s in edl2017-case1-then edl2017-case2-then; do $(BIN)/python -m benchmarks.simulations run $$s --seeds 10 || exit 1; done
	@for s in edl2017-case1 edl2017-case2 pollux-workload-1 pollux-workload-2 pollux-workload-3 pollux-workload-6 large-5000; do \
	  $(BIN)/python -m benchmarks.simulations run $$s --seeds $(SEEDS) || exit 1; done
	@$(BIN)/python -m benchmarks.simulations page

cases: $(STAMP) ## play a case of 2017 on a real control plane beside the simulator (11 minutes): make cases [CASE=1] [MIX=even] [HEADROOM=auto] [STOP=1]
	@$(BIN)/python -m tests.e2e.cases $(or $(CASE),2) $(addprefix --mix ,$(MIX)) $(addprefix --headroom ,$(HEADROOM)) \
	  $(addprefix --slo ,$(SLO)) $(addprefix --stop ,$(STOP)) $(addprefix --until ,$(UNTIL))

two-weeks: $(STAMP) ## simulate two weeks of serving with headroom none, fixed, learned and foreseen (about 25 CPU minutes)
	@$(BIN)/python -m benchmarks.headroom nodes

example: $(STAMP) ## run example/fit_flights on this machine, with trainers and a pserver killed
	@$(BIN)/python -m example.fit_flights.local --seeds 5 --kills 20 --pserver-kills 1

TORCH := .venv-torch
TORCH_STAMP := $(TORCH)/.installed
RESIZES ?= 100
KILLS ?= 20

$(TORCH_STAMP): pyproject.toml
	@echo "adding PyTorch and what its tests need to $(TORCH) (once; on Linux 6 GB)" >&2
	@test -x $(TORCH)/bin/python || $(PYTHON) -m venv $(TORCH)
	@$(TORCH)/bin/pip install --quiet --disable-pip-version-check -e '.[sandbox,torch,test]' scikit-learn transformers accelerate lightning
	@touch $@

torch-test: $(TORCH_STAMP) ## tests with PyTorch, in .venv-torch (PIP_EXTRA_INDEX_URL may name an index of CPU wheels)
	@$(TORCH)/bin/python -m pytest -q -o timeout=1800 $(wildcard tests/worker/torch_*cases.py tests/worker/*/torch_*cases.py)

kubeflow-torch: $(TORCH_STAMP) ## a PyTorchJob with the real torchrun through 2, 6 and 3 workers (docs/pytorchjobs.md), in .venv-torch
	@$(TORCH)/bin/python -c "from tests.e2e.control_plane.build import ensure_kubeflow; ensure_kubeflow()"
	@$(TORCH)/bin/python -m pytest -q --on cluster tests/kubeflow/torch_elastic_cases.py

elastic-torch: $(TORCH_STAMP) ## what resizes and kills cost PyTorch trainers in step: make elastic-torch [RESIZES=100] [KILLS=20]
	@$(TORCH)/bin/python -m benchmarks.elastic_torch --resizes $(RESIZES) --kills $(KILLS) \
	  --steps $$((85 * ($(RESIZES) + $(KILLS))))

elastic-node: $(TORCH_STAMP) ## PyTorch trainers on 1 -> 4 -> 2 -> 3 with two kills and a lost node, five seeds
	@$(TORCH)/bin/python -m benchmarks.elastic_node

time-to-accuracy: $(TORCH_STAMP) ## PyTorch trainers beside serving waves: elastic, with min and with max trainers, three seeds
	@$(TORCH)/bin/python -m benchmarks.time_to_accuracy

goodput: $(TORCH_STAMP) ## PyTorch trainers with a batch that follows them and the noise: seconds to an accuracy, five seeds
	@$(TORCH)/bin/python -m benchmarks.goodput

train-ft: ## run example/train_ft.py with killed trainers, in .venv-paddle (installs Paddle: 1.3 GB)
	@test -x .venv-paddle/bin/python || $(PYTHON) -m venv .venv-paddle
	@.venv-paddle/bin/pip install --quiet --disable-pip-version-check -e '.[controller,sandbox,test]' 'paddlepaddle>=3.0' scikit-learn
	@.venv-paddle/bin/python -m tests.example.train_ft

ctr: ## run example/ctr on Paddle's parameter servers, on this machine and in a sandbox, with kills (in .venv-ctr: 1.3 GB)
	@test -x .venv-ctr/bin/python || $(PYTHON) -m venv .venv-ctr
	@.venv-ctr/bin/pip install --quiet --disable-pip-version-check -e '.[controller,sandbox,test]' \
	  'paddlepaddle==3.0.0' 'protobuf==4.25.8' setuptools
	@.venv-ctr/bin/python -m tests.example.ctr

clean: ## remove the virtual environment and the caches of this checkout
	@[ ! -d .cluster ] || $(MAKE) --no-print-directory cluster-down
	@rm -rf .cluster $(VENV) mutants .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis site
