# run    install into .venv and start placement-server, agent and scheduler on this machine
#        (make run ARGS=--once, make run ARGS="--port 9000 --state-dir DIR")
# check  static checks (with ruff format --check) and unit tests in .venv, for while you edit: a
#        minute, and seconds for a part (make check ARGS=tests/unit/report)
# test   install what the tests need and run them all (make test ARGS="-e unit")
# deb    build the Debian packages into dist/
# clean  remove what run and test made in this checkout; the state of `make run` stays

VENV := .venv
INSTALLED := $(VENV)/.installed
CHECKS_INSTALLED := $(VENV)/.installed-unit
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run check test deb clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# `exec`, so that Ctrl-C and SIGTERM reach the program itself and its exit status is make's.
run: $(INSTALLED)
	@exec $(VENV)/bin/compute-agent dev $(ARGS)

# All tests named by ARGS; the static checks look at what changed since they last did.
check: $(CHECKS_INSTALLED)
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --check --quiet . || \
	    { echo "== run: $(VENV)/bin/ruff format ."; exit 1; }
	@$(VENV)/bin/mypy & mypy=$$!; \
	    $(VENV)/bin/lint-imports >$(VENV)/imports.out 2>&1 || { cat $(VENV)/imports.out; wait; exit 1; }; \
	    wait $$mypy
	@exec $(VENV)/bin/python -m pytest -q -n 2 --dist worksteal $(or $(ARGS),tests/unit)

test:
	@exec sh tools/test.sh $(ARGS)

deb:
	@exec sh tools/deb.sh

clean:
	rm -rf $(VENV) .tox .run build dist *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last: an installation that was interrupted is done again.
$(INSTALLED): EXTRA := dev
$(CHECKS_INSTALLED): EXTRA := lint,unit
$(INSTALLED) $(CHECKS_INSTALLED): setup.cfg pyproject.toml constraints.txt
	@sh tools/check_python.sh
	@if ! $(VENV)/bin/python -c 'import pip' 2>/dev/null; then \
	    echo "== making a virtual environment in $(VENV)"; \
	    python3 -m venv --clear $(VENV); \
	fi
	@echo "== installing compute-agent and what it needs into $(VENV); the first time takes a minute"
	@$(VENV)/bin/python -m pip install --disable-pip-version-check --progress-bar off \
	    --constraint constraints.txt --editable '.[$(EXTRA)]' 2>$(VENV)/install.err \
	    | awk -v tty="$$(test -t 1 && echo yes)" \
	          '/^(Collecting|Processing)/ { ++n; if (tty) printf "\r   %d packages", n; fflush() } \
	           /^Installing collected/ { printf "\r   installing %d packages\n", n; fflush() }' \
	    || { grep -v '^WARNING' $(VENV)/install.err | tail -n 15; \
	         echo "== the installation failed (all that pip said: $(VENV)/install.err);" \
	              "correct that and run make again"; exit 1; }
	@touch $(INSTALLED) $@
