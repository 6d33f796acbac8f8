# SPDX-License-Identifier: Apache-2.0
# The tasks of this project. Each creates the .venv that it needs.
PYTHON ?= python3
BIN := .venv/bin
MEMBERS := installer sqshpull workloads testing plugins/nemotron4 plugins/llama31 plugins/nemotronh plugins/microbench plugins/nodes plugins/accept plugins/exemplar plugins/export plugins/nemotron3 plugins/deepseek plugins/gpt_oss plugins/kimi plugins/qwen3 plugins/runai
STAMP := .venv/.installed
NEXT ?= tests/slurm tests/llmb

# Python keeps its bytecode, whatever the caller's environment says: the tests start thousands of Pythons.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-nemo test-bridge test-docs test-runs test-slurm-next test-python-oldest test-faults lint docs site pictures release bench bench-check gpu clean
.DELETE_ON_ERROR:

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

# The demo's clock counts the first installation too.
demo: export DEMO_START := $(shell date +%s)
demo: $(STAMP)  ## run two nights on this machine, the second slow on purpose, and judge them
	@examples/demo.sh $(BIN)

test: $(STAMP)  ## run the tests in parallel; ARGS="-k word -n 0" goes to pytest
	@bash .ci/test-packages
	$(BIN)/pytest -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder $(ARGS)

test-nemo: $(STAMP)  ## test with the real NeMo (2.4 GB, once in ~/.cache/llmb/nemo)
	@python=$$($(BIN)/python tests/real_nemo/venv.py) && \
		LLMB_TEST_NEMO_PYTHON="$$python" $(BIN)/pytest -q tests/real_nemo $(ARGS)

test-bridge: $(STAMP)  ## test with the real Megatron-Bridge (3.4 GB, once in ~/.cache/llmb/bridge)
	@pythons=$$($(BIN)/python tests/real_bridge/venv.py) && \
		LLMB_TEST_BRIDGE_PYTHONS="$$pythons" $(BIN)/pytest -q tests/real_bridge $(ARGS)

DOCUMENTED := tests/integration/test_documented.py tests/slurm/test_documented.py \
	tests/llmb/plugins/test_write_a_plugin_page.py tests/integration/test_ssh_example.py
test-docs: $(STAMP)  ## run the commands of the documentation, and the cluster type of examples/
	@LLMB_TEST_DOCS=1 $(BIN)/pytest -q -n 3 --dist loadfile $(DOCUMENTED) $(ARGS)

RUNS := benchmarks/test_gpu.py benchmarks/test_guard.py integration/test_correctness.py \
	integration/test_inference_example.py integration/test_microbenchmarks.py integration/test_sustained_run.py \
	llmb/builtin/runai/test_collectives.py llmb/builtin/runai/test_train.py slurm/test_accept.py slurm/test_diagnosis.py \
	slurm/test_microbenchmarks.py slurm/test_train.py
test-runs: $(STAMP)  ## train and measure on Slurm, Run:ai and this machine; run each benchmark small
	@LLMB_TEST_RUNS=1 $(BIN)/pytest -q -n 2 --dist loadfile $(addprefix tests/,$(RUNS)) $(ARGS)

test-slurm-next: $(STAMP)  ## test with Slurm 24.11 and Python 3.13 of Debian 13 (root, debootstrap)
	@root=$$($(BIN)/python tests/debian/root.py 13) && tests/debian/run "$$root" $(NEXT) $(ARGS)

# What reads files, starts processes and imports the standard library's newest parts.
OLDEST ?= tests/llmb/core tests/llmb/show/archive tests/llmb/cli tests/llmb/plugins tests/testing tests/sqshpull \
	tests/installer/images
test-python-oldest: $(STAMP)  ## test with Python 3.11.2 of Debian 12 (root, debootstrap)
	@root=$$($(BIN)/python tests/debian/root.py 12) && tests/debian/run "$$root" $(OLDEST) $(ARGS)

# Kills, restarts, full disks, hidden processes, other users, damaged files: all tests with the mark `fault`.
FAULT_COUNTS := .cache/faults.jsonl
test-faults: $(STAMP)  ## inject many faults; writes docs/reliability.md
	@mkdir -p .cache && rm -f $(FAULT_COUNTS)
	LLMB_TEST_PROOF="$(CURDIR)/$(FAULT_COUNTS)" LLMB_TEST_KILLS=$${LLMB_TEST_KILLS:-20} \
		LLMB_TEST_RESTARTS=$${LLMB_TEST_RESTARTS:-5} LLMB_TEST_FUZZ=$${LLMB_TEST_FUZZ:-25000} \
		$(BIN)/pytest -q -n 2 --dist loadfile -m fault $(ARGS); \
		code=$$?; $(BIN)/python docs/reliability.py $(FAULT_COUNTS) && exit $$code

lint: $(STAMP)  ## style, types, import directions, retired words, lock file
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/language.py
	$(BIN)/uv lock --check

docs: $(STAMP)  ## check links, diagrams and tables of the documentation
	$(BIN)/python docs/check.py
	$(BIN)/python docs/layers.py --check
	$(BIN)/python docs/workloads.py --check
	$(BIN)/python docs/nemo.py --check
	$(BIN)/python docs/fields.py --check
	$(BIN)/python docs/exemplar.py --check
	$(BIN)/python docs/bridge.py --check
	$(BIN)/python docs/figures.py --check
	$(BIN)/python docs/suite.py --check
	$(BIN)/python docs/commands.py --check
	$(BIN)/python docs/keys.py --check
	$(BIN)/python docs/hooks.py --check
	$(BIN)/python docs/reliability.py --check
	$(BIN)/python docs/power.py --check
	$(BIN)/python docs/diagnosis.py --check
	$(BIN)/python docs/gpu.py --check
	$(BIN)/python docs/corpus.py --check
	$(BIN)/python docs/dashboard.py --check

SITE := .venv/.site
site: $(STAMP) $(SITE)  ## build the documentation site in .cache/site; warnings are errors
	$(BIN)/python -m sphinx -q -n -W --keep-going -b html docs .cache/site
	$(BIN)/python docs/check.py .cache/site
	$(BIN)/python docs/licences.py --check

$(SITE): pyproject.toml $(STAMP)
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

release: $(STAMP)  ## build and check wheels and sdists in dist/: VERSION=1.2.0 URL=https://...
	@$(BIN)/python .ci/release.py "$(VERSION)" "$(URL)"

pictures: $(STAMP)  ## make the pictures of docs/images from an invented example (needs Chromium)
	$(BIN)/python docs/pictures.py

bench: $(STAMP)  ## measure the speed of llmb itself (10 minutes); ARGS="startup logs" are some of it
	@$(BIN)/python benchmarks/guard.py $(ARGS)

# 77: nothing was compared, and the last line says why.
bench-check: $(STAMP)  ## count the instructions of planning and reading (a minute, valgrind); ARGS=--accept
	@$(BIN)/python benchmarks/instructions.py $(ARGS) || [ $$? -eq 77 ]

# Where python3 has torch, as on a machine with GPUs, nothing is installed and nothing is fetched.
# Elsewhere torch comes from the installation that `make demo` also makes.
OUT ?= .gpu
PARTS ?=
GPU = PYTHONPATH=benchmarks $(1) -m gpu
gpu:  ## measure llmb on this machine's GPU, or small on its CPU: PARTS="facts load", OUT=DIR
	@if $(call GPU,$(PYTHON)) --check 2> /dev/null; then $(call GPU,$(PYTHON)) --out "$(OUT)" $(PARTS); else \
		$(MAKE) --no-print-directory $(STAMP) && \
		$(BIN)/llmb-install --config examples/local.yaml --install .demo --yes && \
		$(call GPU,$(BIN)/python) --out "$(OUT)" --torch .demo/venvs/torch/bin/python $(PARTS); fi

clean:  ## remove what the other targets created
	rm -rf .venv .demo .gpu .cache dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

# With LLMB_RELEASE members are required by version, which the editable installs of the same command satisfy.
$(STAMP): Makefile hatch_build.py pyproject.toml $(MEMBERS:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ printf '%s\n' "error: $(PYTHON) is not Python 3.11 or newer; name one that is: make PYTHON=python3.12" \
		"hint: without root, uv brings one: uv python install 3.12 && make PYTHON=\"\$$(uv python find 3.12)\"" >&2; exit 1; }
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv .venv; \
	else $(PYTHON) -m venv --without-pip .venv && $(PYTHON) -m pip --python $(BIN)/python install pip; fi || \
		{ echo "error: no .venv; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo 'Installing llmb, its plugins and its development tools in .venv: 1 to 3 minutes, and again only after a change'
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@LLMB_RELEASE=1 $(BIN)/python -m pip install --quiet --group dev -e . $(MEMBERS:%=-e %)
	@touch $@
