"""Taggers on word vectors, which have no BERT."""

import json

import numpy as np
import pytest
from conftest import eagerly
from helpers.tagging_runs import make_sentences, read_tags, write_task
from helpers.word_vector_files import WORDS, write_vectors

import extract_features
import neighbours
import predict
import run_ner
from bert.commands.checks import start
from bert.models.open import load
from bert.tasks.tagging import tags as tagging_entities
from bert.weights.checkpoint import Stored
from bert.weights.variables import WORD_TABLE

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture
def make_settings(tmp_path):
    """A function that makes settings for the sentences and vectors in a folder."""
    write_task(tmp_path)
    vectors = write_vectors(tmp_path / "vectors.txt")

    def make(**changes):
        return run_ner.Settings(
            **{
                "data_dir": str(tmp_path),
                "output_dir": str(tmp_path / "out"),
                "feature_based": True,
                "word_vectors": vectors,
                "lstm_size": 12,
                "max_seq_length": 32,
                "train_batch_size": 8,
                "learning_rate": 0.01,
                **changes,
            }
        )

    return make


TRAINING = {"do_train": True, "do_eval": True, "do_predict": True, "num_train_epochs": 8.0}


@eagerly(False)
@pytest.mark.exhaustive
def test_names_are_learned_and_the_folder_is_all_that_predicting_needs(
    make_settings, tmp_path, log
):
    scores = run_ner.run(make_settings(**TRAINING))
    # "ada", which is no name, is found as nothing else than "Ada" is not, so not all can be right.
    assert scores["test_f1"] > 0.95
    tags = read_tags(tmp_path / "out/predictions.txt")
    (tmp_path / "vectors.txt").unlink()
    given = {"output_dir": str(tmp_path / "out"), "data_dir": str(tmp_path)}
    again = run_ner.run(run_ner.Settings(**given, do_predict=True, max_seq_length=32))
    assert again["test_f1"] == scores["test_f1"]
    assert read_tags(tmp_path / "out/predictions.txt") == tags
    # As raw text, too, by either way.
    sentences = make_sentences(30, 2)
    texts = [" ".join(word for word, _ in sentence) for sentence in sentences]
    answers = load(str(tmp_path / "out")).predict(texts)
    for answer, each, text in zip(answers, tags, texts, strict=True):
        expected = [entity.type for entity in tagging_entities.find_entities(each)]
        assert [entity["type"] for entity in answer["entities"]] == expected
        assert all(text[e["start"] : e["end"]] == e["text"] for e in answer["entities"])
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    files = {"input_file": str(tmp_path / "texts.txt"), "output_file": str(tmp_path / "a.jsonl")}
    predict.run(predict.Settings(**files, model_dir=str(tmp_path / "out")))
    assert (tmp_path / "a.jsonl").read_text().count('"entities"') == len(texts)


def test_vectors_are_those_of_the_file_and_stay_as_they_are(make_settings, tmp_path, log):
    run_ner.run(make_settings(do_train=True, num_train_epochs=0.2))
    table = Stored.open(str(tmp_path / "out")).read([WORD_TABLE])[WORD_TABLE]
    # The model that is made of the file for the run is nobody's later.
    told = json.loads((tmp_path / "out/run.json").read_text())["ran_with"]["flags"]
    assert told["--word_vectors"] == str(tmp_path / "vectors.txt")
    assert "--init_checkpoint" not in told
    page = (tmp_path / "out/report.html").read_text()
    assert "vectors.txt" in page and "bert-model-" not in page
    words = (tmp_path / "out/vocab.txt").read_text().split()
    lines = [line.split() for line in (tmp_path / "vectors.txt").read_text().splitlines()]
    values = np.array([line[1:] for line in lines], np.float32)
    assert words == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    np.testing.assert_array_equal(table[4:], values)
    np.testing.assert_array_equal(table[1], values.mean(axis=0))
    sentences = [word for each in make_sentences(64, 0) for word, _ in each]
    whole = 100 * sum(word in WORDS for word in sentences) / len(sentences)
    lower = 100 * sentences.count("Rome") / len(sentences)
    assert f"{whole:.1f} % have a vector as they are written, {lower:.1f} % in lower" in log.text
    assert f"; {100 - whole - lower:.1f} % have the vector of unknown words" in log.text


@eagerly(False)
def test_predictions_depend_on_vectors_alone(make_settings, tmp_path, log):
    words = [*WORDS, "Paris", "paris"]
    path = write_vectors(tmp_path / "vectors.txt", words)
    lines = (tmp_path / "vectors.txt").read_text().splitlines()
    # Paris is another word for Oslo, and for all that is known of it, "unheard" is "nowhere".
    lines[-2] = "Paris" + lines[4].removeprefix("Oslo")
    (tmp_path / "vectors.txt").write_text("\n".join(lines))
    with eagerly():
        run_ner.run(make_settings(do_train=True, num_train_epochs=0.2, word_vectors=path))
    model = load(str(tmp_path / "out"))

    log.clear()
    model.predict(["Ada saw nowhere .", "Ada went nowhere else ."])
    assert not log.messages

    def score(word):
        _, predictions = model.decide(model.task.parse([{"text": f"Ada saw {word} ."}]))
        return predictions.sentences[0].probabilities

    assert score("Paris") == score("Oslo") != score("paris")
    assert score("PARIS") == score("paris")
    assert score("unheard") == score("nowhere") != score("Oslo")


def test_unsupported_uses_of_word_vectors_are_refused(make_settings, tmp_path):
    def refuse(message, **changes):
        with pytest.raises(ValueError, match=message):
            run_ner.run(make_settings(do_train=True, **changes))

    refuse("^`word_vectors` must go with `feature_based`", feature_based=None)
    refuse("^`init_checkpoint` must not be given", init_checkpoint="model")
    for lowers in (True, False):
        refuse("^`do_lower_case` must not be given", do_lower_case=lowers)
    refuse("`feature_layers` must be embeddings", feature_layers="weighted")
    refuse("`.*do_export` must not be given for a tagger on word vectors", do_export=True)
    refuse("`word_vectors` must name existing files", word_vectors=str(tmp_path / "nowhere.txt"))
    assert not (tmp_path / "out").exists()
    run_ner.run(make_settings(do_train=True, num_train_epochs=0.2))
    out = str(tmp_path / "out")
    # Other vectors are another model.
    other = write_vectors(tmp_path / "other.txt", WORDS[::-1])
    refuse(r"vocab.txt differs from `word_vectors`", word_vectors=other)
    fewer = write_vectors(tmp_path / "fewer.txt", WORDS[1:])
    refuse(r"`vocab_size` is 16 there and 15 in `word_vectors`.*old vectors", word_vectors=fewer)
    with pytest.raises(ValueError, match="has word vectors alone"):
        load(out).encode(["Ada"])
    files = {"input_file": str(tmp_path / "train.txt"), "output_file": str(tmp_path / "f.npy")}
    for layers in ("last", "0", "embeddings"):
        settings = extract_features.Settings(**files, init_checkpoint=out, layers=layers)
        with pytest.raises(ValueError, match="has word vectors alone"):
            extract_features.run(settings)
    sentence = neighbours.Settings(**files, init_checkpoint=out, query="Ada saw Oslo")
    with pytest.raises(ValueError, match="has word vectors alone"):
        neighbours.run(sentence)
    # A word has the vector of the table, as it has in the file.
    found = []
    for source in ({"init_checkpoint": out}, {"word_vectors": str(tmp_path / "vectors.txt")}):
        path = tmp_path / f"{next(iter(source))}.jsonl"
        neighbours.run(neighbours.Settings(**source, word="Oslo", output_file=str(path)))
        found.append(json.loads(path.read_text()))
    assert found[0] == found[1]


def test_a_check_shows_the_vectors(make_settings, capsys):
    settings = make_settings(do_train=True, do_eval=True, check=True)
    start(settings, run_ner.run, run_ner.check)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("✓ word vectors") and not any(line[0] == "✗" for line in lines)
    settings = make_settings(do_train=True, word_vectors="nowhere", check=True)
    with pytest.raises(SystemExit, match="1 of 1 would end the run"):
        start(settings, run_ner.run, run_ner.check)
    assert capsys.readouterr().out.startswith("✗ word vectors")
