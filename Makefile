# Everything starts here: `make demo` or `make test` on a machine that has only Python and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench clean

demo: $(VENV)/installed
	$(BIN)/nfcgcn train digits --seeds 3 --out runs/demo --force

test: $(VENV)/installed
	$(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/installed
	$(BIN)/nfcgcn bench step --dataset all --json results/bench-step.json

clean:
	rm -rf $(VENV) runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# torch first, by its pin: any later request is then met by it and draws in no other build.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/pip install --quiet --editable '.[dev]'
	touch $@
