import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT, exhaustive, read_report
from helpers import opened_tasks
from helpers.checked_runs import assert_refused
from helpers.tagging_runs import (
    GOOD,
    PIECES,
    make_sentences,
    read_tags,
    settings_in,
    write_conll,
    write_task,
    write_texts,
)

import predict
import run_ner
from bert.commands.flags import changed_flags
from bert.models.open import load
from bert.tasks.tagging import tags as tagging_entities
from bert.tasks.tagging.tags import score_entities
from bert.weights.folder import ModelFolder

PIECES += ["saw", "in", "quick", "##ly", ".", "Jordan", "said", "lies"]


@pytest.fixture
def make_settings(tmp_path):
    return settings_in(tmp_path)


def read_json(path):
    return json.loads(path.read_text())


@pytest.mark.usefixtures("eager")
def test_one_file_is_enough(make_settings, tmp_path, log):
    write_conll(tmp_path / "mine.txt", make_sentences(60, 0))
    given = {"data_dir": None, "train_file": str(tmp_path / "mine.txt")}
    verbs = {"do_train": True, "do_eval": True, "num_train_epochs": 0.5}
    scores = run_ner.run(make_settings(**given, **verbs))
    assert any("6 of the 60 examples" in message for message in log.messages)
    kept = read_json(tmp_path / "out/task.json")["dev_split"]
    assert (kept["fraction"], kept["seed"]) == (0.1, 12345)
    again = run_ner.run(make_settings(**given, do_eval=True, dev_fraction=0.5))
    assert (again["f1"], again["loss"]) == (scores["f1"], scores["loss"])

    # With their neighbours, documents stay whole.
    def read(**changes):
        settings = make_settings(**{**given, "do_train": True, **changes})
        folder = ModelFolder.of(settings, settings, settings.output_dir)
        return opened_tasks.open_task(
            run_ner, settings, folder.config, folder.load_tokenizer()
        ).sentences

    split = {"do_eval": True, "dev_fraction": 0.5}
    trained = {context: read(**split, document_context=context) for context in (False, True)}
    parts = trained[True].values()
    documents = [{sentence.document for sentence in part} for part in parts]
    assert not documents[0] & documents[1]
    # Nothing is split off where nothing is evaluated.
    assert len(read()["train"]) == 60
    # With other windows than in the training, the same sentences are scored.
    path = tmp_path / "out/task.json"
    for context, parts in trained.items():
        changed = {"document_context": context, "dev_split": {**kept, "fraction": 0.5}}
        path.write_text(json.dumps({**read_json(path), **changed}))
        evaluated = read(do_train=False, do_eval=True, document_context=not context)
        assert evaluated == {"dev": parts["dev"]}


def test_a_type_that_is_only_in_the_held_out_document_is_a_label(make_settings, tmp_path):
    """Documents are not stratified, so that all entities of a type may be held out."""
    documents = ["Lena B-PER\nsaw O", "Hull B-LOC\nsaw O"]
    text = "".join(f"-DOCSTART- O\n\n{document}\n\n" for document in documents)
    (tmp_path / "mine.txt").write_text(text)
    settings = make_settings(
        data_dir=None, train_file=str(tmp_path / "mine.txt"), dev_fraction=0.5,
        do_train=True, do_eval=True, document_context=True,
    )  # fmt: skip
    folder = ModelFolder.of(settings, settings, settings.output_dir)
    task = opened_tasks.open_task(run_ner, settings, folder.config, folder.load_tokenizer())
    [held_out] = task.sentences["dev"]
    assert not {*held_out.tags} & {*task.sentences["train"][0].tags} - {"O"}
    assert task.tag_set.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    # A tenth of two documents is none of them.
    with pytest.raises(ValueError, match=r"the same documents stay together.* 2 different doc"):
        run_ner.run(dataclasses.replace(settings, dev_fraction=0.1))


def test_names_are_learned_scored_and_predicted(make_settings, tmp_path, log):
    write_task(tmp_path)
    scores = run_ner.run(
        make_settings(do_train=True, do_eval=True, do_predict=True, num_train_epochs=12.0)
    )
    assert scores["f1"] > 0.95
    assert scores["test_f1"] > 0.95
    assert scores["baseline"] == 0
    out = tmp_path / "out"
    stored = read_json(out / "eval_results.json")
    assert stored.pop("global_step") == 96
    assert stored == {name: each for name, each in scores.items() if not name.startswith("test_")}
    assert set(stored["types"]) == {"PER", "LOC"}
    for part in ("eval", "test"):
        lines = (out / f"{part}_results.txt").read_text().splitlines()
        results = dict(re.fullmatch(r"(\w+) = (\S+)", line).groups() for line in lines)
        names = ["accuracy", "f1", "loss", "precision", "recall"]
        assert sorted(results) == sorted([*(f"{part}_{n}" for n in names), "global_step", "loss"])
        expected = read_json(out / f"{part}_results.json")["f1"]
        assert float(results[f"{part}_f1"]) == pytest.approx(expected)
    # Line by line what was read, and what conlleval would score as the script did.
    lines = (out / "predictions.txt").read_text().splitlines()
    originals = (tmp_path / "test.txt").read_text().splitlines()
    assert [line.rpartition(" ")[0] for line in lines] == originals
    gold, found = read_tags(out / "predictions.txt", -2), read_tags(out / "predictions.txt")
    assert score_entities(gold, found)["f1"] == scores["test_f1"]
    assert any("processed" in message and "phrases" in message for message in log.messages)
    gold, found = (read_tags(out / "dev_predictions.txt", column) for column in (-2, -1))
    assert score_entities(gold, found)["f1"] == scores["f1"]
    shown = read_report(out)["sections"]["Sentences of the dev set"]["examples"]
    assert sum(each["is_right"] for each in shown) == sum(map(list.__eq__, gold, found))
    # Of a part of the dev set, nothing is written for the rest.
    run_ner.run(make_settings(do_eval=True, max_eval_samples=2))
    assert read_tags(out / "dev_predictions.txt", -2) == gold[:2]
    # Another day, from the folder alone.
    before = (out / "predictions.txt").read_bytes()
    (out / "predictions.txt").unlink()
    (tmp_path / "train.txt").unlink()
    keras.utils.set_random_seed(99)
    again = run_ner.run(make_settings(do_predict=True))
    assert again == {name: each for name, each in scores.items() if name.startswith("test_")}
    assert (out / "predictions.txt").read_bytes() == before


@pytest.mark.usefixtures("eager")
def test_records_are_the_same_whatever_the_columns_and_the_scheme(make_settings, tmp_path, trained):
    sentences = make_sentences(16, 3)
    records, scores = set(), []
    for scheme, template, changes in (
        ("iob2", "{word} {tag}", {}),
        ("iob1", "{tag},{word}", {"text_column": -1, "label_column": 0, "separator": "comma"}),
        ("iobes", "x\t{word}\t{tag}\ty z",
         {"text_column": 1, "label_column": 2, "separator": "tab", "input_scheme": "iobes"}),
    ):  # fmt: skip
        lines = []
        for sentence in sentences:
            tags = tagging_entities.convert([tag for _, tag in sentence], scheme)
            lines += [
                template.format(word=word, tag=tag)
                for (word, _), tag in zip(sentence, tags, strict=True)
            ]
            lines.append("")
        path = tmp_path / "mine.data"
        path.write_text("\n".join(lines))
        settings = make_settings(do_predict=True, data_dir=None, test_file=str(path), **changes)
        scores.append(run_ner.run(settings))
        records.add((trained / "predict.tf_record").read_bytes())
    assert len(records) == 1
    assert scores[0]["test_f1"] > 0
    assert scores == [scores[0]] * 3


@pytest.mark.usefixtures("eager")
def test_labels_and_predictions_may_be_of_other_schemes(make_settings, tmp_path, trained):
    write_task(tmp_path)
    assert run_ner.run(make_settings(do_predict=True, output_scheme="iob1"))["test_f1"] > 0.5
    out = tmp_path / "out"
    assert len(read_json(out / "task.json")["task"]["labels"]) == 9
    tags = read_tags(out / "predictions.txt")
    assert tags == [tagging_entities.convert(each, "iob1") for each in tags]
    run_ner.run(make_settings(do_predict=True))
    again = read_tags(out / "predictions.txt")
    assert [tagging_entities.convert(each, "iob1") for each in again] == tags
    assert any("S-PER" in each for each in again)
    with pytest.raises(ValueError, match=r"must belong to the same task.*'iobes'.*'iob1'"):
        run_ner.run(make_settings(do_predict=True, scheme="iob1"))


def test_chinese_is_tagged_by_characters(make_settings, tmp_path):
    rng = np.random.RandomState(0)
    for name, count in (("train", 48), ("dev", 20), ("test", 10)):
        lines = []
        for _ in range(count):
            for number in rng.permutation(4)[: rng.randint(1, 5)]:
                lines.append(["北京\tB-LOC", "上海\tB-LOC", "李明\tB-PER", "我在\tO"][number])
            lines.append("")
        (tmp_path / f"{name}.bio").write_text("\n".join(lines), encoding="utf-8")
    scores = run_ner.run(
        make_settings(
            do_train=True, do_eval=True, do_predict=True, num_train_epochs=12.0, unit="character"
        )
    )
    assert scores["f1"] > 0.95
    # A line has one tag, that of its first character.
    predictions = tmp_path / "out/predictions.txt"
    assert read_tags(predictions) == read_tags(predictions, -2)
    model = load(str(tmp_path / "out"))
    (answer,) = model.predict(["我在北京 李明"])
    found = [(each["type"], each["start"], each["end"]) for each in answer["entities"]]
    assert found == [("LOC", 2, 4), ("PER", 5, 7)]


# Of words that are no names.
PARTS = {"saw": "VBD", "in": "IN", "quickly": "RB", ".": "O", "ada": "NN"}


def write_parts(path, sentences):
    """Writes words with their parts of speech, and a column that none can read as tags."""
    lines = []
    for sentence in sentences:
        lines += [f"{word} {PARTS.get(word, 'NNP')} x" for word, _ in sentence] + [""]
    path.write_text("\n".join(lines))


@pytest.mark.exhaustive
def test_tags_that_are_not_entities_are_classes(make_settings, tmp_path, log):
    for number, name in enumerate(("train", "dev", "test")):
        write_parts(tmp_path / f"{name}.txt", make_sentences(48, number))
    with open(tmp_path / "test.txt", "a") as file:
        file.write("\nAda FW x\n")
    settings = make_settings(
        do_train=True, do_eval=True, do_predict=True, do_export=True, scheme="none",
        label_column=1, num_train_epochs=10.0,
    )  # fmt: skip
    scores = run_ner.run(settings)
    tags = [PARTS.get(word, "NNP") for each in make_sentences(48, 1) for word, _ in each]
    assert scores["accuracy"] > 0.95
    assert scores["baseline"] == pytest.approx(tags.count("NNP") / len(tags))
    assert {tag: each["support"] for tag, each in scores["tags"].items()} == {
        tag: tags.count(tag) for tag in ("NN", "IN", "NNP", "O", "RB", "VBD")
    }
    # What was never trained is wrong, and is told.
    assert scores["test_accuracy"] < 1
    assert "have tags that were not trained, and so count as wrong: FW" in log.text
    out = tmp_path / "out"
    assert read_json(out / "task.json")["task"] == {
        "labels": ["IN", "NN", "NNP", "O", "RB", "VBD"],
        "scheme": "none",
        "unit": "word",
    }
    assert "eval_accuracy = " in (out / "eval_results.txt").read_text()
    lines = (out / "predictions.txt").read_text().splitlines()
    assert [line.rpartition(" ")[0] for line in lines if line] == [
        line for line in (tmp_path / "test.txt").read_text().splitlines() if line
    ]
    model = load(str(out))
    (answer,) = model.predict(["Ada saw Oslo."])
    assert [(each["text"], each["tag"]) for each in answer["words"]] == [
        ("Ada", "NNP"), ("saw", "VBD"), ("Oslo", "NNP"), (".", "O"),
    ]  # fmt: skip
    assert answer["words"][2].items() >= {"start": 8, "end": 12}.items()
    exported = tf.saved_model.load(str(out / "saved_model")).signatures["serving_default"]
    found = exported(text=tf.constant(["Ada saw Oslo."]))
    assert found["entity_type"].numpy().tolist() == [[b"NNP", b"VBD", b"NNP", b"O"]]
    again = run_ner.run(make_settings(do_eval=True, label_column=1))
    assert again == {name: each for name, each in scores.items() if not name.startswith("test_")}


@pytest.mark.parametrize("kind", ["", *exhaustive("-N")])
def test_characters_are_segmented_into_words(make_settings, tmp_path, kind):
    rng = np.random.RandomState(0)
    words = ["我", "在", "北京", "上海李", "明"]
    for name, count in (("train", 48), ("dev", 20)):
        lines = []
        for _ in range(count):
            for number in rng.randint(5, size=rng.randint(1, 6)):
                word = words[number]
                tags = tagging_entities.to_tags(
                    [tagging_entities.Entity(kind[1:], 0, len(word))], len(word), "bmes"
                )
                lines += [f"{char} {tag}" for char, tag in zip(word, tags, strict=True)]
            lines.append("")
        (tmp_path / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    scores = run_ner.run(make_settings(do_train=True, do_eval=True, num_train_epochs=10.0))
    assert scores["f1"] > 0.95
    assert 0 < scores["baseline"] < 0.7
    stored = read_json(tmp_path / "out/task.json")["task"]
    assert stored["scheme"] == "bmes"
    assert stored["labels"] == [f"{prefix}{kind}" for prefix in "BMES"]
    (answer,) = load(str(tmp_path / "out")).predict(["我在北京 上海李明"])
    assert [each["text"] for each in answer["words"]] == ["我", "在", "北京", "上海李", "明"]
    assert [each.get("tag", "") for each in answer["words"]] == [kind[1:]] * 5


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_tag_of_a_word_is_learned_from_neighbouring_sentences(make_settings, tmp_path):
    for name, count, seed in (("train", 192, 0), ("dev", 40, 1)):
        rng = np.random.RandomState(seed)
        lines = []
        for _ in range(count):
            is_person = rng.randint(2)
            tag = "B-PER" if is_person else "B-LOC"
            others = ["saw O", "quickly O", ". O"][rng.randint(3) :]
            lines += ["-DOCSTART- O", "", "said O" if is_person else "lies O", ". O", ""]
            lines += [*others, f"Jordan {tag}", "", ". O", ""]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    f1 = {}
    for context in (False, True):
        settings = make_settings(
            do_train=True, do_eval=True, num_train_epochs=24.0, document_context=context,
            max_seq_length=16, output_dir=str(tmp_path / str(context)),
        )  # fmt: skip
        f1[context] = run_ner.run(settings)["f1"]
    assert f1[False] < 0.7
    assert f1[True] > 0.95
    # What the model was trained with is used again, unless it is told not to.
    stored = make_settings(do_eval=True, max_seq_length=16, output_dir=str(tmp_path / "True"))
    assert run_ner.run(stored)["f1"] == f1[True]
    assert run_ner.run(dataclasses.replace(stored, document_context=False))["f1"] < 0.9


@pytest.mark.usefixtures("eager")
def test_a_file_without_tags_is_predicted_and_not_scored(make_settings, tmp_path, log, trained):
    sentences = make_sentences(12, 3)
    # Words alone; words and parts of speech; a column of O, as some fill it.
    files = [
        "\n\n".join("\n".join(word for word, _ in each) for each in sentences),
        "\n\n".join("\n".join(f"{word} NN" for word, _ in each) for each in sentences),
        "\n\n".join("\n".join(f"{word} O" for word, _ in each) for each in sentences),
    ]
    found = []
    for text in files:
        log.clear()
        (tmp_path / "words.txt").write_text(text)
        assert run_ner.run(make_settings(do_predict=True, test_file=f"{tmp_path}/words.txt")) == {}
        assert not (tmp_path / "out/test_results.json").exists()
        is_scored = "All tags in" in log.text
        assert is_scored == (text == files[2]) and ("without tags" in log.text) != is_scored
        lines = (tmp_path / "out/predictions.txt").read_text().splitlines()
        assert [line.rpartition(" ")[0] for line in lines] == text.splitlines()
        found.append([line.split()[-1] for line in lines if line])
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == sum(map(len, sentences))


def test_the_best_weights_are_those_of_the_best_f1(make_settings, tmp_path):
    write_task(tmp_path, count=32)
    # So high a rate finds some names at first and ruins the model soon.
    settings = make_settings(
        do_train=True, do_eval=True, num_train_epochs=20.0, save_checkpoints_steps=4,
        early_stopping_patience=2, learning_rate=0.006, warmup_proportion=0.5,
    )  # fmt: skip
    scores = run_ner.run(settings)
    out = tmp_path / "out"
    history = [json.loads(line) for line in (out / "evaluations.jsonl").read_text().splitlines()]
    best = max(history, key=lambda each: each["f1"])
    assert scores["f1"] == best["f1"] > 0
    assert read_json(out / "eval_results.json")["global_step"] == best["step"]
    assert (out / f"best/model.ckpt-{best['step']}.index").exists()
    assert len(history) == history.index(best) + 3 < 20


@pytest.mark.exhaustive
def test_several_runs_report_dev_and_test(make_settings, tmp_path, log):
    write_task(tmp_path, count=16)
    summary = run_ner.run(
        make_settings(
            do_train=True, do_eval=True, do_predict=True, num_runs=2, num_train_epochs=0.5
        )
    )
    assert summary["metric"] == "f1"
    for part, prefix in (("eval", ""), ("test", "test_")):
        losses = [
            read_json(tmp_path / f"out/run_{number}/{part}_results.json")["loss"]
            for number in (1, 2)
        ]
        assert losses[0] != losses[1]
        assert summary["mean"][f"{prefix}loss"] == pytest.approx(np.mean(losses))
    # One step does not teach to find anything.
    assert summary["failed"] == [run["seed"] for run in summary["runs"] if run["scores"]["f1"] == 0]


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    write_task(folder)
    run_ner.run(settings_in(folder)(do_train=True, num_train_epochs=4.0, scheme="iobes"))
    return folder


@pytest.fixture
def trained(trained_once, tmp_path):
    """A folder that the script has filled, for each test to do with as it likes."""
    return Path(shutil.copytree(trained_once / "out", tmp_path / "out"))


def test_scores_depend_neither_on_batches_nor_on_padding(make_settings, tmp_path, trained):
    write_task(tmp_path)
    expected = run_ner.run(make_settings(do_eval=True, do_predict=True))
    assert expected["f1"] > 0.5
    lines = (tmp_path / "out/predictions.txt").read_bytes()
    for changes in (
        {"eval_batch_size": 1, "predict_batch_size": 1, "max_seq_length": 61},
        {"eval_batch_size": 7, "predict_batch_size": 5, "pad_to_max_length": True},
    ):
        scores = run_ner.run(make_settings(do_eval=True, do_predict=True, **changes))
        assert scores["types"] == expected["types"]
        assert scores["loss"] == pytest.approx(expected["loss"], abs=1e-5)
        assert (tmp_path / "out/predictions.txt").read_bytes() == lines


def script_tags(make_settings, tmp_path, sentences, **changes):
    write_conll(tmp_path / "test.txt", sentences)
    run_ner.run(make_settings(do_predict=True, **changes))
    return read_tags(tmp_path / "out/predictions.txt")


def tags_of(answer):
    """Returns the tags of a text's words between spaces, from the characters of entities."""
    text = answer["text"]
    starts = [match.start() for match in re.finditer(r"\S+", text)]
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    entities = []
    for each in answer["entities"]:
        assert text[each["start"] : each["end"]] == each["text"]
        assert 0 < each["score"] <= 1
        first, last = starts.index(each["start"]), ends.index(each["end"])
        entities.append(tagging_entities.Entity(each["type"], first, last + 1))
    return tagging_entities.to_tags(entities, len(starts), "iob2")


def answer_texts(model, sentences):
    texts = ["  ".join(word for word, _ in sentence) for sentence in sentences]
    answers = model.predict(texts)
    return [{"text": text, **answer} for text, answer in zip(texts, answers, strict=True)]


def test_loaded_model_answers_as_the_script_does(make_settings, tmp_path, trained):
    sentences = make_sentences(30, 4)
    expected = script_tags(make_settings, tmp_path, sentences, output_scheme="iob2")
    expected = [tagging_entities.convert(tags, "iob2") for tags in expected]
    assert any("B-PER" in tags for tags in expected)
    for batch_size in (1, 4, 64):
        model = load(str(trained), batch_size=batch_size)
        answers = answer_texts(model, sentences)
        assert [tags_of(answer) for answer in answers] == expected
    assert model.predict([]) == []
    assert model.predict(["", " \n"]) == [{"entities": []}, {"entities": []}]
    blank, whole = model.predict([" ", answers[0]["text"]])
    assert blank == {"entities": []}
    assert whole["entities"] == [
        {**each, "score": pytest.approx(each["score"], abs=1e-5)} for each in answers[0]["entities"]
    ]


def test_long_sentences_are_split_and_predicted_whole(make_settings, tmp_path, trained, log):
    sentences = make_sentences(10, 5, longest=14)
    assert max(map(len, sentences)) > 20
    path = trained / "task.json"
    path.write_text(json.dumps({**read_json(path), "max_seq_length": 10}))
    given = {"max_seq_length": 10, "output_scheme": "iob2"}
    found = script_tags(make_settings, tmp_path, sentences, **given)
    assert [len(tags) for tags in found] == [len(sentence) for sentence in sentences]
    assert "sentences are longer than 10 tokens and were split" in log.text
    # There are names to find beyond the first window.
    assert any("B-PER" in tags[12:] for tags in found)
    answers = answer_texts(load(str(trained)), sentences)
    assert [tags_of(answer) for answer in answers] == [
        tagging_entities.convert(tags, "iob2") for tags in found
    ]


def test_prediction_needs_nothing_but_the_folder(trained, tmp_path, python):
    moved = trained.rename(tmp_path / "moved")
    for path in moved.iterdir():
        kept = ("task.json", "vocab.txt", "bert_config.json", "bert_model.ckpt")
        if path.is_file() and not path.name.startswith(kept):
            path.unlink()
    result = subprocess.run(
        [python / "python", "predict.py", f"--model_dir={moved}"],
        cwd=ROOT,
        input="Ada Lind saw Rome.\n\n",
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert first["text"] == "Ada Lind saw Rome."
    assert {"type", "start", "end", "text", "score"} == set(first["entities"][0])
    assert second == {"text": "", "entities": []}
    assert predict.load(str(moved)).fields == ("text",)


def test_a_list_of_texts_is_no_input(trained):
    model = load(str(trained))
    with pytest.raises(ValueError, match="Input 1, counted from 0, must have text as 'text'"):
        model.predict(["Ada", {"text": ["Ada", "saw"]}])


@pytest.mark.parametrize(
    ("texts", "changes", "message"),
    [
        ({}, {"do_train": False}, "At least one of `do_train`, `do_eval`, `do_predict`"),
        ({}, {}, r"`data_dir` must hold 'train' with one of .*`train_file` name the file"),
        ({}, {"data_dir": None}, "`data_dir` or `train_file` must be given"),
        ({}, {"data_dir": "nowhere"}, "'nowhere', which is not a folder"),
        (
            {},
            {"train_file": "nowhere"},
            "`train_file` must name a file. Received 'nowhere', which does not exist",
        ),
        ({"train": GOOD}, {"do_eval": True}, "`data_dir` must hold 'dev' .*leave `da"),
        ({"train": ""}, {}, "train.txt' must hold rows"),
        ({"train": "\n\n"}, {}, "train.txt' must hold words"),
        ({"train": "Ada B-PER\nsaw NN O\n"}, {}, "train.txt:2: has 3 columns, but line 1 has 2"),
        ({"train": "Ada B-PER\nsaw\n"}, {}, "train.txt:2: has 1 column, but line 1 has 2"),
        ({"train": GOOD}, {"label_column": 2}, "train.txt:1: .*`label_column` says. It has 2"),
        ({"train": GOOD}, {"label_column": -3}, "train.txt:1: must have a column -3"),
        ({"train": GOOD}, {"text_column": 2}, "train.txt:1: .*`text_column` says"),
        ({"train": GOOD}, {"text_column": 1}, "`text_column` and `label_column` name the same"),
        ({"train": GOOD}, {"separator": "tab"}, "train.txt:1: must have a word and a tag"),
        ({"train": "Ada PER\nsaw O\n"}, {}, "train.txt:1: A tag must be O, or .*'PER'"),
        ({"train": "Ada NNP\nsaw VBD\n"}, {}, "train.txt:1: .*such as parts of speech, give `s"),
        ({"train": "Ada NN\nsaw NN\n"}, {"scheme": "none"}, r"at least two.*\['NN'\]"),
        (
            {"train": GOOD},
            {"scheme": "none", "output_scheme": "iob1"},
            "`output_scheme` needs tags that are entities",
        ),
        ({"train": GOOD + "Bo I-PER\n"}, {}, "train.txt:3: 'I-PER' must follow .*in IOB2"),
        (
            {"train": GOOD + "Bo I-PER\n"},
            {"input_scheme": "iob2"},
            "^.*train.txt:3: 'I-PER' must follow 'B-PER' or 'I-PER', not 'O', in IOB2.$",
        ),
        ({"train": GOOD + "Bo S-PER\n"}, {}, "train.txt:3: IOB2 has no tag 'S-PER'"),
        ({"train": GOOD}, {"input_scheme": "iobes"}, "train.txt:2: 'O' must not follow 'B-PER'"),
        ({"train": GOOD, "dev": "Ada O\n"}, {"do_eval": True}, "`do_eval` needs entities"),
        (
            {"train": GOOD, "dev": "x O\n\n" + GOOD},
            {"do_eval": True, "max_eval_samples": 1},
            "`max_eval_samples` must leave examples that can be scored",
        ),
        ({"train": GOOD, "dev": "Ada B-ORG\n"}, {"do_eval": True}, r"dev.txt:1: .*\['PER'\].*ORG"),
        ({"train": GOOD, "test": "Bo B-X\n"}, {"do_predict": True}, "test.txt:1: .*'B-X'"),
        ({"train": GOOD, "test": "Bo B-PER\nx y\n"}, {"do_predict": True}, "test.txt:2: A tag"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    make_settings, tmp_path, texts, changes, message
):
    write_texts(tmp_path, **texts)
    settings = make_settings(**{"do_train": True, **changes})
    assert_refused(run_ner, settings, tmp_path, message)
    out = tmp_path / "out"
    assert not out.exists() or not list(out.iterdir())


def test_two_files_for_one_split_are_refused(make_settings, tmp_path):
    (tmp_path / "train.conll").write_text(GOOD)
    write_texts(tmp_path, train=GOOD)
    with pytest.raises(ValueError, match=r"one file for the train set. .*'train.conll'"):
        run_ner.run(make_settings(do_train=True))


@pytest.mark.usefixtures("eager")
def test_suspicious_properties_are_warnings_with_counts(make_settings, tmp_path, log):
    text = GOOD + "\n\n\n" + "\u200b O\n\u200b O\nxyz B-PER\n"
    write_texts(tmp_path, train=text, dev=text)
    run_ner.run(
        make_settings(do_train=True, do_eval=True, train_batch_size=2, document_context=True)
    )
    for words in (
        "train.txt: skipped 2 empty sentences",
        "2 of 5 words, such as '\\u200b', have no word piece",
        "20.0 % of the words are [UNK]",
        "All sentences are of one document",
    ):
        assert log.text.count(words) == (1 if "train.txt" in words else 2), words


def test_the_folder_of_another_task_is_refused(make_settings, tmp_path, trained):
    write_conll(tmp_path / "train.txt", [[("Ada", "B-X"), ("saw", "O")]] * 9)
    with pytest.raises(ValueError, match=r"must belong to the same task.*'B-LOC'.*'B-X'"):
        run_ner.run(make_settings(do_train=True))
    with pytest.raises(ValueError, match=r"`do_lower_case` is False there and True now"):
        run_ner.run(make_settings(do_predict=True, test_file=f"{tmp_path}/train.txt",
                                  do_lower_case=True))  # fmt: skip
    path = trained / "task.json"
    path.write_text('{"kind": "classification"}')
    with pytest.raises(ValueError, match=r"must be a tagger .* of 'classification'"):
        run_ner.run(make_settings(do_predict=True))


def test_a_trained_head_may_come_from_a_checkpoint(make_settings, tmp_path, trained):
    write_task(tmp_path)
    expected = run_ner.run(make_settings(do_eval=True))
    weights = str(tmp_path / "out/bert_model.ckpt")
    elsewhere = {"init_checkpoint": weights, "output_dir": str(tmp_path / "elsewhere")}
    assert run_ner.run(make_settings(do_eval=True, **elsewhere)) == expected
    # The labels, in their order, are those of the model.
    (tmp_path / "train.txt").unlink()
    assert run_ner.run(make_settings(do_eval=True, **elsewhere)) == expected
    with pytest.raises(ValueError, match="`feature_based` is False there and True now"):
        run_ner.run(make_settings(do_eval=True, feature_based=True, feature_layers="last"))


def test_training_on_features_has_a_learning_rate_of_its_own_unless_one_is_given():
    rates = [
        run_ner.Settings(output_dir="out", **given).learning_rate
        for given in (
            {},
            {"feature_based": True},
            {"feature_based": True, "learning_rate": 5e-5},
            {"feature_based": False, "learning_rate": (1e-3, 2e-3)},
        )
    ]
    assert rates == [5e-5, 1e-3, 5e-5, (1e-3, 2e-3)]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, []),
        ({"learning_rate": 5e-5}, []),
        ({"learning_rate": 1e-3}, ["--learning_rate=0.001"]),
        ({"feature_based": True}, ["--learning_rate=0.001", "--feature_based"]),
        (
            {"feature_based": True, "learning_rate": 5e-5},
            ["--learning_rate=5e-05", "--feature_based"],
        ),
    ],
)
def test_the_flags_that_are_shown_train_at_the_same_rate(given, shown):
    assert {*changed_flags(run_ner.Settings(output_dir="out", **given))} == {
        *shown,
        "--output_dir=out",
    }
