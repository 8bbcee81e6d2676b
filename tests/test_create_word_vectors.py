import json
import sys

import numpy as np
import pytest
from conftest import GOLDEN, ROOT, copy_golden, exhaustive, run_python
from helpers.checked_runs import assert_refused

import bert
import create_word_vectors
import neighbours
from bert.files.word_vectors import WordVectors, read_word_vectors
from bert.models.neighbours import save_as_model
from bert.weights.checkpoint import Stored

# Each pair of words has the same company, which no other has.
PAIRS = [("cat", "dog"), ("Oslo", "Rome"), ("red", "blue")]


def make_text(num_sentences=600):
    rng = np.random.RandomState(0)
    lines = []
    for number in range(num_sentences):
        place = rng.randint(len(PAIRS))
        lines.append(f"before{place} {PAIRS[place][rng.randint(2)]} behind{place}")
        lines += [""] * (number % 5 == 4)
    return "\n".join(lines) + "\n"


@pytest.fixture
def learn(tmp_path):
    """A function that returns the file of vectors of a text."""

    def learn(text, **changes):
        (tmp_path / "text.txt").write_text(text)
        values = {"vector_size": 12, "window": 3, "overwrite": True, **changes}
        values = {"input_file": str(tmp_path / "text.txt"), **values}
        values = {"output_file": str(tmp_path / "vectors.txt"), **values}
        create_word_vectors.run(create_word_vectors.Settings(**values))
        return (tmp_path / "vectors.txt").read_bytes()

    return learn


def test_words_of_the_same_company_are_each_others_nearest_neighbours(learn, tmp_path):
    learn(make_text().replace("\n", "\n\n"), epochs=400, window=1)
    words = [word for pair in PAIRS for word in pair]
    given = {"word_vectors": str(tmp_path / "vectors.txt"), "word": ",".join(words), "top_k": 1}
    output = str(tmp_path / "found")
    settings = neighbours.Settings(**given, output_file=output, format="text")
    assert neighbours.run(settings) == len(words)
    blocks = (tmp_path / "found").read_text().strip().split("\n\n")
    found = {block.split()[0]: block.split()[2] for block in blocks}
    assert found == {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}


@pytest.mark.parametrize("script", ["create_word_vectors.py", "run_pretraining.py"])
def test_seeds_that_no_generator_takes_are_refused_with_their_flag(script):
    result = run_python(script, f"--seed={2**32}", check=False)
    assert result.returncode != 0
    assert "`--seed` must be an integer in the range [0, 4294967295]" in result.stderr


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(learn, tmp_path):
    text = make_text(100)
    vectors = learn(text)
    assert vectors.startswith(b"12 12\n")
    assert learn(text) == vectors
    assert learn(text, seed=5) != vectors
    # In another process, strings have other hashes.
    arguments = [f"--input_file={tmp_path / 'text.txt'}", f"--output_file={tmp_path / 'other.txt'}"]
    arguments += ["--vector_size=12", "--window=3"]
    run_python(str(ROOT / "create_word_vectors.py"), *arguments, PYTHONHASHSEED="77")
    assert (tmp_path / "other.txt").read_bytes() == vectors


def test_documents_count_and_not_where_their_lines_end(learn, tmp_path):
    text = make_text(100)
    vectors = learn(text)
    documents = text.split("\n\n")
    assert learn("\n\n\n".join(each.replace("\n", " ") for each in documents)) == vectors
    assert learn("\n\n".join(each.replace(" ", "\n") for each in documents)) == vectors
    assert learn(text.replace("\n\n", "\n")) != vectors
    # A byte order mark is of no word.
    assert learn("\ufeff" + text) == vectors
    # Documents end with files.
    names = []
    for number, each in enumerate(documents):
        names.append(str(tmp_path / f"part-{number:02}.txt"))
        (tmp_path / f"part-{number:02}.txt").write_text(each)
    assert learn(text, input_file=",".join(names)) == vectors


def test_long_documents_lose_no_word(learn, tmp_path):
    learn("some words " * 12_000 + "rare " * 5)
    assert read_word_vectors(str(tmp_path / "vectors.txt")).words == ["some", "words", "rare"]


def test_words_are_as_they_are_written_unless_they_are_lower_cased(learn, tmp_path):
    text = "Rome rome isn't U.S. rome " * 5 + "once\n"
    learn(text)
    found = read_word_vectors(str(tmp_path / "vectors.txt"))
    assert found.words == ["rome", "Rome", "isn't", "U.S."]
    learn(text, do_lower_case=True)
    found = read_word_vectors(str(tmp_path / "vectors.txt"))
    assert found.words == ["rome", "isn't", "u.s."]


def test_words_between_spaces_have_vectors_of_their_own(learn, tmp_path):
    # Control characters part no words, as for create_pretraining_data.py.
    text = "青蛙 在 水 里 。 th\x1ce U.S. isn't-it \u3000 水 里\n" * 5
    learn(text, words="spaces")
    found = read_word_vectors(str(tmp_path / "vectors.txt"))
    assert {*found.words} == {"青蛙", "在", "水", "里", "。", "the", "U.S.", "isn't-it"}
    given = {"word_vectors": str(tmp_path / "vectors.txt"), "word": "青蛙", "top_k": 9}
    neighbours.run(neighbours.Settings(**given, output_file=str(tmp_path / "found")))
    assert "水" in (tmp_path / "found").read_text()
    learn(text)
    found = read_word_vectors(str(tmp_path / "vectors.txt"))
    assert {"青", "蛙"} <= {*found.words} and "青蛙" not in found.words


def test_what_cannot_be_learned_is_refused_and_what_is_there_stays(learn, tmp_path, monkeypatch):
    vectors = learn("a b c " * 5)
    with pytest.raises(ValueError, match=r"None of the 15 words .* occurs 6 times"):
        learn("a b c " * 5, min_count=6)
    with pytest.raises(ValueError, match="`input_file` must hold text"):
        learn("\ufeff \n\x0c\n")
    monkeypatch.setitem(sys.modules, "gensim.models.word2vec", None)
    with pytest.raises(ValueError, match="pip install gensim"):
        learn("a b c " * 9)
    assert (tmp_path / "vectors.txt").read_bytes() == vectors


@pytest.fixture
def read_off(tmp_path):
    """A function that returns the table of the original's small model."""

    def read_off(**changes):
        path = tmp_path / "table.txt"
        given = {"init_checkpoint": str(GOLDEN / "bert_model.ckpt"), "overwrite": True, **changes}
        settings = create_word_vectors.Settings(output_file=str(path), **given)
        create_word_vectors.run(settings)
        return read_word_vectors(str(path))

    return read_off


def test_a_table_has_the_distances_of_encoded_words_weighted_by_rank(read_off):
    model = bert.load(GOLDEN / "bert_model.ckpt")
    table = read_off(vector_size=model.config.hidden_size)
    vocab = model.tokenizer.vocab
    words = [word for word in table.words if model.tokenizer.tokenize(word) == [word]]
    assert len(words) > 10
    assert not {"[CLS]", "[UNK]", "[PAD]"} & {*table.words}
    rows = [table.rows[word] for word in words]
    values = table.values[rows] / np.log1p([vocab[word] for word in words])[:, None]
    encoded = model.encode(words)
    # All principal components are a rotation around the mean. The file has six digits.
    ours, theirs = (each[:, None] - each[None] for each in (values, encoded))
    np.testing.assert_allclose(
        np.linalg.norm(ours, axis=-1), np.linalg.norm(theirs, axis=-1), rtol=1e-3, atol=1e-3
    )
    # Fewer are the first of them.
    np.testing.assert_allclose(read_off(vector_size=3).values, table.values[:, :3], rtol=1e-5)


@pytest.fixture
def pooled(tmp_path):
    """A function that returns the folder of that model with a pooling of sentence-transformers."""

    def pooled(pooling, *others):
        folder = tmp_path / "pooled"
        (folder / "1_Pooling").mkdir(parents=True)
        copy_golden(folder)
        paths = {"Transformer": "", "Pooling": "1_Pooling", **dict.fromkeys(others, "2")}
        modules = [{"type": f"x.{kind}", "path": path} for kind, path in paths.items()]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode": pooling}))
        return str(folder)

    return pooled


@pytest.mark.parametrize("pooling", ["cls", *exhaustive("max", "mean")])
def test_a_table_is_pooled_as_its_folder_says(read_off, pooled, log, pooling):
    folder = pooled(pooling, "Dense")
    table = read_off(init_checkpoint=folder, vector_size=16)
    assert any("'Dense', which is left out" in message for message in log.messages)
    model = bert.load(GOLDEN / "bert_model.ckpt")
    pair = [word for word in table.words if model.tokenizer.tokenize(word) == [word]][:2]
    ranks = np.log1p([model.tokenizer.vocab[word] for word in pair])[:, None]
    ours = table.values[[table.rows[word] for word in pair]] / ranks
    for other in ("cls", "max", "mean"):
        theirs = model.encode(pair, pooling=other)
        distances = [np.linalg.norm(each[0] - each[1]) for each in (ours, theirs)]
        assert (distances[0] == pytest.approx(distances[1], rel=1e-3)) == (other == pooling)


@pytest.mark.parametrize("pooling", ["lasttoken", "weightedmean"])
def test_a_table_of_a_pooling_that_is_not_computed_here_is_refused(pooled, tmp_path, pooling):
    settings = create_word_vectors.Settings(
        init_checkpoint=pooled(pooling), vector_size=3, output_file=str(tmp_path / "table.txt")
    )
    message = rf"`init_checkpoint` must .*{pooling}"
    assert_refused(create_word_vectors, settings, tmp_path, message)
    assert not (tmp_path / "table.txt").exists()


def test_a_table_is_read_off_a_model_or_learned_from_text_and_not_both(read_off, tmp_path):
    for given in ({"input_file": "text.txt"}, {"init_checkpoint": None}):
        with pytest.raises(ValueError, match="Either `input_file` or `init_checkpoint`"):
            read_off(**given)
    with pytest.raises(ValueError, match="`window` must not be given"):
        read_off(window=3)
    with pytest.raises(ValueError, match="`vector_size` must be at most"):
        read_off(vector_size=10_000)
    assert not (tmp_path / "table.txt").exists()


def test_a_model_of_word_vectors_has_each_word_once_and_no_table(tmp_path):
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    vectors = WordVectors(["a", "[SEP]", "b", "[UNK]"], values)
    save_as_model(vectors, str(tmp_path))
    vocab = (tmp_path / "vocab.txt").read_text().splitlines()
    assert vocab == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b"]
    [table] = Stored.open(str(tmp_path)).read().values()
    zeros = np.zeros(2)
    np.testing.assert_array_equal(table, [zeros, [3, 4], zeros, zeros, values[0], values[2]])
    settings = create_word_vectors.Settings(
        init_checkpoint=str(tmp_path), vector_size=2, output_file=str(tmp_path / "table.txt")
    )
    assert_refused(create_word_vectors, settings, tmp_path, "must have an encoder")
