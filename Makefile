# Everything runs in .venv, the demo in .demo; both are made here from pinned versions.
# Nothing is assumed but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO ?= .demo
# An old release of the SDK that we stand in for, which needs an old release of the MCP library.
OLD_SDK := $(VENV)/sdk-0.1.6
TYPESCRIPT := $(VENV)/.typescript
# Tests wait for processes more than they compute; each file stays in one worker.
JOBS ?= 3

# Otherwise each worker compiles every test anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test check pyright mypy collect bench soak schemas prices formats clean

setup: $(STAMP) $(TYPESCRIPT)

$(STAMP): requirements.txt requirements-mcp.txt requirements-runtime.txt requirements-dev.txt requirements-old-sdk.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Batten needs Python 3.11 or newer; set PYTHON=…" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements.txt --requirement requirements-mcp.txt --requirement requirements-runtime.txt --requirement requirements-dev.txt
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	$(BIN)/python -m compileall -q src
	test -x $(OLD_SDK)/bin/python || $(BIN)/python -m venv $(OLD_SDK)
	$(OLD_SDK)/bin/python -m pip install --quiet --requirement requirements-old-sdk.txt
	sh scripts/debian.sh
	touch $(STAMP)

$(TYPESCRIPT): $(STAMP) scripts/typescript.sh
	sh scripts/typescript.sh $(VENV)
	touch $(TYPESCRIPT)

demo: $(DEMO)/installed
	@sh demo/demo.sh $(DEMO)

# What a user needs, and nothing that the checks and tests need.
$(DEMO)/installed: requirements.txt demo/install.sh
	@mkdir -p $(DEMO)
	@sh demo/install.sh $(PYTHON) $(DEMO)/venv
	@touch $(DEMO)/installed

check: setup
	$(BIN)/ruff format --check src tests bench examples scripts
	$(BIN)/ruff check src tests bench examples scripts
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target pyright mypy collect

# These take a core for as long as the others together, and are printed one after the other.
pyright:
	$(BIN)/pyright

mypy:
	$(BIN)/mypy

# Finds and compiles all tests, once for all workers.
collect:
	$(BIN)/python -m pytest --collect-only -qq > $(VENV)/collected || { cat $(VENV)/collected; false; }

test: check
	@sh scripts/test.sh $(BIN)/python $(JOBS) $(VENV)

soak: export BATTEN_SOAK = 1
soak: setup
	$(BIN)/python -m pytest -m soak -o faulthandler_timeout=1800
	$(BIN)/python -m pytest -m "hypothesis and not soak"

bench: setup
	$(BIN)/python -m bench

schemas: setup
	$(BIN)/python -m scripts.generate_schemas
	$(BIN)/python -m scripts.generate_http_docs
	$(BIN)/python -m scripts.generate_coordination_page
	$(BIN)/python -m scripts.generate_typescript

prices: setup
	$(BIN)/python -m scripts.generate_prices

formats: setup
	$(BIN)/python -m scripts.generate_formats

clean:
	rm -rf $(VENV) $(DEMO) .mypy_cache .ruff_cache .hypothesis
