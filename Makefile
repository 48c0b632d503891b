# Everything a newcomer needs: `make demo`, `make test`, `make bench`. After changing settings, commands or APIs: `make docs`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Where it is set, every process that a test starts would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint pytest bench bench-spark docs env clean

env: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --editable '.[dev]'
	touch $@

demo: env
	$(BIN)/python -m cordwood.cli.demo

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# At once, since mypy keeps one core busy for most of a minute; both have to pass.
test: env
	$(MAKE) --no-print-directory --jobs=2 lint pytest

pytest: env
	$(BIN)/pytest -n 3 --dist worksteal

bench: env
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

bench-spark: env
	$(BIN)/python -m benchmarks.spark $(if $(QUICK),--quick)

docs: env
	$(BIN)/python -m cordwood.model.configuration_reference > docs/configuration.md
	$(BIN)/python -m cordwood.metrics.reference > docs/metrics.md
	$(BIN)/python -m cordwood.cli.reference > docs/cli.md
	$(BIN)/python -m cordwood.node.protocol_support > docs/protocol-support.md

clean:
	rm -rf $(VENV) cordwood-data
