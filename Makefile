# gitlab-sync. Every target does all of its own set-up: a fresh machine needs Python 3.11 or later (with venv), git and
# make. `make` alone lists the targets.
#
# Recipes print nothing of their own to stdout: the last line of `make demo ONCE=1` is read by programs.

PYTHON ?= python3
WORKERS ?= 2
PYTEST_ARGS ?=
CHAOS_ARGS ?=
SCENARIOS_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.installed-run
DEV := $(VENV)/.installed-dev
SCRIPTS := .ci/run .ci/install-helm.sh .ci/install-nginx.sh gitlab_sync/sandbox/database/install-mysql.sh

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-unit test-helm test-observability chart-reference requirements test-chaos test-failover test-fidelity test-scenarios check bench clean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  Variables: ONCE=1 and REQUESTS=n (demo), WORKERS=n (test), PYTEST_ARGS='-k word' (test, test-…),"
	@echo "  CHAOS_ARGS='--parts storm --servers mysql' (test-chaos), SCENARIOS_ARGS='--only 7a --modes hooks' (test-scenarios),"
	@echo "  PYTHON=python3.12 (which interpreter makes .venv)."

demo: $(RUN) ## watch requests land: database, GitLab simulator, two replicas (ONCE=1 REQUESTS=120: end after a summary)
	@$(BIN)/gitlab-sync sandbox $(if $(filter-out 0 no,$(ONCE)),--once) $(if $(REQUESTS),--requests $(REQUESTS))

test: $(DEV) ## run the whole suite on MySQL and on MariaDB
	@$(BIN)/python -m gitlab_sync.sandbox.database
	@$(BIN)/pytest tests/unit $(PYTEST_ARGS)
	@$(BIN)/pytest tests --ignore=tests/unit --ignore=tests/failover -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

test-unit: $(DEV) ## run the unit tests: seconds, no server
	@$(BIN)/pytest tests/unit $(PYTEST_ARGS)

test-helm: $(DEV) ## the chart on Helm 4 and 3 and against ten versions of Kubernetes, the image's files (part of test)
	@$(BIN)/pytest tests/helm -n $(WORKERS) $(PYTEST_ARGS)

test-observability: $(DEV) ## from the service to the pager through real Prometheus and Alertmanager; the dashboard (part of test)
	@$(BIN)/python -m gitlab_sync.sandbox.database mysql
	@$(BIN)/pytest tests/observability tests/helm/test_dashboard.py -n $(WORKERS) --dist loadfile --durations 15 --durations-min 0.5 $(PYTEST_ARGS)

test-chaos: $(DEV) ## the long forms: faults at full size, storms, races by the ten thousand; at most an hour
	@$(BIN)/python -m gitlab_sync.sandbox.database
	@$(BIN)/python -m tests.chaos.run $(CHAOS_ARGS)

test-failover: $(DEV) ## a group of three MySQL servers loses its primary under load: three minutes, 2 GB of memory
	@$(BIN)/python -m gitlab_sync.sandbox.database mysql
	@$(BIN)/pytest tests/failover $(PYTEST_ARGS)

test-fidelity: $(DEV) ## run python-gitlab's own tests against the GitLab simulator and print how many pass
	@$(BIN)/python -m tests.fidelity.run

test-scenarios: $(DEV) ## 22 scenarios of GitLab, people and network, in five delivery modes: prints the table; four minutes
	@$(BIN)/python -m gitlab_sync.sandbox.database
	@$(BIN)/python -m tests.scenarios.run $(SCENARIOS_ARGS)

check: $(DEV) ## format, lint, types, import rules, dependencies, shell scripts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/deptry .
	@$(BIN)/shellcheck --severity=warning $(SCRIPTS)

chart-reference: $(DEV) ## write the chart's schema and table of values from the comments of helm/values.yaml
	@$(BIN)/python -m tests.support.chart_reference

requirements: $(DEV) ## resolve anew what the image installs: requirements/*.txt, by hash and without addresses
	@$(BIN)/python -m tests.support.requirements

bench: $(DEV) ## measure, print the tables, write one JSON file
	@$(BIN)/python bench/run.py

clean: ## remove what was made in this folder (the user's cache folder with the servers stays)
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
	@find hooks gitlab_sync sql tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Two stamps: the demo installs a third of what the tests need. Each is as old as the pyproject.toml it was made from.
$(RUN): pyproject.toml
	@$(make-venv)
	@echo "installing gitlab-sync into $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --editable '.[sandbox]' >&2
	@touch $@

$(DEV): pyproject.toml
	@$(make-venv)
	@echo "installing gitlab-sync and its development tools into $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --editable '.[dev]' >&2
	@touch $@ $(RUN)

# A .venv whose interpreter has gone (or is too old) is made anew.
define make-venv
	command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing. Debian: apt-get install python3 python3-venv" >&2; exit 1; }; \
	new_enough='import sys; sys.exit(sys.version_info < (3, 11))'; \
	$(PYTHON) -c "$$new_enough" || { echo "$$($(PYTHON) --version) is too old: gitlab-sync needs Python 3.11 or later. make PYTHON=python3.12 names another one" >&2; exit 1; }; \
	$(PYTHON) -c 'import venv; from ensurepip import version' 2>/dev/null || { echo "Python's venv module is incomplete. Debian: apt-get install python3-venv" >&2; exit 1; }; \
	$(BIN)/python -c "$$new_enough" 2>/dev/null && $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
endef
