# Everything starts here: `make demo` or `make test` on a machine that has only Python and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0

.PHONY: demo test lint types docs bench fuzz release clean

demo: $(VENV)/installed
	$(BIN)/nfcgcn train digits --seeds 3 --out runs/demo --force

test: $(VENV)/installed
	$(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, from docs/ and the docstrings in src/, into build/docs; warnings are errors. Nothing of ours is imported.
docs: $(VENV)-docs/installed
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --quiet --strict

# The types of the page's scripts; needs Node and its registry.
types:
	npx --yes --package typescript@5.9 tsc --project tests/explore/jsconfig.json

bench: $(VENV)/installed
	$(BIN)/nfcgcn bench step --dataset all --json results/bench-step.json

fuzz: $(VENV)/installed
	PYTHONPATH=tests $(BIN)/python tests/fuzz.py --cases 10000

# What is published: source and wheel, and a bill of materials (CycloneDX) of what they were tested with.
release: $(VENV)/installed
	rm -rf dist
	$(BIN)/hatchling build --directory dist
	$(BIN)/python .ci/bill > dist/bill-of-materials.cdx.json

clean:
	rm -rf $(VENV) $(VENV)-docs runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Everything by the hashes of its wheels, build tools included; then torch, of which each machine has its own build (CPU,
# or one of several for CUDA, which brings its libraries along): that one is pinned by version alone.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --no-deps --requirement constraints.txt
	$(BIN)/pip install --quiet $(TORCH)
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)-docs/installed: docs/requirements.txt
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/pip install --quiet --require-hashes --no-deps --requirement docs/requirements.txt
	touch $@
