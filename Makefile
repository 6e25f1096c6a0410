# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV := $(VENV)/.dev
PIP := $(BIN)/pip install -q --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint stubs docs release compat bench clean

demo: $(READY)
	$(BIN)/maskalg demo

# Two workers on two cores: a thread each. A test that hangs is stopped and named.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --timeout 600 --ignore=tests/interpreter tests
	OMP_NUM_THREADS=1 TRITON_INTERPRET=1 $(BIN)/pytest -q -n 2 --timeout 600 tests/interpreter

lint: $(DEV)
	$(BIN)/python .ci/stubs.py --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/vulture

# What type checkers see of the masks, biases and weights: after adding one.
stubs: $(DEV)
	$(BIN)/python .ci/stubs.py

# A page that cannot be built, or a link that leads nowhere, is an error. Nothing is fetched.
docs: $(DEV)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

release: $(DEV)
	rm -rf dist build
	$(BIN)/python -m build --no-isolation >/dev/null
	$(BIN)/python .ci/check_release.py

# Every supported torch with its Triton, in environments of their own: see .ci/compat.py.
compat:
	$(PYTHON) .ci/compat.py

bench: $(READY)
	$(BIN)/python benchmarks/cpu_attention.py

# torch first and by its exact version: a range would take the newest build, with gigabytes of CUDA.
# pip compiles what it installs, but not what it installs as editable: commands start 0.3 s sooner.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) setuptools torch==2.13.0
	$(PIP) --no-build-isolation -e .
	@$(BIN)/python -m compileall -q maskalg kernels
	@touch $@

$(DEV): $(READY)
	$(PIP) --no-build-isolation -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .compat build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
