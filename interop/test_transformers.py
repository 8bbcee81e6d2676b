"""Holds conversions in both directions to what transformers computes with the same weights."""

import itertools
import json
import os
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

import convert_checkpoint
import modeling
import tokenization
from bert.models import fine_tuned
from bert.weights import checkpoint, tokenizers
from bert.weights.folder import ModelFolder

ROOT = Path(__file__).parents[1]
PYTHON = Path(os.environ.get("INTEROP_PYTHON", ROOT / ".venv-interop/bin/python"))

SHAPES = {
    "erf": {
        "vocab_size": 50,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "hidden_act": "gelu",
        "max_position_embeddings": 24,
    },
    "tanh": {
        "vocab_size": 61,
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "hidden_act": "gelu_new",
        "max_position_embeddings": 16,
    },
    "wide": {
        "vocab_size": 300,
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 24,
        "hidden_act": "relu",
        "max_position_embeddings": 20,
        "type_vocab_size": 3,
    },
}

# The outputs of each architecture by their names in transformers, with the names here.
OUTPUTS = {
    "BertModel": {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"},
    "BertForPreTraining": {
        "prediction_logits": "masked_lm_logits",
        "seq_relationship_logits": "next_sentence_logits",
    },
    "BertForMaskedLM": {"logits": "masked_lm_logits"},
    "BertForNextSentencePrediction": {"logits": "next_sentence_logits"},
    "BertForSequenceClassification": {"logits": "logits"},
    "BertForQuestionAnswering": {"start_logits": "start_logits", "end_logits": "end_logits"},
    "BertForTokenClassification": {"logits": "logits"},
    "BertForMultipleChoice": {"logits": "logits"},
}
CASES = [(shape, architecture) for shape in SHAPES for architecture in OUTPUTS]
NUM_LABELS = 5
LENGTH = 12

TEXTS = ["The old man, and é!", "THE DOOR opens [MASK] 中文 x", "unaffable don't   stop\t..."]


def work(folder, jobs):
    """Runs the jobs with transformers."""
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is not there: `make test-interop` sets it up.")
    (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    result = subprocess.run(
        [PYTHON, ROOT / "interop/worker.py", folder / "jobs.json"],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


def make_inputs(shape, architecture):
    """Returns inputs under the names here; the last row has padding."""
    rng = np.random.RandomState(1)
    size = (2, 3, LENGTH) if architecture == "BertForMultipleChoice" else (3, LENGTH)
    lengths = rng.randint(5, LENGTH + 1, size[:-1])
    mask = np.arange(LENGTH) < lengths[..., None]
    types = SHAPES[shape].get("type_vocab_size", 2)
    inputs = {
        "input_ids": rng.randint(0, SHAPES[shape]["vocab_size"], size) * mask,
        "input_mask": mask,
        "segment_ids": rng.randint(0, types, size) * mask,
    }
    if OUTPUTS[architecture].keys() & {"prediction_logits"} or architecture == "BertForMaskedLM":
        inputs["masked_lm_positions"] = rng.randint(0, 5, (3, 4))
    elif architecture == "BertForNextSentencePrediction":
        inputs["masked_lm_positions"] = np.zeros((3, 1))
    return {name: values.astype(np.int32) for name, values in inputs.items()}


def run_job(folder, model, shape, architecture):
    inputs = make_inputs(shape, architecture)
    names = {
        "input_ids": "input_ids",
        "attention_mask": "input_mask",
        "token_type_ids": "segment_ids",
    }
    np.savez(f"{folder}.inputs.npz", **{n: inputs[o].astype(np.int64) for n, o in names.items()})
    return {
        "kind": "run",
        "folder": str(model),
        "architecture": architecture,
        "inputs": f"{folder}.inputs.npz",
        "outputs": f"{folder}.outputs.npz",
    }


def theirs(folder):
    with np.load(f"{folder}.outputs.npz") as outputs:
        return dict(outputs)


def compute(config_file, prefix, architecture, shape):
    """Returns what this project computes with the weights at `prefix`."""
    config = modeling.BertConfig.from_json_file(str(config_file))
    model = convert_checkpoint.make_model(architecture, config, NUM_LABELS)
    checkpoint.Stored.open(str(prefix)).assign(model.weights)
    inputs = make_inputs(shape, architecture)
    return {name: value.numpy() for name, value in model(inputs, training=False).items()}


def assert_equal(ours, theirs, architecture, shape):
    positions = make_inputs(shape, architecture).get("masked_lm_positions")
    for name, our_name in OUTPUTS[architecture].items():
        values = theirs[name]
        if our_name == "masked_lm_logits":
            values = np.take_along_axis(values, positions[:, :, None], axis=1)
        assert np.abs(values).max() > 0.1
        np.testing.assert_allclose(ours[our_name], values, rtol=0, atol=1e-5, err_msg=name)


def convert(source, output, kind):
    has_vocabulary = any((source / name).exists() for name in ("vocab.txt", "tokenizer.json"))
    settings = convert_checkpoint.Settings(
        input=str(source),
        output=str(output),
        format=kind,
        verify=False,
        without_vocabulary=not has_vocabulary,
    )
    return convert_checkpoint.run(settings)


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """A folder of models that transformers has saved, with their outputs."""
    folder = tmp_path_factory.mktemp("saved")
    jobs = []
    for number, (shape, architecture) in enumerate(CASES):
        model = folder / f"{shape}-{architecture}"
        labels = {} if architecture == "BertForQuestionAnswering" else {"num_labels": NUM_LABELS}
        job = {
            "kind": "make",
            "folder": str(model),
            "architecture": architecture,
            "config": {**SHAPES[shape], **labels},
            "seed": number,
            # The models of one shape are saved in several files.
            "max_shard_size": "20KB" if shape == "tanh" else "1GB",
        }
        jobs += [job, run_job(model, model, shape, architecture)]
    work(folder, jobs)
    return folder


@pytest.fixture(scope="session")
def converted(tmp_path_factory):
    """A folder of random models of this project, and with transformers' outputs for them."""
    folder = tmp_path_factory.mktemp("converted")
    jobs = []
    for shape, architecture in CASES:
        name = f"{shape}-{architecture}"
        source = folder / f"{name}.tf"
        source.mkdir()
        config = modeling.BertConfig.from_dict({"model_type": "bert", **SHAPES[shape]})
        (source / "bert_config.json").write_text(config.to_json_string(), encoding="utf-8")
        (source / "task.json").write_text(json.dumps(task_of(architecture)), encoding="utf-8")
        rng = np.random.RandomState(len(jobs))
        model = convert_checkpoint.make_model(architecture, config, NUM_LABELS)
        tensors = {
            v.path: rng.normal(v.path.endswith("gamma"), 0.2, v.shape).astype(np.float32)
            for v in model.weights
        }
        heads = {
            "BertForMaskedLM": "cls/seq_relationship",
            "BertForNextSentencePrediction": "cls/predictions",
        }
        left_out = heads.get(architecture, "nothing")
        tensors = {n: value for n, value in tensors.items() if not n.startswith(left_out)}
        checkpoint.save_tensors(str(source / "bert_model.ckpt"), tensors)
        convert(source, folder / name, "huggingface")
        jobs.append(run_job(folder / name, folder / name, shape, architecture))
    work(folder, jobs)
    return folder


def task_of(architecture):
    names = {name: kind for kind, name in fine_tuned.FINE_TUNED.items()}
    return {"kind": names.get(architecture, ""), "do_lower_case": True}


@pytest.mark.xdist_group("saved")
@pytest.mark.parametrize(("shape", "architecture"), CASES)
def test_their_models_compute_the_same_here(saved, tmp_path, shape, architecture):
    folder = saved / f"{shape}-{architecture}"
    expected = theirs(folder)
    ours = compute(folder / "config.json", folder, architecture, shape)
    assert_equal(ours, expected, architecture, shape)
    report = convert(folder, tmp_path, "tf")
    assert report.left_out == []
    ours = compute(tmp_path / "bert_config.json", tmp_path, architecture, shape)
    assert_equal(ours, expected, architecture, shape)


@pytest.mark.xdist_group("converted")
@pytest.mark.parametrize(("shape", "architecture"), CASES)
def test_our_models_compute_the_same_there(converted, shape, architecture):
    folder = converted / f"{shape}-{architecture}"
    source = converted / f"{shape}-{architecture}.tf"
    ours = compute(source / "bert_config.json", source, architecture, shape)
    assert_equal(ours, theirs(folder), architecture, shape)
    keys = json.loads(Path(f"{folder}.outputs.json").read_text(encoding="utf-8"))
    assert keys["missing_keys"] == keys["mismatched_keys"] == []
    # Their models for tokens have no pooler; it is stored all the same, so that none is lost.
    assert all("pooler" in name for name in keys["unexpected_keys"])


@pytest.mark.xdist_group("converted")
@pytest.mark.parametrize(("shape", "architecture"), CASES)
def test_a_round_trip_gives_back_every_byte(converted, tmp_path, shape, architecture):
    convert(converted / f"{shape}-{architecture}", tmp_path, "tf")
    before, after = (
        checkpoint.Stored.open(str(folder)).read()
        for folder in (converted / f"{shape}-{architecture}.tf", tmp_path)
    )
    assert after.keys() - {checkpoint.GLOBAL_STEP} == before.keys()
    for name, value in before.items():
        assert value.tobytes() == after[name].tobytes(), name


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_texts_have_the_same_ids(tmp_path, do_lower_case):
    """With the files that are written here, and with those that transformers makes of them."""
    vocab = (ROOT / "sample/vocab.txt").read_bytes()
    (tmp_path / "vocab.txt").write_bytes(vocab)
    values = tokenizers.tokenizer_config(do_lower_case, 64)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values), encoding="utf-8")
    outputs = tmp_path / "ids.json"
    job = {"kind": "tokenize", "folder": str(tmp_path), "texts": TEXTS, "outputs": str(outputs)}
    work(tmp_path, [job])
    expected = json.loads(outputs.read_text(encoding="utf-8"))
    for path in (tmp_path / "vocab.txt", tmp_path / "ids/tokenizer.json"):
        tokenizer = tokenization.FullTokenizer(str(path), do_lower_case)
        mask = tokenizer.vocab["[MASK]"]
        cls, sep = tokenizer.vocab["[CLS]"], tokenizer.vocab["[SEP]"]
        for text, ids in zip(TEXTS, expected, strict=True):
            parts = [tokenizer.tokenize_to_ids(part) for part in text.split("[MASK]")]
            ours = [*parts[0], *(i for part in parts[1:] for i in (mask, *part))]
            assert [cls, *ours, sep] == ids, text


def random_calls(count):
    rng = random.Random(5)
    words = [*" ".join(TEXTS).split(), "[SEP]", "and[MASK]x", "", "the", "was"]
    calls = []
    for _ in range(count):
        names = ["text", "text_pair"][: rng.randrange(1, 3)]
        texts = {
            n: [" ".join(rng.choices(words, k=rng.randrange(9))) for _ in "123"] for n in names
        }
        cut = rng.choice([True, "longest_first", "only_first", "only_second"][: 2 + len(names)])
        padding = rng.choice([True, "longest", "max_length"])
        calls.append(
            {**texts, "max_length": rng.randrange(5, 16), "truncation": cut, "padding": padding}
        )
    return calls


def test_calls_of_tokenizers_have_the_same_values(tmp_path):
    """Ids, masks and segments, of texts and pairs, cut and padded in every way; and texts again."""
    (tmp_path / "vocab.txt").write_bytes((ROOT / "sample/vocab.txt").read_bytes())
    values = tokenizers.tokenizer_config(True, 64)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values), encoding="utf-8")
    outputs = tmp_path / "calls.out"
    calls = random_calls(400)
    work(
        tmp_path,
        [{"kind": "call", "folder": str(tmp_path), "calls": calls, "outputs": str(outputs)}],
    )
    expected = json.loads(outputs.read_text(encoding="utf-8"))
    tokenizer = tokenization.FullTokenizer(str(tmp_path / "vocab.txt"))
    assert 50 < expected.count(None) < 150
    for call, theirs in zip(calls, expected, strict=True):
        texts, pairs = call.pop("text"), call.pop("text_pair", None)
        if theirs is None:
            with pytest.raises(ValueError, match="must fit"):
                tokenizer(texts, pairs, **call)
            continue
        ours = tokenizer(texts, pairs, **call)
        assert {
            "input_ids": ours["input_ids"].tolist(),
            "attention_mask": ours["input_mask"].tolist(),
            "token_type_ids": ours["segment_ids"].tolist(),
            "decoded": [
                tokenizer.decode(row, skip_special_tokens=skip)
                for row in ours["input_ids"]
                for skip in (False, True)
            ],
        } == theirs, (texts, pairs, call)


CONTENTS = ["<e1>", "</e1>", "foo", "Foo", "ab", "abc", "\xc9a", "\u4e2d\u6587", "a b"]
# Of what both decide alike: `tokenizers` has an older Unicode, and no final sigma.
CHARACTERS = (
    "abcABCxy 019\t\n\r\x00\x1f\xa0\xad\u200b\u200d\u2028\u3000\ufeff\ufffd,.;:'\"_-#[]$^`~<>=+|"
    "\xe9\xc9\xf1\xdf\u1e9e\u0130\u0131\u0301\u0323\u0345\u0416\u044f\u03b1\u0391\u4e2d\u6587\uf900"
    "\U00020000\U0002f800\u3042\ud55c\u1e69\u09cb\u2019\u201c\xb7\u24b6\u2163\u203f\u2260"
)
WAYS = list(itertools.product([True, False], [None, True, False], [True, False]))


def random_texts(count):
    rng = random.Random(5)
    parts = [*CONTENTS, *map(str.upper, CONTENTS), "[MASK]", "[SEP]", "[UNK]", *CHARACTERS]
    weights = [4] * (len(parts) - len(CHARACTERS)) + [1] * len(CHARACTERS)
    return ["".join(rng.choices(parts, weights, k=rng.randrange(12))) for _ in range(count)]


def test_random_texts_have_the_same_ids_in_every_way(tmp_path):
    """With all settings of a tokenizer, and added tokens of all attributes."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *CHARACTERS, "\u8c48", "\xe9t"]
    tokens += ["##" + token for token in tokens[5:]]
    tokens = [token for token in dict.fromkeys(tokens) if token.split() == [token]]
    texts = random_texts(1000)
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    jobs, folders = [], []
    for number, (lower, strips, chinese) in enumerate(WAYS):
        rng = random.Random(number)
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
        values = tokenizers.tokenizer_config(lower, 64)
        values |= {"strip_accents": strips, "tokenize_chinese_chars": chinese}
        (folder / "tokenizer_config.json").write_text(json.dumps(values), encoding="utf-8")
        # Of several that are the same once they are cleaned, `tokenizers` takes any.
        contents = rng.sample([each for each in CONTENTS if each != "Foo"], 5)
        added = [
            {"content": content, **{name: rng.random() < 0.4 for name in names}}
            for content in contents
        ]
        job = {"kind": "tokenize", "folder": str(folder), "texts": texts, "added": added}
        jobs.append({**job, "outputs": str(folder / "ids.json")})
        folders.append(folder)
    work(tmp_path, jobs)
    for folder, (lower, *_) in zip(folders, WAYS, strict=True):
        expected = json.loads((folder / "ids.json").read_text(encoding="utf-8"))
        # What this version of transformers saves.
        saved = ModelFolder(str(folder / "ids"))
        tokenizer = tokenizers.make(saved.find("vocab_file"), lower, saved.tokenizer_options)
        cls, sep = tokenizer.vocab["[CLS]"], tokenizer.vocab["[SEP]"]
        for text, ids in zip(texts, expected, strict=True):
            assert [cls, *tokenizer.tokenize_to_ids(text), sep] == ids, (folder.name, text)
