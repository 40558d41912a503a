# Everything a person does with this repository. Needs Python 3.11 or newer; the tests need Java 17 too.

VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Stamps: what is installed stays installed until what it is made of changes.
PYTHON    := $(BIN)/python
INSTALLED := $(VENV)/.installed
DEVELOPED := $(VENV)/.installed-for-development
SOURCES   := pyproject.toml setup.py $(shell find src -name '*.py' -o -name '*.[ch]')

# The tests run with what is installed, where the hot path may be compiled, and those of its rooms with the source too.
COMPILED_ROOMS := tests/replication tests/rules tests/server tests/storage tests/transport \
	tests/client/test_consumer.py tests/client/test_round_trip.py tests/client/test_spans.py

# Two at a time, since most of them wait most of the time. Clusters are broken and brokers killed on a machine that may be
# busy with something else: what fails is run once more by itself, and what fails again has failed.
tested = $(BIN)/pytest $(1) -n 2 --dist loadfile --no-loadscope-reorder || \
  { [ $$? = 1 ] && echo "Once more, what failed:" && $(BIN)/pytest $(1) --last-failed; }

.DEFAULT_GOAL := help
.PHONY: help start install java test check bench interop fuzz chaos faults clean

help: ## show this
	@echo "make …"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name what; do \
	  printf '%-10s %s\n' "$$name" "$$what"; done

start: $(INSTALLED) ## start a broker on 127.0.0.1:9092 with its data in ./penstock-data
	@exec $(BIN)/penstock start --listen 127.0.0.1:9092 --data ./penstock-data

install: $(INSTALLED) ## make .venv/bin/penstock
	@$(BIN)/penstock version
	@echo "Installed. Try: $(BIN)/penstock -h"

test: java $(INSTALLED) $(DEVELOPED) ## check style, types and layers, and run the tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports
	$(call tested,--installed)
	$(call tested,$(COMPILED_ROOMS))

check: test ## do what CI does

bench: $(INSTALLED) $(DEVELOPED) ## measure this broker, beside Apache Kafka where there is Java and Maven
	$(PYTHON) -m bench $(ARGS)

interop: $(INSTALLED) $(DEVELOPED) ## run other people's clients and tools against this broker (ARGS=--cluster: three)
	$(PYTHON) -m interop $(ARGS)

fuzz: $(INSTALLED) $(DEVELOPED) ## send it garbage for as long as you like
	$(PYTHON) -m tests.fuzz $(ARGS)

chaos: $(INSTALLED) $(DEVELOPED) ## break brokers, applications or (ARGS=--cluster) a whole cluster for as long as you like
	$(PYTHON) -m tests.chaos $(ARGS)

faults: $(INSTALLED) $(DEVELOPED) ## break a cluster in every way of docs/faults.md, ROUNDS=3 times (make test: once)
	$(BIN)/pytest --installed --fault-rounds $(or $(ROUNDS),3) tests/matrix

clean: ## forget what was installed; data stays
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(DEVELOPED): pyproject.toml | $(INSTALLED)
	@echo "Installing what the tests need …"
	@$(PIP) install 'pip>=25.1'
	@$(PIP) install --group dev
	@touch $@

$(INSTALLED): $(SOURCES) | $(PYTHON)
	@echo "Installing penstock into $(VENV), its hot path compiled if there is a C compiler …"
	@rm -rf build
	@$(PIP) install .
	@touch $@

# The tests start ZooKeeper and Spark. Where Java is missing it is installed if that can be done, else this says so.
java:
	@java -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing Java 17 …"; \
	  apt-get -qq update >/dev/null 2>&1; \
	  apt-get -qq install -y --no-install-recommends openjdk-17-jre-headless >/dev/null 2>&1 && exit 0; \
	fi; \
	echo "The tests need Java 17 or newer (ZooKeeper, Spark): install openjdk-17-jre-headless and try again."; exit 1

# Debian's Python comes without ensurepip: then pip comes from another pip.
$(PYTHON):
	@for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  echo "Creating $(VENV) with $$($$python --version) …"; \
	  $$python -m venv --clear $(VENV) >/dev/null 2>&1 && exit 0; \
	  rm -rf $(VENV); $$python -m venv --without-pip $(VENV) || continue; \
	  $$python -m pip --python $(VENV)/bin/python install --quiet pip 2>/dev/null && exit 0; \
	  rm -rf $(VENV); echo "Could not get pip: install python3-venv, or pip, and try again."; exit 1; \
	done; \
	echo "Penstock needs Python 3.11 or newer; there is none among python3, python3.11 … python3.14."; exit 1
