# Everything needs only Python 3.11, make and a package registry; the rest is fetched or built.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NAME ?= all
SEEDS ?= 30
MINUTES ?= 1

.PHONY: demo test check bench chaos fuzz frameworks crds dashboards pictures chart lock clean

demo: $(VENV)/ready  ## Three gangs on a fresh local control plane
	@$(BIN)/gangsched demo

test: $(VENV)/ready  ## Every test, with the real local control plane
	@$(BIN)/python -m gangsched local build --monitoring --helm
	$(BIN)/pytest -n 3 --dist loadscope --no-loadscope-reorder -m "not alone"
	AUDITED=1 $(BIN)/pytest -m alone tests/integration

check: $(VENV)/ready  ## Format, lint, types, layers, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy bench
	$(BIN)/lint-imports
	$(BIN)/python -m gangsched.api.crdgen build/crds && diff -r build/crds crds
	$(BIN)/python manifests/monitoring/dashboards/generate.py build/dashboards && \
	  diff -r -x generate.py build/dashboards manifests/monitoring/dashboards
	$(BIN)/python docs/pictures.py build/pictures && diff -r build/pictures docs/pictures

chaos: $(VENV)/ready  ## SEEDS=n seeds of faults on a real control plane
	@$(BIN)/python -m gangsched local build
	$(BIN)/python -m simulator.chaos --seeds $(SEEDS)

fuzz: $(VENV)/ready  ## MINUTES=n of bad input for everything that reads others' input
	PYTHONPATH=tests $(BIN)/python tests/fuzz/run.py $(MINUTES)

bench: $(VENV)/ready  ## One benchmark (NAME=bind, NAME=plan) or all
	@$(BIN)/python -m gangsched local build
	$(BIN)/python bench/run.py $(NAME)

crds: $(VENV)/ready  ## Write crds/ anew from the models
	$(BIN)/python -m gangsched.api.crdgen crds

dashboards: $(VENV)/ready  ## Write manifests/monitoring/dashboards/ anew
	$(BIN)/python manifests/monitoring/dashboards/generate.py manifests/monitoring/dashboards

# One environment for all: torch is for the demo and the tests, the scheduler never imports it.
$(VENV)/ready: pyproject.toml requirements-torch.lock
	@echo "setting up $(VENV) (a few minutes the first time: torch is large)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.8
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode \
	  --require-hashes -r requirements-torch.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

frameworks: $(VENV)/ready  ## TensorFlow, JAX and XGBoost (2 GB), and the tests that run them
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes \
	  -r requirements-frameworks.lock
	@$(BIN)/python -m gangsched local build
	$(BIN)/pytest tests/integration/test_frameworks.py

pictures: $(VENV)/ready  ## Draw the pictures of docs/ anew
	$(BIN)/python docs/pictures.py docs/pictures

chart: $(VENV)/ready  ## Write the templates of the Helm chart anew
	@$(BIN)/python -m gangsched local build
	$(BIN)/python manifests/chart/generate.py \
	  $$($(BIN)/python -c 'from gangsched.local.components import program; print(program("kubectl"))') \
	  manifests/chart/gangsched/templates

lock: $(VENV)/ready  ## Resolve the dependencies anew
	for extra in "" -torch -frameworks; do \
	  $(BIN)/uv pip compile -q --universal --python-version 3.11 pyproject.toml --extra dev \
	    $${extra:+--extra torch} $$(test "$$extra" != -frameworks || echo --extra frameworks) \
	    --no-emit-index-url --no-header --no-annotate --generate-hashes \
	    -o requirements$$extra.lock; done
	$(BIN)/uv pip compile -q --universal --python-version 3.11 pyproject.toml \
	  --extra experiments --no-emit-index-url --no-header --no-annotate --generate-hashes \
	  -o requirements-run.lock

clean:  ## Remove what was built here (the user's cache stays)
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
