import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import change, exhaustive, read_tensors
from helpers.tagging_runs import PIECES, make_sentences, settings_in, write_task

import modeling
import run_ner
import tokenization
from bert.models.open import load
from bert.tasks.features import Extractor
from bert.tasks.layers import FEATURE_LAYERS, combine, parse_layers
from bert.tasks.layers import width as width_of
from bert.tasks.tagging import tags as tagging_entities
from bert.tasks.tagging import windows as tagging_windows
from bert.tasks.tagging import word_features
from bert.tasks.tagging.feature_tagger import FeatureTagger, LayerMix, WordTagger
from bert.tasks.tagging.sentences import Sentence
from bert.tasks.tagging.tags import TagSet
from bert.training.batches import Batches
from bert.weights import saving

pytestmark = pytest.mark.usefixtures("eager")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *PIECES]
TOKENIZER = tokenization.FullTokenizer.from_vocab(
    {word: number for number, word in enumerate(WORDS)}, do_lower_case=False
)
MAX_SEQ_LENGTH = 16


@pytest.fixture
def config(still_config):
    return change(still_config, vocab_size=len(WORDS), num_hidden_layers=4, initializer_range=0.3)


def make_arrays(count=12, seed=0):
    """Returns windows over sentences of which some are longer than a window."""
    pairs = make_sentences(count, seed, longest=6)
    sentences = [Sentence([word for word, _ in each], [tag for _, tag in each]) for each in pairs]
    task = TagSet.from_tags([sentence.tags for sentence in sentences], "iob2")
    return (
        sentences,
        task,
        tagging_windows.make_features(sentences, task, TOKENIZER, MAX_SEQ_LENGTH),
    )


@functools.cache
def built_tagger(config_text, num_labels, layers, **changes):
    """Returns a tagger, which takes a while to build, and its initial weights."""
    config = modeling.BertConfig.from_dict(json.loads(config_text))
    tagger = FeatureTagger(config, num_labels, layers=layers, lstm_size=6, **changes)
    rng = np.random.RandomState(3)
    for variable in tagger.tagger.weights:
        variable.assign(rng.standard_normal(variable.shape) / 2)
    variables = {id(each): each for each in (*tagger.encoder.weights, *tagger.tagger.weights)}
    return tagger, [(variable, variable.numpy()) for variable in variables.values()]


def make_tagger(config, task, layers="concat_last_four", **changes):
    """Returns a tagger whose weights are the same each time, whatever a test made of them."""
    tagger, weights = built_tagger(config.to_json_string(), len(task.labels), layers, **changes)
    for variable, values in weights:
        variable.assign(values)
    return tagger


def encoder_inputs(arrays):
    return {name: arrays[name] for name in ("input_ids", "input_mask", "segment_ids")}


OFTEN = ("second_to_last", "concat_last_four", "weighted")
RARELY = exhaustive(*(name for name in FEATURE_LAYERS if name not in OFTEN))


@pytest.mark.parametrize("layers", [*OFTEN, *RARELY])
def test_features_are_those_of_extract_features_at_first_pieces(config, layers, tmp_path):
    _, task, arrays = make_arrays()
    tagger = make_tagger(config, task, layers)
    features = word_features.WordFeatures(tagger.encoder, arrays, str(tmp_path / "x.features.npy"))
    numbers = range(4) if layers == "weighted" else [layers]
    extractor = Extractor(modeling.BertModel(config), list(numbers), "none")
    for ours, theirs in zip(tagger.encoder.weights, extractor.model.weights, strict=True):
        assert ours.path == theirs.path
        theirs.assign(ours)
    expected = [
        np.asarray(each) for each in tf.nest.flatten(extractor.model(encoder_inputs(arrays)))
    ]
    expected = np.stack(expected, axis=2) if layers == "weighted" else expected[0]
    width = 1 if layers == "weighted" else width_of(layers, config) // 8
    assert features.shape == ((4, 8) if layers == "weighted" else (8 * width,))
    assert len(features) == len(arrays["input_ids"]) > 12
    for number, mask in enumerate(arrays["label_mask"] > 0):
        assert features[number].dtype == np.float32
        np.testing.assert_allclose(features[number], expected[number][mask], atol=1e-5)


@pytest.mark.parametrize("layers", ["weighted", *exhaustive("sum_last_four")])
def test_training_and_prediction_give_the_same_logits(config, tmp_path, layers):
    _, task, arrays = make_arrays(6)
    tagger = make_tagger(config, task, layers)
    features = word_features.WordFeatures(tagger.encoder, arrays, str(tmp_path / "x.features.npy"))
    words = word_features.compact(arrays)
    whole = tagger.whole_model()
    inputs = {**encoder_inputs(arrays), "label_mask": arrays["label_mask"]}
    logits = np.asarray(whole(inputs)["logits"])
    assert not logits[arrays["label_mask"] == 0].any()
    batches = word_features.FeatureBatches(features, words, batch_size=5)
    count = 0
    for step, batch in enumerate(batches.iterate(0, batches.num_batches)):
        outputs = tagger.model({name: batch[name] for name in tagger.model.input})["logits"]
        for number, each in zip(batches.numbers(step), outputs, strict=True):
            expected = logits[number][arrays["label_mask"][number] > 0]
            np.testing.assert_allclose(each[: len(expected)], expected, atol=1e-5)
            count += 1
    assert count == len(arrays["input_ids"])


def test_the_whole_model_depends_neither_on_padding_nor_on_other_rows(config):
    _, task, arrays = make_arrays()
    whole = make_tagger(config, task).whole_model()
    inputs = {**encoder_inputs(arrays), "label_mask": arrays["label_mask"]}
    together = np.asarray(whole(inputs)["logits"])
    lengths = arrays["input_mask"].sum(axis=1)
    # The first of each length: the shortest, the longest and one between them.
    rows = dict(zip(*np.unique(lengths, return_index=True), strict=True))
    chosen = [*rows][:: max(1, (len(rows) - 1) // 2)]
    assert len(chosen) >= 3
    for row, length in ((rows[length], length) for length in chosen):
        alone = whole({name: values[row : row + 1, :length] for name, values in inputs.items()})
        np.testing.assert_allclose(together[row, :length], alone["logits"][0], atol=1e-5)


def test_the_checkpoint_of_either_model_holds_everything(config):
    _, task, _ = make_arrays()
    tagger = make_tagger(config, task, "weighted")
    names = {variable.path for variable in tagger.model.weights}
    assert names == {variable.path for variable in tagger.whole_model().weights}
    assert {name for name in names if name.startswith("bert/")} == {
        variable.path for variable in tagger.encoder.weights
    }
    assert sorted(name for name in names if not name.startswith("bert/")) == sorted(
        [f"bilstm/layer_{number}/{direction}_lstm/lstm_cell/{name}"
         for number in (0, 1) for direction in ("forward", "backward")
         for name in ("kernel", "recurrent_kernel", "bias")]
        + ["bilstm/mix/layer_weights", "bilstm/mix/scale"]
        + ["bilstm/output/kernel", "bilstm/output/bias"]
    )  # fmt: skip
    assert not [v.path for v in tagger.model.trainable_variables if v.path.startswith("bert/")]


def compact_words(arrays):
    words = word_features.compact(arrays)
    rows = zip(words["word_ids"], words["label_mask"], strict=True)
    return words, [list(ids[mask > 0]) for ids, mask in rows]


def test_compact_keeps_words_in_order(config):
    _, _, arrays = make_arrays()
    words, numbers = compact_words(arrays)
    for row, mask in enumerate(arrays["label_mask"] > 0):
        assert numbers[row] == arrays["word_ids"][row][mask].tolist()
        count = mask.sum()
        labels = words["label_ids"][row, :count]
        assert labels.tolist() == arrays["label_ids"][row][mask].tolist()
        assert (words["word_ids"][row, count:] == tagging_windows.NO_WORD).all()


def test_words_are_decoded_as_from_windows(config):
    sentences, task, arrays = make_arrays()
    rng = np.random.RandomState(0)
    logits = rng.standard_normal((*arrays["input_ids"].shape, len(task.labels)))
    words = word_features.compact(arrays)
    compacted = np.zeros((*words["label_ids"].shape, len(task.labels)))
    compacted[words["label_mask"] > 0] = logits[arrays["label_mask"] > 0]
    ours, theirs = (
        tagging_windows.decode(task, sentences, tagging_windows.by_word(*pair))
        for pair in ((words, compacted), (arrays, logits))
    )
    assert ours == theirs
    assert tagging_windows.loss(words, compacted) == pytest.approx(
        tagging_windows.loss(arrays, logits)
    )


def open_features(tagger, arrays, path):
    return word_features.WordFeatures(tagger.encoder, arrays, str(path)).rows


def test_a_file_of_features_is_reused_unless_its_inputs_have_changed(config, tmp_path, log):
    _, task, arrays = make_arrays()
    path = tmp_path / "x.features.npy"
    tagger = make_tagger(config, task)
    first = np.array(open_features(tagger, arrays, path))
    # A NumPy file for others, too.
    np.testing.assert_array_equal(np.load(path), first)
    place = path.stat().st_ino
    again = open_features(tagger, arrays, path)
    assert isinstance(again, np.memmap)
    np.testing.assert_array_equal(again, first)
    assert path.stat().st_ino == place
    assert any("those of an earlier run" in message for message in log.messages)
    # Other labels, and other weights of the tagger, change nothing.
    tagger.tagger.weights[0].assign(tagger.tagger.weights[0] + 1)
    open_features(tagger, {**arrays, "label_ids": arrays["label_ids"] * 0}, path)
    assert path.stat().st_ino == place
    # Other weights of the encoder do.
    bias = next(v for v in tagger.encoder.weights if v.path.endswith("layer_3/output/dense/bias"))
    bias.assign(np.arange(8) - 3.5)
    changed = np.array(open_features(tagger, arrays, path))
    assert path.stat().st_ino != place
    assert np.abs(changed - first).max() > 0.1
    fewer = arrays["label_mask"].copy()
    fewer[tuple(np.argwhere(fewer)[-1])] = 0
    # One after another, each of these does.
    for layers, other, dtype in (
        ("sum_last_four", arrays, "float32"),
        ("sum_last_four", arrays, "mixed_bfloat16"),
        ("sum_last_four", {**arrays, "label_mask": fewer}, "mixed_bfloat16"),
        ("sum_last_four", make_arrays(seed=1)[2], "mixed_bfloat16"),
    ):
        place = path.stat().st_ino
        other_tagger = make_tagger(config, task, layers, dtype=dtype)
        for ours, theirs in zip(other_tagger.encoder.weights, tagger.encoder.weights, strict=True):
            ours.assign(theirs)
        open_features(other_tagger, other, path)
        assert path.stat().st_ino != place
        assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_a_damaged_file_is_computed_again(config, tmp_path, keep):
    _, task, arrays = make_arrays()
    tagger = make_tagger(config, task)
    path = tmp_path / "x.features.npy"
    first = np.array(open_features(tagger, arrays, path))
    path.write_bytes(path.read_bytes()[:keep])
    np.testing.assert_array_equal(open_features(tagger, arrays, path), first)
    assert np.load(path).shape == first.shape


def test_a_flipped_bit_of_stored_features_is_found(config, tmp_path, log):
    _, task, arrays = make_arrays()
    tagger = make_tagger(config, task)
    path = tmp_path / "x.features.npy"
    rows = np.array(open_features(tagger, arrays, path))
    whole = path.read_bytes()
    start = whole.index(rows.tobytes())
    end = start + rows.nbytes
    message = f"{path} is damaged: its features are computed again."
    # Among values, and in the key and the checksum behind them.
    for place in (start, end - 4, *range(end + 130, len(whole), 97)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        log.clear()
        np.testing.assert_array_equal(open_features(tagger, arrays, path), rows)
        assert path.read_bytes() == whole
        assert (message in log.messages) >= (place < end)


def test_features_do_not_depend_on_parts_and_a_failure_leaves_no_file(
    config, tmp_path, monkeypatch
):
    _, task, arrays = make_arrays()
    tagger = make_tagger(config, task)
    whole = open_features(tagger, arrays, tmp_path / "x.features.npy")
    monkeypatch.setattr(word_features, "_PART_VALUES", 200)
    parts = list(word_features.encode(tagger.encoder, arrays))
    assert len(parts) > 5
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-5)
    tagger.encoder.weights[0].assign(np.full(tagger.encoder.weights[0].shape, np.nan))
    with pytest.raises(ArithmeticError, match="Features must be finite"):
        open_features(tagger, arrays, tmp_path / "y.features.npy")
    features = word_features.WordFeatures(tagger.encoder, arrays, str(tmp_path / "y.features.npy"))
    batches = word_features.FeatureBatches(features, word_features.compact(arrays), 4)
    with pytest.raises(ArithmeticError, match="Features must be finite"):
        next(batches.iterate(0, 1))
    assert [path.name for path in tmp_path.iterdir()] == ["x.features.npy"]


def make_batches(config, tmp_path, *arguments, **changes):
    _, task, arrays = make_arrays(20)
    tagger = make_tagger(config, task, "last")
    features = word_features.WordFeatures(tagger.encoder, arrays, str(tmp_path / "x.features.npy"))
    words = word_features.compact(arrays)
    return word_features.FeatureBatches(features, words, *arguments, **changes), features, words


@pytest.mark.parametrize("trim", [True, False])
def test_batches_have_the_features_of_their_numbers(config, tmp_path, trim):
    batches, features, words = make_batches(config, tmp_path, 6, 5, trim=trim)
    signature = batches.signature
    widths = set()
    for step, batch in enumerate(batches.iterate(2, 14), start=2):
        numbers = batches.numbers(step)
        counts = words["label_mask"][numbers].sum(axis=1)
        width = counts.max() if trim else words["label_mask"].shape[1]
        widths.add(int(width))
        for name, spec in signature.items():
            assert spec.is_compatible_with(batch[name])
        assert batch["features"].shape[:2] == (6, width)
        for row, number in enumerate(numbers):
            values = batch["features"][row].numpy()
            np.testing.assert_array_equal(values[: counts[row]], features[number])
            assert not values[counts[row] :].any()
            for name in ("label_ids", "label_mask"):
                np.testing.assert_array_equal(batch[name][row], words[name][number, :width])
    assert len(widths) > 1 or not trim


def test_training_reads_every_window_once_an_epoch(config, tmp_path):
    batches, features, _ = make_batches(config, tmp_path, 4, 5)
    count = len(features)
    numbers = np.concatenate([batches.numbers(step) for step in range(count)])
    for epoch in range(4):
        part = numbers[epoch * count : (epoch + 1) * count]
        assert sorted(part) == list(range(count))
    assert isinstance(batches, Batches)
    record = tf.train.Example.FromString(batches.serialized(0)[0])
    stored = record.features.feature["features"].float_list.value
    np.testing.assert_array_equal(stored, features[batches.numbers(0)[0]].ravel())


@pytest.fixture
def make_settings(tmp_path):
    make = settings_in(tmp_path)

    def with_features(**changes):
        return make(
            **{
                "feature_based": True,
                "feature_layers": "last",
                "lstm_size": 24,
                "learning_rate": 0.01,
                **changes,
            }
        )

    return with_features


def encoder_weights(prefix):
    tensors = read_tensors(prefix)
    return {name: values for name, values in tensors.items() if name.startswith("bert/")}


@pytest.mark.exhaustive
def test_names_are_learned_while_the_encoder_stays_as_it_is(make_settings, tmp_path):
    write_task(tmp_path)
    config = modeling.BertConfig.from_json_file(make_settings().bert_config_file)
    bert = modeling.BertModel(config)
    bert.build(None)
    init = str(tmp_path / "init.ckpt")
    saving.save_variables(init, {variable.path: variable for variable in bert.weights}, 0)
    settings = make_settings(
        do_train=True, do_eval=True, do_predict=True, num_train_epochs=16.0, init_checkpoint=init,
        save_checkpoints_steps=32, early_stopping_patience=4,
    )  # fmt: skip
    scores = run_ner.run(settings)
    assert scores["f1"] > 0.95
    assert scores["test_f1"] > 0.95
    out = tmp_path / "out"
    before, after = encoder_weights(init), encoder_weights(out / "bert_model.ckpt")
    assert before.keys() == after.keys()
    for name, values in before.items():
        np.testing.assert_array_equal(after[name], values)
    names = {f"{part}.last.features.npy" for part in ("train", "eval", "predict")}
    assert {path.name for path in out.glob("*.npy")} == names
    assert not list(out.glob("*.tf_record"))
    stored = json.loads((out / "task.json").read_text())
    assert (stored["feature_based"], stored["feature_layers"], stored["lstm_size"]) == (
        True, "last", 24,
    )  # fmt: skip
    # Another day, from the folder alone, told nothing of features; the test set's are read again.
    predictions = (out / "predictions.txt").read_bytes()
    places = {name: (out / name).stat().st_ino for name in names}
    keras.utils.set_random_seed(99)
    plain = settings_in(tmp_path)
    again = run_ner.run(plain(do_predict=True))
    assert again == {name: each for name, each in scores.items() if name.startswith("test_")}
    assert (out / "predictions.txt").read_bytes() == predictions
    assert {name: (out / name).stat().st_ino for name in names} == places
    # Served, from tokens to entities.
    sentences = make_sentences(6, 9)
    texts = [" ".join(word for word, _ in each) for each in sentences]
    for batch_size in (1, 4):
        answers = load(str(out), batch_size=batch_size).predict(texts)
        for text, answer, sentence in zip(texts, answers, sentences, strict=True):
            expected = tagging_entities.find_entities([tag for _, tag in sentence])
            assert [each["type"] for each in answer["entities"]] == [e.type for e in expected]
            assert all(text[e["start"] : e["end"]] == e["text"] for e in answer["entities"])


@pytest.mark.exhaustive
def test_a_resumed_training_run_ends_with_the_same_weights(make_settings, tmp_path):
    write_task(tmp_path, count=16)
    results = []
    for name in ("whole", "stopped"):
        keras.utils.set_random_seed(7)
        settings = make_settings(
            do_train=True, do_eval=True, num_train_epochs=3.0, save_checkpoints_steps=3,
            output_dir=str(tmp_path / name),
        )  # fmt: skip
        results.append(run_ner.run(settings))
    # As if killed after step 3 of 6.
    (tmp_path / "stopped/checkpoint").write_text(
        'model_checkpoint_path: "model.ckpt-3"\nall_model_checkpoint_paths: "model.ckpt-3"\n'
    )
    keras.utils.set_random_seed(99)
    results.append(run_ner.run(settings))
    assert results[0] == results[1] == results[2]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_several_runs_share_the_features(make_settings, tmp_path, log):
    write_task(tmp_path, count=16)
    config = modeling.BertConfig.from_json_file(make_settings().bert_config_file)
    bert = modeling.BertModel(config)
    bert.build(None)
    init = str(tmp_path / "init.ckpt")
    saving.save_variables(init, {variable.path: variable for variable in bert.weights}, 0)
    summary = run_ner.run(
        make_settings(
            do_train=True, do_eval=True, num_runs=2, num_train_epochs=1.0, init_checkpoint=init,
            feature_layers="weighted",
        )
    )  # fmt: skip
    assert len(summary["runs"]) == 2
    shared = [path.name for path in (tmp_path / "out").glob("*.npy")]
    assert sorted(shared) == ["eval.weighted.features.npy", "train.weighted.features.npy"]
    assert len([message for message in log.messages if "Computing the features" in message]) == 2


@pytest.mark.parametrize("changes", [{"num_runs": 2}, {"num_train_epochs": (1.0, 2.0)}])
def test_all_runs_of_a_search_have_one_folder_of_features(make_settings, tmp_path, changes):
    write_task(tmp_path, count=16)
    search = run_ner.make_recipe(make_settings(do_train=True, **changes))
    folders = [trial.recipe.features.features_dir for trial in search.trials]
    assert folders == [str(tmp_path / "out")] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feature_based": False}, "`feature_layers` needs `feature_based`"),
        ({"feature_based": None, "feature_layers": None}, "`lstm_size` needs `feature_based`"),
        ({"feature_layers": "sum_last_four"}, "'sum_last_four' needs 4 layers"),
        ({"freeze_layers": 1}, "`freeze_layers` and `layerwise_lr_decay` are for training"),
        ({"layerwise_lr_decay": 0.9}, "are for training BERT"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(make_settings, tmp_path, changes, message):
    write_task(tmp_path, count=8)
    with pytest.raises(ValueError, match=message):
        run_ner.run(make_settings(do_train=True, **changes))
    assert not (tmp_path / "out").exists()


@pytest.mark.exhaustive
def test_a_folder_keeps_to_its_layers(make_settings, tmp_path):
    write_task(tmp_path, count=8)
    run_ner.run(make_settings(do_train=True, num_train_epochs=1.0))
    for changes, message in (
        ({"feature_layers": "embeddings"}, "`feature_layers` is 'last' there and 'embeddings' now"),
        ({"lstm_size": 5}, "`lstm_size` is 24 there and 5 now"),
    ):
        with pytest.raises(ValueError, match=message):
            run_ner.run(make_settings(do_train=True, **changes))
    # Begun anew, nothing of the old features is left.
    run_ner.run(
        make_settings(
            do_train=True, num_train_epochs=1.0, feature_layers="embeddings",
            overwrite_output_dir=True,
        )
    )  # fmt: skip
    names = [path.name for path in (tmp_path / "out").glob("*.npy")]
    assert names == ["train.embeddings.features.npy"]


LENGTHS = np.array([7, 1, 4, 6], np.int32)


def fill(layer, seed=0):
    """Sets all weights to values of the order of 1."""
    rng = np.random.RandomState(seed)
    for variable in layer.weights:
        variable.assign(rng.standard_normal(variable.shape))
    return layer


def inputs_of(*shape, seed=1):
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def test_mix_is_a_softmax_of_weights_times_a_scale():
    mix = LayerMix()
    inputs = inputs_of(2, 3, 4, 5)
    np.testing.assert_allclose(mix(inputs), inputs.mean(axis=2), atol=1e-6)
    assert [variable.path.rpartition("/")[2] for variable in mix.weights] == [
        "layer_weights",
        "scale",
    ]
    weights = np.array([1.0, -2.0, 0.5, 0.0], np.float32)
    mix.layer_weights.assign(weights)
    mix.scale.assign(3.0)
    softmax = np.exp(weights) / np.exp(weights).sum()
    expected = 3 * np.einsum("bwld,l->bwd", inputs, softmax)
    np.testing.assert_allclose(mix(inputs), expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(6,), (3, 6)])
def test_labels_depend_neither_on_padding_nor_on_other_rows(shape):
    tagger = WordTagger(5, 4)
    tagger.build((None, None, *shape))
    fill(tagger)
    features = inputs_of(4, 7, *shape)
    whole = tagger(features, LENGTHS).numpy()
    assert whole.shape == (4, 7, 4)
    for row, length in enumerate(LENGTHS):
        alone = tagger(features[row : row + 1, :length], LENGTHS[row : row + 1])
        np.testing.assert_allclose(whole[row, :length], alone[0], atol=1e-5)
    # Both directions reach every word: the first and the last change with one another.
    for place in (0, 6):
        changed = features.copy()
        changed[0, place] += 1.0
        difference = np.abs(tagger(changed, LENGTHS).numpy()[0] - whole[0]).max(axis=-1)
        assert (difference > 1e-4).all()


@pytest.fixture
def encoded():
    """Layers of ones, tens, hundreds and so on, [1, 2, 3]; the embeddings are halves."""
    layers = [np.full((1, 2, 3), 10.0**power, np.float32) for power in range(5)]
    return {"embedding_output": np.full((1, 2, 3), 0.5, np.float32), "encoder_layers": layers}


@pytest.mark.parametrize(
    ("layer", "value"),
    [
        (0, 1),
        (-2, 1000),
        ("embeddings", 0.5),
        ("last", 10000),
        ("second_to_last", 1000),
        ("sum_last_four", 11110),
        ("sum_all", 11111),
    ],
)
def test_a_layer_has_the_value_of_its_name(encoded, layer, value):
    features = np.asarray(combine(encoded, layer))
    np.testing.assert_array_equal(features, np.full((1, 2, 3), value, np.float32))


def test_concatenated_layers_are_in_order(encoded, tiny_config):
    features = np.asarray(combine(encoded, "concat_last_four"))
    assert features[0, 0].tolist() == [10] * 3 + [100] * 3 + [1000] * 3 + [10000] * 3
    assert width_of("concat_last_four", tiny_config) == 4 * tiny_config.hidden_size
    assert width_of(-1, tiny_config) == tiny_config.hidden_size


def test_layers_are_read_in_the_order_of_the_flag(tiny_config):
    config = change(tiny_config, num_hidden_layers=4)
    parsed = parse_layers("-1, sum_all,0,3,-4,concat_last_four", config, flag="x")
    assert parsed == [-1, "sum_all", 0, 3, -4, "concat_last_four"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-1,-3", "`x` must be at least -2 and less than 2.*Received '-1,-3'"),
        ("2", "Received '2'"),
        ("lst", "names among .*'last'.*Received 'lst'"),
        ("-1,", "Received '-1,'"),
        ("sum_last_four", "'sum_last_four' needs 4 layers, and `num_hidden_layers` is 2"),
    ],
)
def test_a_layer_that_the_model_lacks_is_an_error(text, message, tiny_config):
    with pytest.raises(ValueError, match=message):
        parse_layers(text, tiny_config, flag="x")
