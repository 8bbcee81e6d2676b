import json
import logging
import os
import random
import re
import shutil
import signal
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import (
    GOLDEN,
    change,
    eagerly,
    exhaustive,
    free_ports,
    make_examples,
    read_report,
    read_tensors,
    serialize,
    split_examples,
    write_examples,
)
from helpers.checked_runs import assert_check_and_run_agree, refusal
from helpers.forks import fork_python
from helpers.power_loss import LEFTOVER
from helpers.pretraining_runs import (
    WRONG,
    finished,  # noqa: F401 (a fixture)
)
from helpers.script_runs import ScriptRun, finish_beside_killed
from helpers.trainers import assert_same

import modeling
import run_pretraining
from bert.files import records as files_records
from bert.files.paths import index_path
from bert.files.process import Stop, watched_signals
from bert.parts import PlanError
from bert.pretraining import inputs
from bert.pretraining.outcome import warn_if_not_learned
from bert.runs.plan import plan
from bert.training.options import Compute
from bert.weights import checkpoint, saving

pytestmark = pytest.mark.usefixtures("eager")

KEYS = [
    "global_step",
    "loss",
    "masked_lm_accuracy",
    "masked_lm_loss",
    "next_sentence_accuracy",
    "next_sentence_loss",
]


def find_description(files):
    return inputs.find_description(files, "masked_lm_nsp")


def read_results(folder):
    """Returns the values of `eval_results.txt`, whose form is checked."""
    lines = (Path(folder) / "eval_results.txt").read_text().splitlines()
    pairs = [re.fullmatch(r"(\w+) = (\S+)", line).groups() for line in lines]
    assert [key for key, _ in pairs] == KEYS
    return {key: float(value) for key, value in pairs}


def golden_settings(tmp_path, golden, **changes):
    flags = json.loads((golden / "pretrain_flags.json").read_text())["flags"]
    values = dict(flag.removeprefix("--").split("=") for flag in flags)
    return run_pretraining.Settings(
        **{
            "bert_config_file": str(golden / "bert_config.json"),
            # A copy, for an index is left beside it.
            "input_file": shutil.copy(golden / "pretrain_batch.tfrecord", tmp_path),
            "init_checkpoint": str(golden / "bert_model.ckpt"),
            "output_dir": str(tmp_path / "output"),
            "do_eval": True,
            "max_seq_length": int(values["max_seq_length"]),
            "max_predictions_per_seq": int(values["max_predictions_per_seq"]),
            **changes,
        }
    )


@eagerly(False)
@pytest.mark.parametrize("eval_batch_size", [8, *exhaustive(5)])
def test_evaluation_equals_the_original(tmp_path, golden, eval_batch_size):
    settings = golden_settings(tmp_path, golden, eval_batch_size=eval_batch_size)
    results = run_pretraining.run(settings)
    original = json.loads((golden / "eval_before.json").read_text())
    del original["batch"]
    assert results == pytest.approx(original, abs=1e-5)
    written = read_results(tmp_path / "output")
    assert written == pytest.approx({**original, "global_step": 0}, abs=1e-5)


def test_heads_that_the_weights_lack_are_not_evaluated(tmp_path):
    fine_tuned = str(GOLDEN / "classifier_cola/model.ckpt")
    with pytest.raises(ValueError, match=r"hold the heads.*lacks .*'cls/predictions', 'cls/seq"):
        run_pretraining.run(golden_settings(tmp_path, GOLDEN, init_checkpoint=fine_tuned))
    # As transformers stores a model without next sentences.
    tensors = read_tensors(GOLDEN / "bert_model.ckpt")
    unused = ("bert/pooler/", "cls/seq_relationship/")
    kept = {name: each for name, each in tensors.items() if not name.startswith(unused)}
    saving.save_tensors(str(tmp_path / "bert_model.ckpt"), kept)
    given = {"init_checkpoint": str(tmp_path / "bert_model.ckpt")}
    with pytest.raises(ValueError, match=r"lacks .*seq_relationship.*`objective=.masked_lm.` can"):
        run_pretraining.run(golden_settings(tmp_path, GOLDEN, **given))
    results = run_pretraining.run(golden_settings(tmp_path, GOLDEN, **given, objective="masked_lm"))
    original = json.loads((GOLDEN / "eval_before.json").read_text())
    assert results["masked_lm_loss"] == pytest.approx(original["masked_lm_loss"], abs=1e-5)


@pytest.mark.parametrize(
    ("accuracy", "is_told"), [(0.05, True), (0.063, True), (0.065, False), (0.5, False)]
)
def test_a_model_of_word_frequencies_is_told_from_one_that_reads(
    pretraining_run, log, accuracy, is_told
):
    """Of 1,000 tokens, 50 are the same: 50 right guesses vary by 6.9."""
    warn_if_not_learned(pretraining_run(), accuracy, 50, 1000)
    assert [each[:42] for each in log.messages] == [
        "It has learned no more than how frequent t"
    ] * (is_told)
    # Else the plan would refuse what it says.
    assert all("`resume_with_changes`" in each for each in log.messages)


def test_training_then_evaluation_alone(pretraining_run, tmp_path, log):
    results = run_pretraining.run(pretraining_run(do_eval=True))
    output = tmp_path / "output"
    written = read_results(output)
    assert written.pop("global_step") == 4
    assert written == pytest.approx(results, rel=1e-6)
    assert results["loss"] == results["masked_lm_loss"] + results["next_sentence_loss"]
    assert saving.Checkpoints(str(output)).latest() == str(output / "model.ckpt-4")
    config = modeling.BertConfig.from_json_file(str(output / "bert_config.json"))
    assert config == modeling.BertConfig.from_json_file(str(tmp_path / "bert_config.json"))
    page = read_report(output)
    assert page["figures"][0]["value"] == pytest.approx(results["masked_lm_accuracy"], abs=1e-5)
    losses = page["sections"]["Training"]["charts"][0]["series"]
    assert [len(line["points"]) for line in losses] == [4, 4, 4]
    assert page["sections"]["Masked sentences"]["total"] == 20
    (output / "eval_results.txt").unlink()
    keras.utils.set_random_seed(99)
    again = run_pretraining.run(pretraining_run(do_train=False, do_eval=True))
    assert again == pytest.approx(results, abs=1e-6)
    assert read_results(output)["global_step"] == 4
    assert any("In words" in message for message in log.messages)
    # What is not trained may well have held out its input.
    assert log.text.count("Evaluation reads `input_file`") == 1


@eagerly(False)
@pytest.mark.exhaustive
def test_training_lowers_the_loss(pretraining_run):
    before = run_pretraining.run(pretraining_run(do_eval=True, num_train_steps=1))
    changes = {"num_train_steps": 200, "train_batch_size": 20, "resume_with_changes": True}
    after = run_pretraining.run(pretraining_run(do_eval=True, **changes))
    assert after["loss"] < 0.6 * before["loss"]


def test_a_model_that_is_not_trained_is_not_evaluated(pretraining_run, tmp_path):
    evaluates = {"do_train": False, "do_eval": True}
    with pytest.raises(PlanError, match="must hold a trained model, or `init_checkpoint`"):
        plan(run_pretraining.make_recipe(pretraining_run(**evaluates)))
    run_pretraining.run(pretraining_run(num_train_steps=1))
    output = tmp_path / "output"
    for path in (output / "checkpoint", *output.glob("model.ckpt-[1-9]*")):
        path.unlink()
    run = json.loads((output / "run.json").read_text())
    (output / "run.json").write_text(json.dumps({**run, "ended": False}))
    with pytest.raises(ValueError, match=r"must hold trained weights.*not got beyond step 0"):
        run_pretraining.run(pretraining_run(**evaluates))


def test_held_out_records_are_evaluated(pretraining_run, tmp_path, tiny_config):
    held_out = write_examples(tmp_path / "held_out.tfrecord", make_examples(tiny_config, 6, seed=9))
    initial = str(tmp_path / "output")
    run_pretraining.run(pretraining_run(num_train_steps=1))
    shared = {"do_train": False, "do_eval": True, "init_checkpoint": initial}
    results = [
        run_pretraining.run(pretraining_run(output_dir=str(tmp_path / name), **shared, **files))
        for name, files in (
            ("a", {"eval_input_file": held_out}),
            ("b", {"input_file": held_out}),
            ("c", {}),
        )
    ]
    assert results[0] == results[1]
    assert results[0] != results[2]


@pytest.mark.parametrize(
    ("held_out", "warnings"),
    [
        (None, ["`input_file`, as the original's did"]),
        ("a*", ["'./a.tfrecord', which is also among `input_file`"]),
        ("c.tfrecord", []),
    ],
)
def test_records_that_are_trained_on_are_named_where_they_are_evaluated(
    pretraining_run, tmp_path, tiny_config, monkeypatch, held_out, warnings
):
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        write_examples(tmp_path / f"{name}.tfrecord", make_examples(tiny_config, 2))
    files = {"input_file": "b.tfrecord,a.tfrecord", "eval_input_file": held_out}
    planned = plan(run_pretraining.make_recipe(pretraining_run(do_eval=True, **files)), limit=1)
    [line] = [each for each in planned.lines if each.name == "held-out records"]
    assert [re.search("reads (.*);", str(each))[1] for each in line.warnings] == warnings


@pytest.mark.parametrize(
    ("num_warmup_steps", "is_told"), [(1, False), (2, True), *exhaustive((10000, True))]
)
def test_a_warm_up_without_end_is_told(pretraining_run, log, num_warmup_steps, is_told):
    run_pretraining.run(pretraining_run(num_train_steps=2, num_warmup_steps=num_warmup_steps))
    message = f"never reaches `learning_rate`: `num_warmup_steps={num_warmup_steps}` are not fewer"
    assert any(message in each for each in log.messages) == is_told


def test_indexed_records_are_whole_and_of_the_same_vocabulary(
    pretraining_run, tmp_path, tiny_config, log
):
    path = str(tmp_path / "indexed.tfrecord")
    records = [serialize(example) for example in split_examples(make_examples(tiny_config, 6))]
    for vocab_size, expected in ((29, 0), (20, 1)):
        with files_records.write_records([path], {"vocab_size": vocab_size}) as [writer]:
            for record in records:
                writer.write(record)
        log.clear()
        run_pretraining.run(
            pretraining_run(input_file=path, num_train_steps=1, output_dir=str(tmp_path / "o"))
        )
        message = f"{path!r} has 20 tokens, but `vocab_size`"
        warnings = [m for m in log.messages if message in m]
        assert len(warnings) == expected
    os.truncate(path, sum(len(record) + 16 for record in records[:4]))
    with pytest.raises(ValueError, match="must hold all 6 records that were written"):
        run_pretraining.run(pretraining_run(input_file=path, output_dir=str(tmp_path / "new")))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_resumed_run_says_so_and_ends_bit_for_bit_the_same(
    pretraining_run, tmp_path, log, optimizer
):
    def fresh(name, **changes):
        keras.utils.set_random_seed(5)
        rest = {"save_checkpoints_steps": 1, "optimizer": optimizer, **changes}
        run_pretraining.run(pretraining_run(output_dir=str(tmp_path / name), **rest))

    fresh("whole", num_train_steps=4)
    # The learning rate depends on the number of steps, so the run is cut by the disk alone.
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    for path in (tmp_path / "cut").glob("model.ckpt-4.*"):
        path.unlink()
    log.clear()
    initial = str(tmp_path / "whole" / "model.ckpt-1")
    with pytest.raises(ValueError, match=r"--init_checkpoint is absent there and model\.ckpt-1"):
        fresh("cut", num_train_steps=4, init_checkpoint=initial)
    fresh("cut", num_train_steps=4, init_checkpoint=initial, resume_with_changes=True)
    folder = tmp_path / "cut"
    message = f"Resuming from step 3 in {folder}; `init_checkpoint={initial!r}` is not read."
    assert message in log.messages
    assert_same(
        read_tensors(folder / "model.ckpt-4"), read_tensors(tmp_path / "whole/model.ckpt-4")
    )


def test_a_vocabulary_for_the_report_is_read_before_training(pretraining_run, tmp_path):
    """Records without an index have none of their own."""
    run_pretraining.run(pretraining_run(num_train_steps=1))
    (tmp_path / "output/vocab.txt").write_bytes(b"\xff\n")
    changes = {"init_checkpoint": str(tmp_path / "output"), "output_dir": str(tmp_path / "new")}
    with pytest.raises(ValueError, match="`vocab_file` must be UTF-8"):
        run_pretraining.run(pretraining_run(do_eval=True, **changes))
    assert not (tmp_path / "new").exists()


def test_a_run_is_not_resumed_by_another_optimizer(pretraining_run):
    """Adam would divide Muon's momentum by its second moment, which is zero."""
    run_pretraining.run(pretraining_run(optimizer="muon", num_train_steps=1))
    changes = {"num_train_steps": 9, "resume_with_changes": True}
    with pytest.raises(ValueError, match="`optimizer` must be muon, as in the run in"):
        run_pretraining.run(pretraining_run(optimizer="adam", **changes))


def test_the_initial_checkpoint_is_opened_once(pretraining_run, tmp_path, tiny_config, opened):
    model = modeling.BertModel(tiny_config)
    model.build(None)
    initial = str(tmp_path / "initial.ckpt")
    saving.save_tensors(initial, {v.path: v.numpy() for v in model.weights})
    run_pretraining.run(pretraining_run(init_checkpoint=initial, num_train_steps=1))
    assert opened == [initial]


@pytest.mark.parametrize(
    ("line", "saves"),
    [("Step 2/4 ", {"save_checkpoints_steps": 1000, "keep_checkpoint_max": 1}), ("Saved ", {})],
)
def test_a_signal_at_a_line_ends_the_run_with_that_step_saved_once(
    pretraining_run, tmp_path, log, line, saves
):
    """In steps that are read one by one; of the checkpoints, as many are kept as asked for."""

    def stop(record):
        if record.getMessage().startswith(line):
            os.kill(os.getpid(), signal.SIGTERM)
        return True

    steps = {"iterations_per_loop": 1, "log_every_steps": 1, "save_checkpoints_steps": 2}
    logger = logging.getLogger("bert")
    logger.addFilter(stop)
    try:
        with pytest.raises(Stop, match="Stopped at step 2;"), watched_signals():
            run_pretraining.run(pretraining_run(**(steps | saves)))
    finally:
        logger.removeFilter(stop)
    assert len([each for each in log.messages if each.startswith("Saved ")]) == 1
    kept = sorted(path.stem for path in (tmp_path / "output").glob("*.index"))
    assert kept == ([] if saves else ["model.ckpt-0"]) + ["model.ckpt-2"]


def test_finished_run_trains_no_further(pretraining_run, tmp_path, log):
    run_pretraining.run(pretraining_run(num_train_steps=1))
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "output").glob("model*")}
    log.clear()
    run_pretraining.run(pretraining_run(num_train_steps=1))
    assert any("step 1 is reached already" in message for message in log.messages)
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "output").glob("model*")}
    assert after == before


def test_what_has_ended_is_replaced_by_no_other_training_unless_that_is_asked_for(
    pretraining_run, tmp_path
):
    folder = tmp_path / "output"
    run_pretraining.run(pretraining_run(do_eval=True, num_train_steps=1))
    # The file that lists them stays.
    for path in folder.glob("model.ckpt-*"):
        path.unlink()
    (folder / "notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"--seed is 12345 there and 7 now.*overwrite_output_dir"):
        run_pretraining.run(pretraining_run(seed=7, num_train_steps=1))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    # All that the run wrote goes, before the first step, and nothing else.
    config = change(
        modeling.BertConfig.from_json_file(str(tmp_path / "bert_config.json")), hidden_size=16
    )
    (tmp_path / "bert_config.json").write_text(config.to_json_string())
    changes = {"seed": 7, "num_train_steps": 1}
    alone = {"strategy": "multi_worker", "overwrite_output_dir": True}
    run_pretraining.run(pretraining_run(**changes, **alone))
    left = {path.name for path in folder.iterdir()}
    assert "notes.txt" in left and not left & {"eval_results.txt", "eval_results.json", "eval"}
    assert (folder / "bert_config.json").read_text() == config.to_json_string()
    shapes = dict(tf.train.list_variables(str(folder / "model.ckpt-1")))
    assert shapes["bert/embeddings/LayerNorm/beta"] == [16]
    # Without the flag it goes on.
    assert run_pretraining.run(pretraining_run(**changes, do_eval=True))["loss"] > 0


def test_weights_alone_in_the_folder_answer_for_no_later_step_and_are_not_trained_again(
    pretraining_run, tmp_path
):
    folder = tmp_path / "output"
    run_pretraining.run(pretraining_run(num_train_steps=1))
    weights = str(folder / "bert_model.ckpt")
    saving.save_tensors(weights, read_tensors(folder / "model.ckpt-1"))
    more = {"num_train_steps": 2, "do_eval": True}
    results = run_pretraining.run(pretraining_run(**more, resume_with_changes=True))
    assert checkpoint.find_trained(str(folder)) == str(folder / "model.ckpt-2")
    assert (folder / "bert_model.ckpt.index.kept-1").exists()
    saving.save_tensors(weights, read_tensors(folder / "model.ckpt-2"))
    for path in (folder / "checkpoint", *folder.glob("model.ckpt-*")):
        path.unlink()
    assert run_pretraining.run(pretraining_run(**more)) == pytest.approx(results, abs=1e-6)
    assert not [*folder.glob("model.ckpt-*")]


def test_an_evaluation_uses_the_checkpoint_that_is_named(pretraining_run, tmp_path):
    saves = {"keep_checkpoint_max": 0, "save_checkpoints_steps": 1}
    run_pretraining.run(pretraining_run(num_train_steps=2, **saves))
    folder = tmp_path / "output"

    def score(init=None):
        given = {"do_train": False, "do_eval": True, "init_checkpoint": init and str(init)}
        return run_pretraining.run(pretraining_run(eval_batch_size=20, **given))["loss"]

    losses = [score(folder / f"model.ckpt-{step}") for step in (1, 2)]
    assert losses[0] != losses[1] and score() == losses[1] == score(folder)
    results = read_results(folder)
    assert results["global_step"] == 2
    # The training began at random: what it is not made of is not passed over.
    shutil.copytree(folder, tmp_path / "other")
    with pytest.raises(ValueError, match=r"must name weights in `output_dir`"):
        score(tmp_path / "other/model.ckpt-2")


@pytest.mark.exhaustive
def test_accumulated_gradients_give_the_same_result(pretraining_run, tmp_path, still_config):
    (tmp_path / "bert_config.json").write_text(still_config.to_json_string())
    results = []
    for count in (1, 4):
        keras.utils.set_random_seed(5)
        settings = pretraining_run(
            output_dir=str(tmp_path / str(count)), gradient_accumulation_steps=count, do_eval=True
        )
        results.append(run_pretraining.run(settings))
    assert results[0] == pytest.approx(results[1], abs=1e-5)


def test_evaluation_without_a_masked_token_is_not_a_number(pretraining_run, tmp_path, tiny_config):
    examples = make_examples(tiny_config, 6)
    for name in ("masked_lm_weights", "masked_lm_ids", "masked_lm_positions"):
        examples[name] = np.zeros_like(examples[name])
    path = write_examples(tmp_path / "unmasked.tfrecord", examples)
    run_pretraining.run(pretraining_run(num_train_steps=1))
    results = run_pretraining.run(pretraining_run(do_train=False, do_eval=True, input_file=path))
    assert np.isnan(results["masked_lm_loss"])
    assert np.isfinite(results["next_sentence_loss"])


# A record in the middle is found when it is read. The system's message about a folder that cannot
# be made, and TensorFlow's about a TPU, differ from one time to the next.
LATE = ("wrong record among others", "wrong record to evaluate")
OTHER_WORDS = ("output is a file", "output within a file", "a TPU of a wrong name")


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_input_ends_with_one_line_that_names_it_as_the_check_does(
    tmp_path,
    monkeypatch,
    pretraining_run,
    finished,  # noqa: F811
    kind,
):
    prepare, message = WRONG[kind]
    settings = pretraining_run()
    shutil.copytree(finished, tmp_path / "finished")
    monkeypatch.chdir(tmp_path)
    settings = pretraining_run(**prepare(tmp_path))
    before = set(tmp_path.rglob("*"))
    if kind in LATE:
        error = refusal(run_pretraining, settings)
    else:
        same_words = kind not in OTHER_WORDS
        error = assert_check_and_run_agree(
            run_pretraining, settings, tmp_path, same_words=same_words
        )
    assert re.search(message, str(error))
    assert not any("\n" in str(fault) for fault in getattr(error, "faults", [error]))
    # All but a record in the middle is found before anything is written or deleted. The index of
    # records that are whole stays, for the next start.
    assert before <= set(tmp_path.rglob("*"))
    if "wrong record" not in kind:
        left = set(tmp_path.rglob("*")) - before
        assert {path for path in left if path.suffix != ".index"} <= {tmp_path / "output"}


def test_shards_of_two_makings_are_not_taken_together(pretraining_run, tmp_path):
    records = Path(pretraining_run().input_file).read_bytes()
    for name in ("x-00000-of-00002", "x-00001-of-00002", "y-00001-of-00001", "whole", "whole-0"):
        (tmp_path / name).write_bytes(records)

    def find(**patterns):
        find_description(pretraining_run(**{k: f"{tmp_path}/{v}" for k, v in patterns.items()}))

    # Some of them may be held out.
    find(input_file="[xyw]*,,")
    find(input_file="x-00000-of-00002", eval_input_file="x-00001-*")
    (tmp_path / "x-00002-of-00003").write_bytes(records)
    with pytest.raises(ValueError, match=r"`input_file` .* \['.*/x-\*-of-00002', '.*3'\]"):
        find(input_file="[xy]-*")
    with pytest.raises(ValueError, match="`eval_input_file` must match records of one description"):
        find(input_file="whole", eval_input_file="x-*")
    for number in range(2):
        (tmp_path / f"x-0000{number}-of-00003").write_bytes(records)
    find(input_file=f"x-*-of-00002,{tmp_path}/x-*3")
    (tmp_path / "x").write_bytes(records)
    with pytest.raises(ValueError, match=r"matches \['.*/x', '.*/x-\*-of-00002', "):
        find(input_file="x*")


def test_shards_that_are_missing_empty_or_there_twice_are_an_error(pretraining_run, tmp_path):
    content = Path(pretraining_run().input_file).read_bytes()
    names = [f"s-0000{number}-of-00003" for number in range(3)]

    def refused(patterns, flag="input_file"):
        given = ",".join(f"{tmp_path}/{pattern}" for pattern in patterns.split(","))
        with pytest.raises(ValueError, match=f"^`{flag}` must ") as error:
            run_pretraining.run(pretraining_run(**{flag: given}))
        assert not (tmp_path / "output").exists()
        return str(error.value)

    for missing in names:
        for name in names:
            (tmp_path / name).write_bytes(content)
        (tmp_path / missing).unlink()
        assert f" 3 are expected; these are missing: ['{tmp_path}/{missing}']" in refused("s-*")
        assert f"'{tmp_path}/{missing}'" in refused("s-*-of-00003", "eval_input_file")
        (tmp_path / missing).touch()
        assert f"'{tmp_path}/{missing}' is empty" in refused("s-*")
        assert f"'{tmp_path}/{missing}' is empty" in refused(",".join(names))
        (tmp_path / missing).write_bytes(content)
    (tmp_path / "link").symlink_to(names[1])
    for patterns, twice in (
        (f"s-*,{names[1]}", names[1]),
        (f"{names[1]},{names[1]}", names[1]),
        (f"{names[1]},link", "link"),
    ):
        assert f"'{tmp_path}/{names[1]}' and '{tmp_path}/{twice}'" in refused(patterns)
    # Files that are named by themselves are all that is wanted, and a pattern may leave some out.
    run_pretraining.run(pretraining_run(input_file=f"{tmp_path}/s-0000[12]*", num_train_steps=1))
    (tmp_path / names[0]).unlink()
    files = ",".join(f"{tmp_path}/{name}" for name in names[1:])
    find_description(pretraining_run(input_file=files))
    # Some write numbers without zeros in front, and count from 1.
    for number in range(11):
        (tmp_path / f"n-{number}-of-11").write_bytes(content)
    for pattern in ("n-*", "n-?-*", "n-1?-*"):
        find_description(pretraining_run(input_file=f"{tmp_path}/{pattern}"))
    (tmp_path / "n-0-of-11").rename(tmp_path / "n-11-of-11")
    for pattern in ("n-*", "n-?-*", "n-11-*"):
        find_description(pretraining_run(input_file=f"{tmp_path}/{pattern}"))
    (tmp_path / names[0].replace("00000", "00003")).write_bytes(content)
    find_description(pretraining_run(input_file=f"{tmp_path}/s-*"))


def test_records_without_an_index_get_one_but_by_a_check(pretraining_run, tmp_path):
    settings = pretraining_run(num_train_steps=1)
    index = Path(index_path(settings.input_file))
    plan(run_pretraining.make_recipe(settings))
    assert not index.exists()
    run_pretraining.run(settings)
    assert files_records.fits(files_records.read_index(settings.input_file), settings.input_file)


def script(folder, *flags, **more):
    values = {
        "bert_config_file": folder / "bert_config.json",
        "input_file": folder / "train.tfrecord",
        "output_dir": folder / "output",
        "max_seq_length": 12,
        "max_predictions_per_seq": 3,
        "train_batch_size": 4,
        "num_train_steps": 2,
        **more,
    }
    return ["run_pretraining.py", *(f"--{key}={value}" for key, value in values.items()), *flags]


def test_script_takes_an_old_command(pretraining_run, tmp_path):
    """As the original's README has it, on a machine without TPU."""
    pretraining_run()
    flags = (
        "--do_train=True --do_eval=true --use_tpu=False --tpu_name=x --tpu_zone=y --gcp_project=z"
        " --master=grpc://q --num_tpu_cores=8 --iterations_per_loop=10 --num_warmup_steps=1"
    )
    result = fork_python(*script(tmp_path, *flags.split()))
    assert read_results(tmp_path / "output")["global_step"] == 2
    assert "Traceback" not in result.stderr
    lines = result.stderr.splitlines()
    assert [line for line in lines if not re.match(r"\d\d:\d\d:\d\d ", line)] == []
    assert [line for line in lines if " Error: " in line] == []


def assert_ends_like_an_uninterrupted_run(tmp_path, arguments_for, kills):
    whole, cut = finish_beside_killed(arguments_for, tmp_path, kills)
    names = [(folder / "checkpoint").read_text() for folder in (whole, cut)]
    assert names[0] == names[1]
    last = saving.Checkpoints(str(whole)).latest().rpartition("/")[2]
    one, other = (read_tensors(folder / last) for folder in (whole, cut))
    assert any(name.endswith("/adam_v") for name in one)
    assert_same(other, one)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, *exhaustive(signal.SIGINT)])
def test_run_stopped_by_a_signal_ends_bit_for_bit_the_same(tmp_path, pretraining_run, number):
    pretraining_run()

    def arguments_for(output):
        return script(
            tmp_path,
            "--do_train",
            output_dir=output,
            num_train_steps=300,
            num_warmup_steps=20,
            save_checkpoints_steps=100000,
        )

    whole, cut = (ScriptRun(arguments_for(tmp_path / name), tmp_path / name) for name in "ab")
    try:
        cut.wait_for_steps()
        cut.process.send_signal(number)
        step = cut.stopped_at(number)
        assert 1 <= step < 300
        assert read_tensors(cut.output / f"model.ckpt-{step}")["global_step"] == step
        again = ScriptRun(arguments_for(cut.output), cut.output)
        for run in (again, whole):
            run.finish()
    finally:
        for run in (whole, cut):
            run.kill()
    assert f"Resuming from step {step} in" in again.log.read_text()
    assert_same(*(read_tensors(run.output / "model.ckpt-300") for run in (cut, whole)))
    assert not [path for path in cut.output.iterdir() if LEFTOVER.search(path.name)]


@pytest.mark.slow
def test_workers_stop_together_where_a_signal_reaches_one(tmp_path, pretraining_run):
    """They also train in the precision in which the chief has begun."""
    pretraining_run()
    began = {0: "mixed_bfloat16", 1: "float32"}
    workers = [f"localhost:{port}" for port in free_ports(2)]
    runs = []
    for index in range(2):
        # Each has a disk of its own; the second one's is never written to.
        output = tmp_path / f"worker_{index}"
        output.mkdir()
        made_of = {"made_of": {"--precision": began[index]}}
        (output / "run.json").write_text(json.dumps(made_of))
        arguments = script(
            tmp_path,
            "--do_train",
            "--strategy=multi_worker",
            "--precision=auto",
            output_dir=output,
            num_train_steps=6000,
            save_checkpoints_steps=100000,
        )
        cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        runs.append(ScriptRun(arguments, output, TF_CONFIG=json.dumps(cluster)))
    try:
        runs[0].wait_for_steps()
        runs[1].process.send_signal(signal.SIGTERM)
        steps = [run.stopped_at(signal.SIGTERM) for run in runs]
    finally:
        for run in runs:
            run.kill()
    assert steps[0] == steps[1] > 0
    stored = read_tensors(runs[0].output / f"model.ckpt-{steps[0]}")
    assert stored["global_step"] == steps[0]
    assert not list(runs[1].output.glob("model.ckpt*"))
    assert all("computing in mixed_bfloat16" in run.log.read_text() for run in runs)


@pytest.mark.slow
def test_run_killed_at_random_moments_ends_bit_for_bit_the_same(tmp_path, pretraining_run):
    pretraining_run()
    rng = random.Random(8)

    def arguments_for(output):
        return script(
            tmp_path,
            "--do_train",
            "--gradient_accumulation_steps=2",
            output_dir=output,
            num_train_steps=100,
            num_warmup_steps=20,
            save_checkpoints_steps=5,
        )

    def kill(run):
        # The first save is of step 0.
        assert run.wait_for_saves(2)
        time.sleep(rng.uniform(0, 0.25))

    assert_ends_like_an_uninterrupted_run(tmp_path, arguments_for, [kill])


@pytest.mark.slow
@pytest.mark.exhaustive
def test_run_killed_within_saves_ends_bit_for_bit_the_same(tmp_path, tiny_config):
    # Large enough for a save to take a while.
    config = change(tiny_config, vocab_size=20000, hidden_size=128, intermediate_size=128)
    (tmp_path / "bert_config.json").write_text(config.to_json_string())
    write_examples(tmp_path / "train.tfrecord", make_examples(config, 20))
    rng = random.Random(4)
    inside = []

    def arguments_for(output):
        return script(
            tmp_path,
            "--do_train",
            output_dir=output,
            num_train_steps=20,
            num_warmup_steps=2,
            save_checkpoints_steps=1,
        )

    def kill(run):
        assert run.wait_for_saves(1)
        assert run.wait_for(lambda: any(".partial" in name for name in os.listdir(run.output)))
        time.sleep(rng.choice([0, 0, 0.005, 0.02, 0.05]))
        run.kill()
        inside.append(any(".partial" in name for name in os.listdir(run.output)))

    assert_ends_like_an_uninterrupted_run(tmp_path, arguments_for, [kill] * 3)
    # Some of these moments are inside a save, else this test shows nothing.
    assert any(inside)


def test_devices_must_share_the_batches_that_are_read_and_train_in_the_precision():
    def check(train_batch_size, eval_batch_size, precision="float32"):
        compute = Compute(precision=precision)
        inputs.check_batch_sizes(train_batch_size, eval_batch_size, compute, 3)

    check(6, None)
    with pytest.raises(ValueError, match="`eval_batch_size` must be a multiple of the 3 devices"):
        check(6, 8)
    check(None, 6, "mixed_float16")
    # Before a run deletes what is in its folder.
    with pytest.raises(ValueError, match="mixed_float16'` needs `strategy='one_device'`"):
        check(6, None, "mixed_float16")
