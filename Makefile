# make demo and make test need Python 3.11+, make and a package registry; they set up everything else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHARED ?= ../shared
PEERS := opendp smartnoise pipelinedp tumult qrlew
FIRST ?= 1
SEEDS ?= 100000
MINUTES ?= 0
SHARE ?= 1/12
# Each process has a broker and a store of its own; one that is done takes tests from another.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# Compiled modules are kept: hundreds of processes start in the tests, and each would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-daily test test-all test-tools test-share check docs pages dashboard lock bench-flights bench-wide bench-tiles bench-learning bench-averages bench-fidelity bench-persons bench-keys bench-stream bench-counters bench-changes bench-fairness bench-looks bench-running bench-fresh bench-sweeps bench-state bench-start bench-peers bench-questions lock-peers soak audit clean

demo: $(VENV)/demo.stamp  ## Twelve months of real flights through Kafka and Redis, with a live view
	@$(BIN)/stream-dp demo

demo-daily: $(VENV)/demo.stamp  ## Two months of flights, a phase a day, with tiles and an alert; then running totals and a late file, by the clock
	@$(BIN)/stream-dp demo --daily

help:  ## This list
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/make \1: \2/p' $(MAKEFILE_LIST)

test: $(VENV)/dev.stamp  ## The tests to run before each commit, in about nine minutes on two idle cores
	$(PYTEST) -m "not slow"

test-all: $(VENV)/dev.stamp  ## Every test there is, in some 45 minutes; what cannot start fails
	CI=true $(PYTEST)

test-tools: $(VENV)/dev.stamp build/tools/superset.stamp build/tools/dbt.stamp  ## Superset in a browser, and dbt, through the gateway; not part of CI
	$(BIN)/python -m pytest tests/tools

test-share: $(VENV)/dev.stamp  ## One of twelve shares, SHARE=3/12, of what only test-all runs
	CI=true $(PYTEST) -m slow --share $(SHARE)

check: $(VENV)/dev.stamp docs  ## Format, lint, types, import contracts, compose file, pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

docs: $(VENV)/dev.stamp  ## The pages as a site, in build/site; every link is checked
	@NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --quiet

pages: $(VENV)/dev.stamp  ## Write those pages again that follow from the code
	$(BIN)/python tools/pages.py

bench-flights: $(VENV)/dev.stamp  ## Workload W4 through Kafka and Redis, beside the baselines
	$(BIN)/python benchmarks/flights.py $(SHARED)/data/nycflights13.csv.gz

bench-wide: $(VENV)/dev.stamp  ## Workload W5, the engine alone
	$(BIN)/python benchmarks/wide.py $(SHARED)/data/adult.csv.gz

bench-averages: $(VENV)/dev.stamp  ## Averages of orders at a part of a line, by a look at the sum and by the table
	$(BIN)/python benchmarks/averages.py

bench-tiles: $(VENV)/dev.stamp  ## Fifty tiles of a dashboard about orders, the engine alone
	$(BIN)/python benchmarks/tiles.py

bench-learning: $(VENV)/dev.stamp  ## The plan that learns beside the best of eight fixed settings, the engine alone
	$(BIN)/python benchmarks/learning.py

bench-questions: $(VENV)/dev.stamp  ## Ordinary questions to three tables: which answers are of use, and what they cost
	$(BIN)/python benchmarks/questions.py $(SHARED)/data/adult.csv.gz $(SHARED)/data/nycflights13.csv.gz

bench-fidelity: $(VENV)/dev.stamp  ## Workload W6: the thesis profile on 1e17 rows, the engine alone
	$(BIN)/python benchmarks/fidelity.py

bench-persons: $(VENV)/dev.stamp  ## Workload W4 with persons as the protected unit, the engine alone
	$(BIN)/python benchmarks/persons.py $(SHARED)/data/nycflights13.csv.gz
	$(BIN)/python benchmarks/persons.py $(SHARED)/data/nycflights13.csv.gz --exact-margins

bench-keys: $(VENV)/dev.stamp  ## Values that nobody lists: DP-SQLP's workload, and pages day by day through Kafka
	$(BIN)/python benchmarks/keys.py
	$(BIN)/python benchmarks/keys.py --daily

bench-stream: $(VENV)/dev.stamp  ## Throughput and latency beside echoes with Faust and aiokafka
	$(BIN)/python benchmarks/stream.py

bench-gateway: $(VENV)/dev.stamp  ## The Postgres port beside the client, and 50 busy connections beside 1,000 idle ones
	$(BIN)/python benchmarks/gateway.py

bench-changes: $(VENV)/dev.stamp  ## Change events of a table for an hour, while workers are killed: is the data set the table?
	$(BIN)/python benchmarks/changes.py

bench-fairness: $(VENV)/dev.stamp  ## How long one data set's long records keep another one waiting
	$(BIN)/python benchmarks/fairness.py

bench-peers: $(VENV)/dev.stamp $(PEERS:%=build/peers/%.stamp)  ## The same streams through five peers as published
	$(BIN)/python benchmarks/peers.py $(SHARED)/data/nycflights13.csv.gz

dashboard: $(VENV)/dev.stamp  ## Grafana's two, from deploy/grafana/generate.py
	$(BIN)/python deploy/grafana/generate.py > deploy/grafana/dashboards/stream-dp.json
	$(BIN)/python deploy/grafana/generate.py tiles > deploy/grafana/dashboards/tiles.json

bench-counters: $(VENV)/dev.stamp  ## Rows off a topic of yours, by one counter and by two
	$(BIN)/python benchmarks/counters.py

bench-looks: $(VENV)/dev.stamp  ## Looks at columns in Redis, in files and on a Dask cluster, beside DuckDB
	$(BIN)/python benchmarks/looks.py

bench-running: $(VENV)/dev.stamp  ## Running totals of a period beside other ways to count it at each tick
	$(BIN)/python benchmarks/running.py

bench-fresh: $(VENV)/dev.stamp  ## Ticks, a day that the clock closes and late rows on real servers, in a quarter of an hour
	$(BIN)/python benchmarks/fresh.py

bench-sweeps: $(VENV)/dev.stamp  ## What erasing persons takes: a sweep of 1e8 rows, in files, in some minutes
	$(BIN)/python benchmarks/sweeps.py

bench-state: $(VENV)/dev.stamp  ## What rows, answers, phases and persons take in Kafka, Redis and the worker
	$(BIN)/python benchmarks/state.py

bench-start: $(VENV)/dev.stamp  ## How long a worker takes to start after 1,000 phases and with 10 million ids
	$(BIN)/python benchmarks/state.py --start

soak: $(VENV)/dev.stamp  ## Random faults for MINUTES, or until enough of each kind are tried; a report in build/soak.txt
	$(BIN)/python -m tests.faults --minutes $(MINUTES) --seed $(FIRST) --seeds $(SEEDS)
	@test $(MINUTES) != 0 || SOAK=1 $(PYTEST) tests/model \
		$(addprefix tests/pipeline/,test_crashes.py test_owners.py test_calendar.py test_limits.py)

audit: $(VENV)/dev.stamp  ## Lower bounds on epsilon, measured through the worker, and those of broken copies; some 55 minutes on two cores
	$(BIN)/python tests/audit/audit.py

lock:  ## Pin the requirements again, with hashes
	$(BIN)/uv pip compile pyproject.toml $(LOCK) --all-extras --group test --group check --group docs -o requirements/dev.txt
	$(BIN)/uv pip compile pyproject.toml $(LOCK) -c requirements/dev.txt --extra arrow --extra cluster --extra s3 -o requirements/worker.txt
	$(BIN)/uv pip compile pyproject.toml $(LOCK) -c requirements/dev.txt --extra embedded -o requirements/demo.txt
	echo hatchling | $(BIN)/uv pip compile - $(LOCK) -c requirements/dev.txt -o requirements/build.txt

lock-peers: $(BIN)/uv  ## Pin what bench-peers installs again, with hashes
	cd benchmarks/drivers && for peer in $(PEERS); do \
		$(CURDIR)/$(BIN)/uv pip compile $(LOCK) $$peer.in -o $$peer.txt || exit 1; done

LOCK := --quiet --generate-hashes --universal --python-version 3.11 --no-header --no-annotate

$(BIN)/uv:
	@echo "Making the environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "stream_dp needs Python 3.11 or newer; try make PYTHON=python3.12")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt

$(VENV)/%.stamp: requirements/%.txt pyproject.toml | $(BIN)/uv
	@echo "Installing the pinned requirements"
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --require-hashes -r $<
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --editable .
	@touch $@

# A peer that does not install here is left out, and the table says so.
build/peers/%.stamp: benchmarks/drivers/%.txt | $(BIN)/uv
	@echo "Making the environment of the peer $*"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/peers/$*
	@if VIRTUAL_ENV=build/peers/$* $(BIN)/uv pip install --quiet --require-hashes -r $<; \
		then touch $@; else rm -rf build/peers/$* $@; fi

build/tools/%.stamp: tests/tools/%.txt | $(BIN)/uv
	@echo "Installing $*"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/tools/$*
	@VIRTUAL_ENV=build/tools/$* $(BIN)/uv pip install --quiet -r $<
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
