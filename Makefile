# Everything sets itself up: the environment is made once and again only when the dependencies change.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test torture lint docs benchmark reproduce screenshots browser clean

demo: $(READY)
	$(BIN)/knotwork demo

test: lint
	$(BIN)/python -m pytest -n 2

# Hours of attacks; interrupted, it goes on next time. ATTACKS="hostile_calls …" runs some of them.
torture: $(READY)
	$(BIN)/python -m tests.torture $(ATTACKS)

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

# The site, in site/; needs no network once the tools are there.
docs: .venv/.docs-ready
	$(BIN)/zensical build --strict --clean

.venv/.docs-ready: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[docs]"
	touch $@

benchmark: $(READY)
	$(BIN)/python benchmarks/fit_vs_earth.py

reproduce: $(READY)
	$(BIN)/knotwork reproduce all

# Pictures of the report, from the real page, into docs/images.
screenshots: $(READY)
	$(BIN)/python -m tests.explanation.screenshots

# What the browser tests of the report and the pictures need; without it these tests are skipped.
browser:
	apt-get install -y chromium chromium-driver
	npm install --no-save --no-package-lock axe-core@4

# torch first: the others are then satisfied with the build that is there.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $(READY)

clean:
	rm -rf .venv site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
