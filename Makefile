# Two commands do everything on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo docs docs-images docs-screenshots results test test-slow bench bench-docker lint format protocol \
    mosquitto tshark chromium clean

# Installed once, and again when the pinned versions change. The demo trains an agent, so it needs
# the extra `train`.
.venv/.demo: pyproject.toml constraints.txt
	@echo "installing into .venv (a minute or two, once)"
	@$(PYTHON) -m venv .venv >/dev/null 2>&1 || { \
	    test "$$(id -u)" = 0 && apt-get -qq update && apt-get -qq install -y python3-venv >/dev/null \
	    && $(PYTHON) -m venv .venv; }
	@$(PIP) --editable .[train] torch==2.13.0 2>.venv/install.log || { cat .venv/install.log; exit 1; }
	@touch $@

.venv/.development: .venv/.demo
	@echo "installing what the tests need into .venv (a few minutes, once)"
	@$(PIP) --editable .[dev] 2>.venv/install.log || { cat .venv/install.log; exit 1; }
	@touch $@

.venv/.docs: .venv/.demo
	@echo "installing what the docs site needs into .venv (once)"
	@$(PIP) --editable .[docs] 2>.venv/install.log || { cat .venv/install.log; exit 1; }
	@touch $@

# Tests need mosquitto itself, but not the service that Debian starts with it.
mosquitto:
	@if ! command -v mosquitto >/dev/null && ! test -x /usr/sbin/mosquitto; then \
	    if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
	        echo "installing mosquitto"; \
	        apt-get -qq update && apt-get -qq install -y --no-install-recommends mosquitto >/dev/null; \
	        { systemctl disable --now mosquitto || service mosquitto stop; } >/dev/null 2>&1; \
	    else \
	        echo "mosquitto is missing and tests will fail: install it (apt install mosquitto)"; \
	    fi; \
	fi; true

# One test captures packets.
tshark:
	@if ! command -v dumpcap >/dev/null || ! command -v tshark >/dev/null; then \
	    if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
	        echo "installing tshark"; \
	        apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
	            apt-get -qq install -y --no-install-recommends tshark >/dev/null; \
	    else \
	        echo "tshark is missing and a test will fail: install it (apt install tshark)"; \
	    fi; \
	fi; true

# Tests look at pages in a real browser.
chromium:
	@if ! command -v chromium >/dev/null; then \
	    if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
	        echo "installing chromium"; \
	        apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
	            apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core >/dev/null; \
	    else \
	        echo "chromium is missing and tests will fail: install it (apt install chromium)"; \
	    fi; \
	fi; true

results: .venv/.development
	@$(BIN)/fogveil reproduce

demo: .venv/.demo
	@$(BIN)/python -m fogveil.testbed.experiments.demo

# The site is plain files; to look at it: python3 -m http.server --directory build/site
docs: .venv/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

# Pictures of the quick start, from the output of its commands.
docs-images: .venv/.demo
	@$(BIN)/python -m docs.website.pictures

# Pictures of the page of a run, by a browser.
docs-screenshots: .venv/.development chromium
	@$(BIN)/python -m docs.website.screenshots

# Tests in containers use the Docker engine that is running, or start one as root;
# `make test NO_DOCKER=1` leaves them out, and NO_HOSTS=1 those on hosts that are network namespaces.
test: lint mosquitto tshark chromium
	@$(BIN)/pytest -n auto -m "not slow and not docker$(if $(NO_HOSTS), and not hosts)"
	@test -n "$(NO_DOCKER)" || $(BIN)/pytest -m docker tests/docker

test-slow: .venv/.development mosquitto chromium
	@$(BIN)/pytest -n auto -m slow

bench-docker: .venv/.development mosquitto
	@$(BIN)/python -m benchmarks.containers

bench: .venv/.development
	@$(BIN)/python -m benchmarks.engine
	@$(BIN)/python -m benchmarks.worlds
	@$(BIN)/python -m benchmarks.training
	@$(BIN)/python -m benchmarks.brokers
	@$(BIN)/python -m benchmarks.federated
	@$(BIN)/python -m benchmarks.recovery
	@$(BIN)/python -m benchmarks.secure_totals
	@$(BIN)/python -m benchmarks.departures
	@$(BIN)/python -m benchmarks.privacy
	@$(BIN)/python -m benchmarks.dashboard

lint: .venv/.development
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy
	@$(BIN)/lint-imports >.venv/imports.log || { cat .venv/imports.log; exit 1; }

# The protocol's stubs are checked in; a test fails when they are stale.
protocol: .venv/.development
	@$(BIN)/buf lint
	@$(BIN)/python proto/generate.py

format: .venv/.development
	@$(BIN)/ruff check --fix --quiet
	@$(BIN)/ruff format --quiet

clean:
	rm -rf .venv runs build dist *.egg-info
