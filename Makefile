# Everything needs only Python 3.11, make and a package registry; the rest is fetched or built.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NAME ?= all
SEEDS ?= 30
MINUTES ?= 1
RUNS ?= 3
TESTS ?=
SAMPLES ?=
WORKERS ?= 4
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
# Some users disable the bytecode of Python. Each process of a test would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder

.PHONY: help demo test check quick long steady mutations bench chaos fuzz frameworks operators katib llm tracking cache ray web-tests autoscale karpenter
.PHONY: crds golden dashboards docs pictures bounds chart versions image lock clean
.PHONY: programs test-programs

help:  ## List what make can do here
	@grep -hE '^[a-z$$][^:]*:.*##' $(MAKEFILE_LIST) | sed -E 's/^([^:]*):.*## */\1\t/' | \
	  grep -v '^\$$' | expand -t 12

demo:  ## Three gangs on a fresh local control plane
	@$(MAKE) --no-print-directory -j 2 $(VENV)/demo programs
	@$(BIN)/gangsched demo

test:  ## Every test, with the real local control plane
	@$(MAKE) --no-print-directory -j 2 $(VENV)/ready test-programs
	@PYTHONPATH=tests $(BIN)/python tests/integration/upstream.py
	@rm -rf build/durations.json build/audit
	$(PYTEST) -m "not long and not last"
	AUDITED=1 $(BIN)/pytest -m last $$(grep -l mark.last tests/integration/*.py)

check: $(VENV)/dev  ## Format, lint, types, layers, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy bench
	$(BIN)/mypy manifests/image
	$(BIN)/mypy docs/collect.py docs/diagrams.py
	$(BIN)/lint-imports
	$(BIN)/python -m gangsched.api.crdgen build/crds && diff -r build/crds crds
	$(BIN)/python manifests/monitoring/dashboards/generate.py build/dashboards && \
	  diff -r -x generate.py build/dashboards manifests/monitoring/dashboards
	$(BIN)/python docs/pictures.py build/pictures && diff -r build/pictures docs/pictures
	$(BIN)/python docs/bounds.py build/operations.md && diff build/operations.md docs/operations.md

quick: $(VENV)/dev  ## What a developer runs all the time: lint, layers, core, policies, properties
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n 2 tests/core tests/policies tests/property

long:  ## Before a release: soaks, seeds that no run had before, comparisons of real seconds
	@$(MAKE) --no-print-directory -j 2 $(VENV)/ready test-programs
	HYPOTHESIS_PROFILE=nightly NIGHT=$$(date +%Y%m%d) $(BIN)/pytest -n 2 tests/property tests/simulator/test_fault_injection.py \
	  tests/simulator/test_fault_world.py tests/simulator/test_usage_meter.py --hypothesis-seed=$$(date +%Y%m%d)
	$(BIN)/pytest -m long
	$(MAKE) chaos fuzz SEEDS=$(SEEDS) MINUTES=$(MINUTES)

steady:  ## RUNS=n of the suite (or of TESTS="...") on busy cores: which tests ever fail?
	@$(MAKE) --no-print-directory -j 2 $(VENV)/ready test-programs
	$(BIN)/python tests/steady.py $(RUNS) $(TESTS)

mutations: $(VENV)/dev  ## SAMPLES=word: break the core in one place at a time; which test sees it?
	$(BIN)/python tests/mutations.py $(SAMPLES)

chaos: $(VENV)/dev programs  ## SEEDS=n seeds of faults on a real control plane
	$(BIN)/python -m simulator.chaos --seeds $(SEEDS)

fuzz: $(VENV)/dev  ## MINUTES=n of bad input for everything that reads others' input
	PYTHONPATH=tests $(BIN)/python tests/fuzz/run.py $(MINUTES)

bench: $(VENV)/ready programs  ## One benchmark (NAME=bind, NAME=plan) or all
	$(BIN)/python bench/run.py $(NAME)

crds: $(VENV)/dev  ## Write crds/ anew from the models
	$(BIN)/python -m gangsched.api.crdgen crds

golden: $(VENV)/dev  ## Write the golden files of tests/golden: orders, statuses, metrics, answers
	GOLDEN=write $(BIN)/pytest -q tests/golden

dashboards: $(VENV)/dev  ## Write manifests/monitoring/dashboards/ anew
	$(BIN)/python manifests/monitoring/dashboards/generate.py manifests/monitoring/dashboards

# One environment that grows by what is needed: run (gangsched alone), demo (and torch), dev (the
# tools, without torch), ready (everything that the tests use), docs (the site's generator).
# The scheduler never imports torch. Pods cannot write here, so what they import is compiled now.
$(VENV)/run: pyproject.toml requirements-run.lock
	@echo "setting up $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.8
	@$(UV) --require-hashes -r requirements-run.lock
	@$(UV) --no-deps --editable .
	@$(BIN)/python -m compileall -q gangsched policies simulator
	@$(BIN)/python -c "import gangsched.cli.demo, gangsched.cli.queries, gangsched.local.agent.agent"
	@$(BIN)/python -c "import gangsched.operators.manager, gangsched.app"
	@touch $@

# Triton, a gigabyte that compiles kernels for GPUs, is left out: hence no resolution here.
$(VENV)/demo: $(VENV)/run requirements-demo.lock
	@echo "installing torch (about 3 GB of packages the first time)"
	@$(UV) --no-deps --require-hashes -r requirements-demo.lock
	@$(BIN)/python -c "import torch._dynamo, torch.distributed.run"
	@touch $@

$(VENV)/dev: $(VENV)/run requirements.lock
	@$(UV) --compile-bytecode --require-hashes -r requirements.lock
	@touch $@

$(VENV)/docs: $(VENV)/run requirements-docs.lock
	@$(UV) --require-hashes -r requirements-docs.lock
	@touch $@

$(VENV)/ready: $(VENV)/run requirements-torch.lock
	@echo "installing torch and the tools of the tests (about 4 GB the first time)"
	@$(UV) --compile-bytecode --no-deps --require-hashes -r requirements-torch.lock
	@touch $@ $(VENV)/demo $(VENV)/dev

programs: $(VENV)/run
	@$(BIN)/python -m gangsched local build

test-programs: $(VENV)/run
	@$(BIN)/python -m gangsched local build --monitoring --helm --images

operators: $(VENV)/ready programs  ## Operators of others, built from their modules, and the tests beside them
	$(BIN)/pytest -m "long or not long" $(foreach one,operators jobsets groups,tests/integration/test_upstream_$(one).py)

versions: $(VENV)/ready test-programs  ## The kube-apiservers of other versions (8 CPU minutes each), and the tests beside them
	$(BIN)/pytest -m long tests/integration/test_versions.py tests/integration/test_native_groups.py

# The pins of Katib's client differ from those of the tests.
build/katib/client: tests/integration/katib/requirements.txt $(VENV)/run
	@$(BIN)/python -m venv build/katib
	@$(BIN)/uv pip install --quiet --python build/katib/bin/python -r tests/integration/katib/requirements.txt
	@touch $@

katib: $(VENV)/ready programs build/katib/client  ## Katib's own client, in an environment of its own, and Katib's algorithms on real trials
	$(BIN)/pytest -m "long or not long" tests/integration/test_katib_client.py

tracking: $(VENV)/ready programs  ## A real MLflow server, in an environment of its own (1 GB), and the runs of real jobs
	$(BIN)/gangsched local build --tracking
	$(BIN)/pytest -m "long or not long" tests/integration/test_tracking.py

frameworks: $(VENV)/ready programs  ## TensorFlow, JAX and XGBoost (2 GB), and the tests that run them
	@$(UV) --require-hashes -r requirements-frameworks.lock
	$(BIN)/pytest tests/integration/test_frameworks.py

autoscale: $(VENV)/ready programs  ## Nodes for whole gangs, against a stand-in for Cluster Autoscaler
	AUTOSCALE=1 $(BIN)/pytest tests/integration/test_autoscaling.py

karpenter: $(VENV)/ready programs  ## Nodes for whole gangs from the real Karpenter, with KWOK nodes
	KARPENTER=1 $(BIN)/pytest tests/integration/test_karpenter.py tests/integration/test_placeholder_pods.py

web-tests: $(VENV)/ready  ## The pages in a Chromium of this machine (Debian: apt install chromium), with axe
	@$(UV) --require-hashes -r requirements-web.lock
	$(BIN)/pytest -m "long or not long" tests/web

# An environment beside that of the tests. The packages of Hugging Face need other versions of some
# packages, and the head of a Ray cluster needs forty packages that the tests do not.
build/%/ready: requirements-%.lock pyproject.toml $(VENV)/run
	@echo "installing the packages of $< into build/$* (about 4 GB the first time)"
	@test -x build/$*/bin/python || $(PYTHON) -m venv build/$*
	@$(BIN)/uv pip install --quiet --compile-bytecode --python build/$*/bin/python \
	  --require-hashes -r $<
	@$(BIN)/uv pip install --quiet --python build/$*/bin/python --no-deps --editable .
	@touch $@

llm: build/llm/ready programs  ## Fine-tuning with TRL, PEFT and the initializers, in an environment of its own
	build/llm/bin/python -m pytest -m "long or not long" tests/integration/test_llm.py \
	  tests/finetuning/test_stop_callbacks.py

cache: $(VENV)/ready programs  ## Training from a data cache on process nodes, while its pods are killed
	$(BIN)/pytest -m "long or not long" tests/integration/test_datacache_jobs.py

ray: build/ray/ready programs  ## KubeRay's operator, and jobs on Ray clusters, in an environment of its own
	build/ray/bin/python -m pytest -m "long or not long" tests/integration/test_ray.py

docs: $(VENV)/docs  ## The site of docs/ in build/site, with every link checked; it needs no network to read
	$(BIN)/python docs/collect.py build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

pictures: $(VENV)/dev  ## Draw the pictures of docs/ anew
	$(BIN)/python docs/pictures.py docs/pictures

bounds: $(VENV)/dev  ## Write the table of bounds of docs/operations.md anew
	$(BIN)/python docs/bounds.py

chart: $(VENV)/dev programs  ## Write the templates of the Helm chart anew
	$(BIN)/python manifests/chart/generate.py \
	  $$($(BIN)/python -c 'from gangsched.local.components import program; print(program("kubectl"))') \
	  manifests/chart/gangsched/templates

image: $(VENV)/run  ## The container image; FRESH=1: with Debian's newest, or MIRROR=url; ARCH=arm64
	@$(BIN)/python manifests/image/build.py $(if $(FRESH),--fresh) \
	  $(if $(MIRROR),--mirror $(MIRROR)) $(if $(ARCH),--arch $(ARCH))

# The largest is resolved first, and the others keep to its versions: what is tested is what runs.
# Triton, a gigabyte that compiles kernels for GPUs, is left out of the tests and the demo, whose
# locks are therefore installed without a resolution.
LOCK := $(BIN)/uv pip compile -q --universal --python-version 3.11 pyproject.toml \
  --no-emit-index-url --no-header --no-annotate --generate-hashes
WITHOUT := --no-emit-package triton
lock: $(VENV)/run  ## Resolve the dependencies anew
	$(LOCK) --extra dev --extra torch $(WITHOUT) -o requirements-torch.lock
	$(LOCK) --extra dev --extra torch --extra frameworks -o requirements-frameworks.lock
	$(LOCK) --extra dev --extra torch --extra llm --extra llm-tests -o requirements-llm.lock
	$(LOCK) -c requirements-torch.lock --extra dev --extra torch --extra ray-clusters -o requirements-ray.lock
	$(LOCK) -c requirements-torch.lock --extra dev -o requirements.lock
	$(LOCK) -c requirements-torch.lock --extra web-tests -o requirements-web.lock
	printf 'mlflow\nmlflow-skinny\n' | $(subst pyproject.toml,-,$(LOCK)) -o gangsched/local/tracking/requirements.txt
	$(LOCK) -c requirements-torch.lock --extra experiments --extra simulator --extra docs -o requirements-docs.lock
	$(LOCK) -c requirements-torch.lock --extra experiments -o requirements-run.lock
	$(LOCK) -c requirements-torch.lock --extra experiments --extra simulator \
	  --extra initializers -o requirements-image.lock
	$(LOCK) -c requirements-torch.lock --extra guides $(WITHOUT) -o requirements-demo.lock

clean:  ## Remove what was built here (the user's cache stays)
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
