import collections
import random

import pytest

import run_classifier
from bert.files.split import DevSplit, find_split, split_fields, stored_split

# Three labels of very different frequency.
LABELS = ["a"] * 150 + ["b"] * 40 + ["c"] * 10
TEXTS = [f"text {number}" for number in range(200)]


def divide(texts=TEXTS, labels=LABELS, fraction=0.1, seed=1):
    rows = list(zip(texts, labels, strict=True))
    keys = [text if isinstance(text, tuple) else (text,) for text in texts]
    return DevSplit(fraction, seed).divide("my.csv", rows, keys, labels)


def test_each_example_is_on_one_side_and_labels_are_alike_on_both():
    train, dev = divide()
    assert sorted([*train, *dev]) == sorted(zip(TEXTS, LABELS, strict=True))
    assert collections.Counter(label for _, label in dev) == {"a": 15, "b": 4, "c": 1}
    # Both keep the order of the file.
    assert train == [row for row in zip(TEXTS, LABELS, strict=True) if row in set(train)]


def test_the_split_is_a_function_of_the_texts_and_the_seed():
    assert divide() == divide()
    assert set(divide(seed=2)[1]) != set(divide()[1])
    order = random.Random(0).sample(range(200), 200)
    shuffled = divide([TEXTS[i] for i in order], [LABELS[i] for i in order])
    assert set(shuffled[1]) == set(divide()[1])


def test_the_same_texts_stay_together_whatever_their_case_spaces_and_order():
    pairs = [(f"one {i // 4}", f"other {i // 4}") for i in range(200)]
    pairs = [(a.upper(), f" {b}") if i % 2 else (b, a) for i, (a, b) in enumerate(pairs)]
    train, dev = divide(pairs, ["x"] * 200)
    sides = [
        {" ".join(sorted(text.lower().split())) for text in map(" ".join, rows)}
        for rows in ([pair for pair, _ in train], [pair for pair, _ in dev])
    ]
    assert not sides[0] & sides[1]
    assert len(dev) == 20


def test_a_label_that_occurs_once_is_trained_on():
    train, _ = divide(labels=["rare", *["a"] * 199], fraction=0.5)
    assert train[0] == ("text 0", "rare")


@pytest.mark.parametrize("fraction", [0.0, 0.9])
def test_no_side_may_be_empty(fraction):
    with pytest.raises(ValueError, match=r"'my.csv' has 1, with 1 different texts\. Give a"):
        divide(["only"], ["a"], fraction)


def test_texts_that_are_all_the_same_are_told():
    with pytest.raises(ValueError, match=r"has 40, with 1 different texts\. Give a `--dev_file`"):
        divide([" A text", "a  text"] * 20, ["x", "y"] * 20)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
def test_the_fraction_leaves_something_to_both_sides(fraction):
    with pytest.raises(ValueError, match=r"`--dev_fraction` must be between 0 and 1, .* Received"):
        run_classifier.Settings(output_dir="out", dev_fraction=fraction)


def test_a_dev_set_is_split_off_only_where_there_is_no_other():
    def find(stored=(), **given):
        settings = run_classifier.Settings(output_dir="out", do_eval=True, **given)
        return find_split(settings, dict(stored))

    assert find(train_file="a.csv", do_train=True) == DevSplit(0.1, 12345)
    assert find(train_file="a.csv", do_train=True, split_seed=7, dev_fraction=0.2) == DevSplit(
        0.2, 7
    )
    assert find(train_file="a.csv", dev_file="b.csv") is None
    assert find(train_file="a.csv", data_dir="folder") is None
    # What was split off when it was trained counts, whatever the flags are now.
    kept = {"dev_split": {"fraction": 0.3, "seed": 4}}
    assert find(kept, train_file="a.csv", seed=9) == DevSplit(0.3, 4)
    with pytest.raises(ValueError, match="no dev set was split off when the model was"):
        find(train_file="a.csv")


def test_a_split_is_that_of_its_file_and_no_other(tmp_path):
    def find(name, stored=(), **verbs):
        given = {"output_dir": "out", "do_eval": True, "train_file": str(tmp_path / name), **verbs}
        return find_split(run_classifier.Settings(**given), dict(stored))

    (tmp_path / "a.csv").write_text("text,label\na,b\n")
    (tmp_path / "moved.csv").write_text("text,label\na,b\n")
    (tmp_path / "longer.csv").write_text("text,label\na,b\nc,d\n")
    stored = split_fields(find("a.csv", do_train=True))
    assert find("a.csv", stored) == find("moved.csv", stored) == stored_split(stored)
    with pytest.raises(ValueError, match=r"`--train_file` must be .* Give the file of then, or"):
        find("longer.csv", stored)
    # A folder of before tells of no file.
    old = {"dev_split": {"fraction": 0.1, "seed": 12345}}
    assert split_fields(find("longer.csv", old)) == old
    for damaged in (3, {}, [1], {"fraction": "x", "seed": 1}):
        with pytest.raises(ValueError, match="`dev_split` must have a fraction and a seed"):
            stored_split({"dev_split": damaged})
