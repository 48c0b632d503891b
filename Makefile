# Everything a newcomer needs: `make demo`, `make test`, `make bench`. After changing settings, commands or APIs: `make docs`.
# The documentation as a site with search: `make site`.
# The longer suites: `make test-stories`, `make test-spark`, `make test-spark-versions`, `make test-interop`, `make test-crash`, `make soak`. CONTRIBUTING.md says which when.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# With this variable set, every process that a test starts would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

# Runs a command and prints its time against the budget of its suite.
SUITE := $(BIN)/python -m tests.suites
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist worksteal
WORKERS := 3

.PHONY: demo test lint pytest test-stories test-spark test-spark-versions test-interop test-crash interop soak bench bench-cluster bench-spark docs site types env clean

env: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) .ci/install.py $(VENV) dev
	@touch $@

demo: env
	@$(BIN)/cordwood demo $(if $(CHAPTER),--chapter $(CHAPTER))

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Runs lint and tests side by side, since mypy keeps one core busy for most of a minute. Both have to pass.
test: env
	@$(SUITE) landing -- $(MAKE) --no-print-directory --jobs=2 lint pytest

# Two cores have work for four: half of a story's time is waiting.
pytest: WORKERS := 4
pytest: env $(VENV)/.compiled
	$(PYTEST) -m landing

# In a fresh clone each worker would compile all packages, sources and tests for itself, 17 s of CPU.
$(VENV)/.compiled: $(VENV)/.installed
	@$(BIN)/pytest --collect-only -qq > $@ || true

test-stories: env
	@$(SUITE) stories -- $(PYTEST) -m stories

test-spark: env
	@$(SUITE) spark -- $(PYTEST) -m spark

# Fetches four versions of Spark the first time, 2 GB in ~/.cache/cordwood.
test-spark-versions: WORKERS := 2
test-spark-versions: env
	@$(SUITE) versions -- $(PYTEST) -m versions

test-interop: env
	@$(SUITE) interop -- $(PYTEST) -m interop

test-crash: env
	@$(SUITE) crash -- $(PYTEST) -m crash

# Other people's software: Kafka Streams, Connect with Debezium, MirrorMaker, clients in Go and JavaScript. Writes
# docs/compatibility.md. STORY=streams plays one story.
interop: env
	$(BIN)/python -m tests.interop_software $(STORY)

soak: env
	@$(SUITE) soak -- $(PYTEST) -m soak

bench: env
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

bench-cluster: env
	$(BIN)/python -m benchmarks.cluster $(if $(QUICK),--quick)

bench-spark: env
	$(BIN)/python -m benchmarks.spark $(if $(QUICK),--quick)

docs: env
	$(BIN)/python -m cordwood.model.settings.configuration_reference > docs/configuration.md
	$(BIN)/python -m cordwood.metrics.reference > docs/metrics.md
	$(BIN)/python -m cordwood.cli.reference > docs/cli.md
	$(BIN)/python -m cordwood.node.protocol_support > docs/protocol-support.md
	$(BIN)/python -m cordwood.node.rights_reference > docs/rights.md

# The pages of docs/ as a site, in site/. A broken link or anchor, or a page outside of the navigation, fails.
site: env
	$(BIN)/mkdocs build --strict

# The types of the wire's messages, after a change of src/cordwood/wire/messages or of an API's key.
types: env
	$(BIN)/python -m cordwood.wire.declarations

clean:
	rm -rf $(VENV) cordwood-data site
