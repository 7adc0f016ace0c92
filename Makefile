# Two commands do everything: make train, make test. Both set up .venv first.

ARGS ?=
WORKDIR ?= runs/first
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
KERNELS := $(wildcard acme_quant/kernels/*.c acme_quant/kernels/*.h)

.PHONY: install train test test-export-cross faults check types format pins clean soak

install: $(INSTALLED)

$(INSTALLED): install.sh requirements-test.txt setup.py $(KERNELS)
	./install.sh $(VENV)
	@touch $@

# A flag given twice counts as given last, so ARGS override what stands here.
train: $(INSTALLED)
	$(BIN)/acme-quant train --agent=d4pg --env=dm_control:cartpole:balance \
	  --quantizer=int8 --num_actors=2 --batch_size=64 --samples_per_insert=8 \
	  --max_actor_steps=40000 --workdir=$(WORKDIR) $(ARGS)

test: check
	$(BIN)/python -m pytest $(ARGS)

# Every fault of docs/reliability.md, each injected into a real run: half an hour.
faults: $(INSTALLED)
	$(BIN)/python -m pytest tests/faults $(ARGS)

# Exported C on other CPUs, emulated: ten minutes of downloads and runs.
CROSS := gcc-aarch64-linux-gnu gcc-arm-linux-gnueabihf gcc-riscv64-linux-gnu qemu-user
test-export-cross: $(INSTALLED)
	@dpkg -s $(CROSS) > /dev/null 2>&1 || (apt-get update -q && apt-get install -y -q \
	  $(CROSS)) || (echo "expected root on Debian, or these packages: $(CROSS)"; false)
	ACME_QUANT_TEST_CROSS=1 $(BIN)/python -m pytest tests/export/test_export_cross.py \
	  $(ARGS)

# Random runs with random faults for SOAK_MINUTES (60); SOAK_SEED repeats the choices.
soak: $(INSTALLED)
	$(BIN)/python tests/soak/soak.py $(ARGS)

check: $(INSTALLED) types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(INSTALLED)
	rm -rf build/types && mkdir -p build/types
	cp -rs $(CURDIR)/acme_quant build/types
	cp -rs $(CURDIR)/agents $(CURDIR)/launch build/types/acme_quant
	$(BIN)/python -m pyright --pythonpath $(BIN)/python

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Resolves requirements*.in anew into exact pins.
pins: $(INSTALLED)
	uv pip compile -q --python $(BIN)/python requirements.in -o requirements.txt --no-annotate --no-header
	uv pip compile -q --python $(BIN)/python requirements-test.in -o requirements-test.txt --no-annotate --no-header

clean:
	rm -rf $(VENV) build *.egg-info acme_quant/kernels/*.so
