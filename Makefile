# make demo    compile a vision-language model from ONNX and let it describe two pictures
# make test    the fast tests, under ten minutes on two cores
# make check   style, types, architecture, lit, real models, sanitizers, 8 minutes of hostile models
# make prove   every test at full length, vendors' too, 20,000 hostile models, and the quality of the trained model
# make bench   benchmarks; figures go to docs/figures/
# make vendor  what vendors' own libraries say of the artifacts; installs them first
# make .venv-rknn  Rockchip's toolkit alone, in an environment of its own
# make conformance  how many cases of the ONNX standard's own suite pass; writes the figures
# make lint    ruff and pyright alone
# make docs    write the generated pages of docs/
# make clean   remove what was built, but not downloaded models
#
# Needs python3 >= 3.11, make and a C compiler; everything else goes into .venv by itself.

PYTHON ?= python3
BIN := .venv/bin
JOBS ?= 2
MUTANT_MINUTES ?= 8
STAGE := .ci/stage
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

C_SOURCES := $(shell find runtime_stub -name '*.[ch]' -o -name CMakeLists.txt) $(wildcard CMakeLists.txt)
SANITIZED := tests/runtime/sanitizer_test.py tests/runtime/hostile_test.py
PYTESTS := $(BIN)/python -m pytest -n $(JOBS)

.PHONY: .venv-rknn .venv-peers demo test check vendor prove bench conformance lint docs clean sanitize

demo: .venv/runtime
	@$(BIN)/python models/demo.py

test: .venv/runtime
	$(PYTESTS) -m "not slow and not vendor"

lint: .venv/runtime
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

check: .venv/runtime
	@$(STAGE) ruff $(BIN)/ruff check .
	@$(STAGE) format $(BIN)/ruff format --check .
	@$(STAGE) pyright $(BIN)/pyright
	@$(STAGE) architecture $(BIN)/python -m pytest tests/architecture_test.py tests/docs_test.py
	@$(STAGE) lit $(BIN)/lit -q tests
	@$(STAGE) sanitizers $(MAKE) --no-print-directory sanitize
	@$(STAGE) mutants $(BIN)/python tests/fuzz/run.py --mutants 20000 --minutes $(MUTANT_MINUTES)
	@$(STAGE) slow-tests $(PYTESTS) -m "slow and not vendor" $(SANITIZED:%=--ignore=%) --durations=10

vendor: .venv/vendor
	$(PYTESTS) -m "vendor and not slow"

sanitize: .venv/runtime
	$(PYTESTS) $(SANITIZED)

prove: .venv/vendor
	$(PYTESTS) --ignore=tests/vendor --durations=20
	$(PYTESTS) tests/vendor --durations=20 --figures docs/figures/vendor.json
	$(BIN)/python docs/generate.py
	$(BIN)/python tests/fuzz/run.py --mutants 20000
	$(BIN)/python models/meeting-vlm/evaluate.py

bench: .venv/runtime .venv-peers
	$(BIN)/python tests/benchmarks/memory.py --json docs/figures/memory.json
	$(BIN)/python tests/benchmarks/speed.py --json docs/figures/speed.json

conformance: .venv/runtime
	$(BIN)/python tests/conformance/report.py --json docs/figures/conformance.json
	$(BIN)/python docs/generate.py

docs: .venv/runtime
	$(BIN)/python docs/generate.py

clean:
	rm -rf build .venv .venv-rknn .venv-peers demo .pytest_cache .ruff_cache

# A stamp: the second run does nothing; a changed C file builds the runtime again and no more.
.venv/vendor: .venv/runtime .venv-rknn/requirements.txt
	@echo "installing the vendors' libraries"; $(BIN)/pip install --quiet --editable '.[qnn,tflite]' && touch $@

# Rockchip's toolkit pins packages that the compiler cannot share. It asks for torch, which reading
# ONNX needs none of: the compiler brings a stand-in.
.venv-rknn: .venv-rknn/requirements.txt

.venv-rknn/requirements.txt: mllm_compiler/backends/rknn/requirements.txt
	@echo "setting up .venv-rknn"; $(PYTHON) -m venv .venv-rknn
	@.venv-rknn/bin/pip install --quiet --no-deps --requirement $< && cp $< $@

# What others run on the same machine; llama.cpp is built from source, which takes ten minutes.
.venv-peers: .venv-peers/requirements.txt

.venv-peers/requirements.txt: tests/benchmarks/peers/requirements.txt
	@echo "setting up .venv-peers"; $(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/pip install --quiet --requirement $< && cp $< $@

.venv/runtime: pyproject.toml $(C_SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit("error: Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@if [ .venv/dependencies -nt pyproject.toml ]; then \
	  echo "building the C runtime"; $(BIN)/pip install --quiet --no-deps --editable .; \
	else \
	  echo "setting up .venv"; $(BIN)/pip install --quiet --editable '.[dev]' && touch .venv/dependencies; \
	fi
	@ln -sf ../lib/$$(ls .venv/lib)/site-packages/runtime_stub/mllm-run $(BIN)/mllm-run
	@touch $@
