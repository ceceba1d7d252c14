# Baton: `make run` and `make test` do all their own set-up. `make help` lists the rest.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV  := .venv
BIN   := $(VENV)/bin
RAW   ?=
FLAGS ?=
PROOF ?=
PORT  ?= 3000
MLFLOW_PORT ?= 5000
export PORT MLFLOW_PORT
export DAGSTER_DISABLE_TELEMETRY := 1
export MLFLOW_DISABLE_TELEMETRY := true
export DO_NOT_TRACK := 1

.PHONY: help setup system run test test-fast coverage lint live fidelity mutants bench dev mlflow lock sample docs site clean

help:            ## list the targets
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:[^#]*## */\t/' | expand -t 12

setup: $(VENV)/.ready ## make .venv with everything in it (about a minute)

# torch goes in by pip alone: it is left out of the hashed lock so that a CPU build can be chosen
# (TORCH_INDEX=https://download.pytorch.org/whl/cpu on a machine where pip's default is the CUDA build).
$(VENV)/.ready: pyproject.toml requirements.lock
	python3 -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v == (3, 11) else f"Baton needs Python 3.11, python3 is {v[0]}.{v[1]}")'
	test -x $(BIN)/python || python3 -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check uv
	$(BIN)/pip install -q --disable-pip-version-check $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	$(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python --no-deps --require-hashes -r requirements.lock
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	touch $@

system:          ## Debian packages for the live tests: a real Slurm, and Chromium (needs root)
	./tests/live/install-packages

run: setup       ## the whole pipeline on the bundled sample, or RAW=DIR (FLAGS="--cluster ... --timezone ...")
	$(BIN)/baton run $(if $(RAW),--raw "$(RAW)") $(FLAGS)

test: setup      ## lint, types, import rules, every test
	$(MAKE) --no-print-directory lint
	$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "not alone"
	$(BIN)/pytest -q -m alone
# The second run bounds processor time, which a neighbour on the same core stretches.

test-fast: setup ## the tests that need no second program
	$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "not live and not browser and not slow"

# Percent of its lines that the tests must run, of each package, as measured and rounded down. Tracing costs about a quarter more
# processor time, so `make test` goes without, and tests that bound a time are left out here.
FLOORS := pipelines=96 assets=99 reports=98 models=97 agent=99 features=99 simulator=98 traces=98

coverage: setup  ## the share of each package's lines that the tests run, not below its floor
	$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "not timed" --cov --cov-report=
	@set -e; for floor in $(FLOORS); do \
	  share=$$($(BIN)/coverage report --include="$${floor%=*}/*" --precision=2 --format=total); \
	  echo "$${floor%=*}: $$share % of its lines, floor $${floor#*=} %"; \
	  $(BIN)/coverage report --include="$${floor%=*}/*" --precision=2 --fail-under=$${floor#*=} --format=total > /dev/null; \
	done

lint: setup      ## ruff, mypy, import-linter, vulture
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vulture

live: setup      ## the long form of the tests against a real Slurm; PROOF="--champion DIR" to try a policy of yours
	BATON_REQUIRE=slurm BATON_LIVE=full $(BIN)/pytest -q -s -m live tests/live
	$(BIN)/python -m tests.live.proof $(PROOF)

fidelity: setup  ## how far the slurm scheduler is from three recorded runs of a real Slurm (docs/fidelity.md)
	$(BIN)/python -m tests.live.figures

mutants: setup   ## small changes of features/observe, models and agent that no test notices (hours; MODULES="features/observe.py" for some)
	$(BIN)/python -m bench.mutants.run $(FLAGS) $(MODULES)

bench: setup     ## every benchmark in bench/, each a ratio against a named peer in the same run
	for b in bench/bench_*.py; do $(BIN)/python $$b || exit 1; done

dev: setup       ## the Dagster UI on http://127.0.0.1:3000
	export DAGSTER_HOME="$$(realpath "$${DAGSTER_HOME:-$$($(BIN)/baton dagster-home)}")"; \
	  if [ -n "$$BATON_DATA" ]; then export BATON_DATA="$$(realpath "$$BATON_DATA")"; fi; \
	  cd "$$DAGSTER_HOME" && exec env --default-signal=INT PYTHONWARNINGS=ignore:Function:FutureWarning \
	  $(CURDIR)/$(BIN)/dagster dev -h 127.0.0.1 -p $(PORT) -d "$(CURDIR)" -m pipelines.definitions
# In DAGSTER_HOME, because Dagster warns of a dagster.yaml in any other present folder; and of its own successor `dg`.
# A shell starts background jobs with SIGINT ignored, and Dagster handles SIGTERM as it handles SIGINT.

mlflow: setup    ## the MLflow UI on http://127.0.0.1:5000
	uri="$$($(BIN)/baton mlflow-uri)" && exec $(BIN)/mlflow server --app-name baton --workers 1 --host 127.0.0.1 --port $(MLFLOW_PORT) --backend-store-uri "$$uri"

lock: setup      ## pin again after a change of pyproject.toml
	$(BIN)/uv pip compile -q --no-header --no-annotate --generate-hashes --all-extras \
	  $(foreach p,$(NOT_LOCKED),--no-emit-package $(p)) pyproject.toml -o requirements.lock
# torch, and what only its CUDA build needs
NOT_LOCKED := torch triton cuda-bindings cuda-pathfinder cuda-toolkit $(addprefix nvidia-,cublas cuda-cupti cuda-nvrtc \
  cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse cusparselt-cu13 nccl-cu13 nvjitlink nvshmem-cu13 nvtx)

sample: setup    ## make data/sample again from its seed
	$(BIN)/baton generate --sample --out data/sample

docs: setup      ## write the generated pages of docs again: columns, oddities, schedulers, results, pictures
	$(BIN)/python -m docs.generate

site: setup      ## the documentation as a site in build/site, offline and searchable; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

clean:           ## forget everything derived (data/lake, warehouse, mlflow, artifacts)
	rm -rf data/lake data/warehouse.duckdb data/mlflow data/artifacts data/reports data/dagster
