# Everything sets itself up: the environment is made once and again only when the dependencies change.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint benchmark reproduce clean

demo: $(READY)
	$(BIN)/knotwork demo

test: lint
	$(BIN)/python -m pytest -n 2

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

benchmark: $(READY)
	$(BIN)/python benchmarks/fit_vs_earth.py

reproduce: $(READY)
	$(BIN)/knotwork reproduce all

# torch first: the others are then satisfied with the build that is there.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $(READY)

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
