# Every target makes .venv itself when it is missing or out of date.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready
DEMO   := $(VENV)/.demo
NEEDS  := pyproject.toml setup.py constraints.txt $(wildcard src/graphnorm/csrc/*)
INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e

# The store of a full reproduction, trained anywhere; see docs/howto/reproduce.md.
STORE  ?= results/graphnorm.db

# What `make dist` tries its files with: the torch of the tests, built for CPUs (200 MB; with CUDA it would be 5 GB).
PYTHONS ?= python3.11 python3.12 python3.13
TORCH   ?= $(shell grep '^torch==' constraints.txt)+cpu --retries 1 --extra-index-url https://download.pytorch.org/whl/cpu

.PHONY: help venv demo reproduce-quick gallery queue test coverage fuzz lint bench test-gpu docs dist clean
.DEFAULT_GOAL := help

help:           ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(PY):
	@echo "making $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)

$(DEMO): $(NEEDS) | $(PY)
	$(INSTALL) ".[study,chem]"
	@touch $@

$(READY): $(NEEDS) | $(PY)
	$(INSTALL) ".[dev]"
	@touch $(DEMO) $@

venv: $(READY)  ## make the environment and compile the CPU kernels

demo: $(DEMO)   ## which normalization for molecules? about two minutes on two cores
	$(VENV)/bin/graphnorm compare molecules --out build/demo --overwrite

reproduce-quick: $(READY)  ## the paper's tables and figures, scaled down; under 15 minutes on two cores
	$(VENV)/bin/graphnorm reproduce all --quick --out build/reproduction-quick

gallery: $(READY) ## tables, figures, claims and docs/gallery/ of a reproduction's STORE; trains nothing
	$(VENV)/bin/graphnorm reproduce all --no-train --store $(STORE) --out results
	$(VENV)/bin/graphnorm report --store $(STORE) --items results --out docs/gallery/gallery.html --title "The GraphNorm paper, measured again"

queue: $(READY)  ## train what benchmarks/trainings/queue.toml lists and STORE lacks; goes on where it was stopped
	$(PY) -m benchmarks.trainings --store $(STORE)

test: $(READY)  ## run the checks and all tests
	$(MAKE) --no-print-directory lint
	$(PY) -m pytest -q -n 2 --dist worksteal

coverage: $(READY)  ## the tests with coverage, which takes a third longer
	$(PY) -m pytest -q -n 2 --dist worksteal --cov --cov-report=term

fuzz: $(READY)  ## try about 10,000 damaged files and absurd inputs; make test tries a few hundred
	$(PY) -m pytest -q tests/fuzz --hypothesis-profile=fuzz --timeout=3600

lint: $(READY)  ## ruff and mypy
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

bench: $(READY) ## measure layers and whole models against PyTorch Geometric; writes benchmarks/results/ and README's table
	$(PY) -m benchmarks.run
	$(PY) -m benchmarks.models
	$(PY) -m benchmarks.readme

test-gpu: $(READY) ## the tests that need a GPU, in parallel processes
	$(PY) -m pytest -q -n 8 --dist worksteal -m gpu

docs: $(READY)  ## build the documentation into docs/_build/html
	$(PY) -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

dist: $(READY)  ## build sdist and wheels into dist/, and try each without a compiler (PYTHONS, TORCH)
	rm -rf dist build/lib* build/bdist* build/wheel
	$(PY) -m build --sdist --outdir dist
	$(PY) -m build --wheel --outdir build/wheel
	PATH="$(abspath $(dir $(PY))):$$PATH" $(PY) -m auditwheel repair --wheel-dir dist build/wheel/*.whl
	rm -rf build/lib* build/bdist*
	GRAPHNORM_PURE=1 $(PY) -m build --wheel --outdir dist
	$(PY) packaging/try_wheels.py dist --torch "$(TORCH)" $(PYTHONS)

clean:          ## remove everything that the other targets make
	rm -rf $(VENV) build dist docs/_build src/*.egg-info src/graphnorm/*.so
