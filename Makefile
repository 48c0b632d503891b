# Everything a newcomer needs: `make demo`, `make test`, `make bench`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint bench env clean

env: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

demo: env
	$(BIN)/python -m cordwood.cli.demo

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: env lint
	$(BIN)/pytest -n 2

bench: env
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

clean:
	rm -rf $(VENV) cordwood-data
