# `make demo` and `make test` set up everything themselves. `make setup` does only that.

# A Python to make .venv with may be named: make setup PYTHON=python3.12
PYTHON ?=
# make setup GPU=1 installs CUDA's libraries, too, and GPU=0 removes them; else they stay as they are.
GPU ?=
DEMO_STEPS ?= 1500
# Each takes up to 3.5 GB of memory.
TEST_PROCESSES ?= 2

export PATH := $(CURDIR)/.venv/bin:$(PATH)

requirements := requirements.txt requirements-dev.txt constraints.txt
installed := .venv/requirements-installed
was_for := $(filter gpu,$(shell cat $(installed) 2>/dev/null))
for := $(if $(GPU),$(if $(filter 0,$(GPU)),cpu,gpu),$(or $(was_for),cpu))
tensorflow := $(shell sed -n 's/^tensorflow==//p' requirements.txt)
cuda := $(if $(filter gpu,$(for)),"tensorflow[and-cuda]==$(tensorflow)")
interop_installed := .venv-interop/requirements-installed
beam_installed := .venv-beam/requirements-installed
bench_installed := .venv-bench/requirements-installed

.PHONY: help setup demo test test-exhaustive test-interop test-beam benchmark .venv-bench

help:
	@echo "make demo    learns a vocabulary from the sample text, pre-trains a small BERT, fine-tunes and exports it"
	@echo "make test    runs every check: ruff, mypy, pytest, test-interop, test-beam"
	@echo "make test-exhaustive   runs the cases of laws that make test leaves out for their number"
	@echo "make test-interop   compares with transformers, in an environment of its own"
	@echo "make test-beam   runs pipelines of Apache Beam, in an environment of its own"
	@echo "make benchmark   measures speed beside other programs; QUICK=1 takes minutes, ROUNDS=9 is thorough"
	@echo "make setup   installs the pinned requirements into .venv; the other two do it when needed"
	@echo "make setup GPU=1   does so with CUDA's libraries, for GPUs of NVIDIA; GPU=0 removes them"

setup: $(installed)
	@echo ".venv is ready. To use it in this shell: source .venv/bin/activate"

# Written only after pip has succeeded, so that an interrupted set-up is done again.
$(installed): $(requirements) $(if $(filter-out $(or $(was_for),cpu),$(for)),FORCE)
	@.ci/make_venv $(PYTHON)
	.venv/bin/python -m pip install --disable-pip-version-check -r requirements.txt -r requirements-dev.txt $(cuda)
ifneq ($(was_for),)
ifeq ($(for),cpu)
	.venv/bin/python -m pip freeze | sed -n 's/^\(nvidia-[^=]*\)==.*/\1/p' | xargs -r .venv/bin/python -m pip uninstall -y
endif
endif
	@echo $(for) > $@

.PHONY: FORCE
FORCE:

test: $(installed)
	python -m ruff check .
	python -m ruff format --check .
	python -m mypy --exclude '^(tests|interop|build)/' .
	python -m pytest -n $(TEST_PROCESSES) --dist worksteal
	@$(MAKE) --no-print-directory test-interop
	@$(MAKE) --no-print-directory test-beam

test-exhaustive: $(installed)
	python -m pytest -n $(TEST_PROCESSES) --dist worksteal -m exhaustive

$(interop_installed): requirements-interop.txt constraints.txt .ci/make_peer_venv | $(installed)
	@.ci/make_peer_venv .venv-interop requirements-interop.txt "Nothing is compared with transformers."
	@touch $@

# Made anew with .venv, before whose packages it stands.
$(beam_installed): requirements-beam.txt .ci/make_peer_venv $(installed)
	@.ci/make_peer_venv .venv-beam requirements-beam.txt "No pipeline of Beam is run." over
	@touch $@

$(bench_installed): benchmarks/requirements.txt constraints.txt .ci/make_peer_venv | $(installed)
	@.ci/make_peer_venv .venv-bench benchmarks/requirements.txt "Nothing is measured beside."
	@touch $@

.venv-bench: $(bench_installed)

test-interop: $(installed) $(interop_installed)
	python -m pytest -n $(TEST_PROCESSES) --dist loadgroup interop

test-beam: $(beam_installed)
	.venv-beam/bin/python -m pytest tests/beam

benchmark: $(installed) $(bench_installed)
	@python benchmarks/page.py $(if $(ROUNDS),--rounds=$(ROUNDS)) $(if $(QUICK),--quick) $(BENCHMARK)

demo: $(installed)
	@echo "Every command below can be typed by hand after: source .venv/bin/activate"
	rm -rf demo_output
	mkdir demo_output
	python create_vocab.py \
	  --input_file=sample_text.txt \
	  --output_file=demo_output/vocab.txt \
	  --vocab_size=1000 \
	  --num_unused=0
	python create_pretraining_data.py \
	  --input_file=sample_text.txt \
	  --output_file=demo_output/train.tfrecord \
	  --vocab_file=demo_output/vocab.txt \
	  --max_seq_length=32 \
	  --max_predictions_per_seq=5 \
	  --dupe_factor=40
	python create_pretraining_data.py \
	  --input_file=sample/held_out_text.txt \
	  --output_file=demo_output/held_out.tfrecord \
	  --vocab_file=demo_output/vocab.txt \
	  --max_seq_length=32 \
	  --max_predictions_per_seq=5 \
	  --dupe_factor=5
	python run_pretraining.py \
	  --input_file=demo_output/train.tfrecord \
	  --eval_input_file=demo_output/held_out.tfrecord \
	  --output_dir=demo_output/pretrained \
	  --bert_config_file=sample/bert_config.json \
	  --do_train \
	  --do_eval \
	  --max_seq_length=32 \
	  --max_predictions_per_seq=5 \
	  --train_batch_size=32 \
	  --learning_rate=1e-3 \
	  --num_train_steps=$(DEMO_STEPS) \
	  --num_warmup_steps=150
	python run_classifier.py \
	  --task_name=custom \
	  --data_dir=sample/remarks \
	  --init_checkpoint=demo_output/pretrained \
	  --bert_config_file=sample/bert_config.json \
	  --vocab_file=demo_output/vocab.txt \
	  --output_dir=demo_output/remarks \
	  --do_train \
	  --do_eval \
	  --do_predict \
	  --do_export \
	  --max_seq_length=64 \
	  --train_batch_size=16 \
	  --learning_rate=3e-4 \
	  --num_train_epochs=4
	head -n 4 demo_output/remarks/predictions.tsv
	echo "The bread was hard and the driver was too fast." \
	  | python predict.py --model_dir=demo_output/remarks
	python sample/ask_saved_model.py demo_output/remarks/saved_model \
	  "The bread was warm and the driver was careful."
