import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, change

import modeling
from bert.network.heads import (
    EXAMPLE_WEIGHTS,
    OutputLayer,
    choice_model,
    choice_objective,
    classification_objective,
    classifier_model,
    span_model,
    span_objective,
    tagging_model,
    tagging_objective,
)

NAMES = ("input_ids", "input_mask", "segment_ids")
NUM_OUTPUTS = 5

# A function that makes the model, the shape of an example, and the names of the head's variables.
MODELS = {
    "classifier": (
        lambda config, **kwargs: classifier_model(config, NUM_OUTPUTS, **kwargs),
        (7,),
        ("output_weights", "output_bias"),
    ),
    "span": (span_model, (7,), ("cls/squad/output_weights", "cls/squad/output_bias")),
    "tagging": (
        lambda config, **kwargs: tagging_model(config, NUM_OUTPUTS, **kwargs),
        (7,),
        ("output_weights", "output_bias"),
    ),
    "choice": (choice_model, (4, 7), ("output_weights", "output_bias")),
}

each_model = pytest.mark.parametrize("kind", MODELS)


@pytest.fixture(scope="module")
def tiny_config(tiny_config):
    """One layer: what is on top of an encoder does not depend on their number."""
    return change(tiny_config, num_hidden_layers=1)


@functools.cache
def _make(kind, config_text, **kwargs):
    return MODELS[kind][0](modeling.BertConfig.from_dict(json.loads(config_text)), **kwargs)


def make(kind, config, **kwargs):
    """Returns a model that tests share; its weights are those of the last one."""
    return _make(kind, config.to_json_string(), **kwargs)


def spread(model, seed=0):
    """Sets all weights to values of the order of 1, so that logits differ by as much."""
    rng = np.random.RandomState(seed)
    for variable in model.weights:
        values = rng.standard_normal(variable.shape) / np.sqrt(variable.shape[-1])
        variable.assign(values + variable.path.endswith("gamma"))
    return model


def make_inputs(config, *shape, seed=0):
    """Returns inputs of several lengths, padded."""
    rng = np.random.RandomState(seed)
    lengths = rng.randint(2, shape[-1] + 1, (*shape[:-1], 1))
    inputs = {
        "input_ids": rng.randint(1, config.vocab_size, shape),
        "input_mask": np.arange(shape[-1]) < lengths,
        "segment_ids": rng.randint(0, config.type_vocab_size, shape),
    }
    return {name: values.astype(np.int32) for name, values in inputs.items()}


def head_weights(model):
    values = {v.path.split("/")[-1]: v.numpy() for v in model.weights}
    return values["output_weights"], values["output_bias"]


def flat(outputs):
    return np.concatenate([np.asarray(values).ravel() for values in outputs.values()])


@each_model
def test_variables_have_the_names_and_shapes_of_the_original(kind, tiny_config):
    weights, bias = MODELS[kind][2]
    num_outputs = {"span": 2, "choice": 1}.get(kind, NUM_OUTPUTS)
    model = make(kind, tiny_config)
    shapes = {v.path: tuple(v.shape) for v in model.weights if not v.path.startswith("bert/")}
    assert shapes == {weights: (num_outputs, tiny_config.hidden_size), bias: (num_outputs,)}
    # No loss of theirs depends on the pooler, which the original keeps as it is, too.
    kept = "bert/pooler/" if kind in ("span", "tagging") else "none"
    trained = {v.path for v in model.weights if not v.path.startswith(kept)}
    assert trained == {v.path for v in model.trainable_variables}


@pytest.mark.parametrize(
    ("kind", "folder"), [("classifier", "classifier_cola"), ("span", "squad_v1")]
)
def test_variables_are_those_of_the_original_checkpoints(kind, folder):
    config = modeling.BertConfig.from_json_file(str(GOLDEN / "bert_config.json"))
    reader = tf.train.load_checkpoint(str(GOLDEN / folder / "model.ckpt"))
    stored = {
        name
        for name in reader.get_variable_to_shape_map()
        if name != "global_step" and not name.endswith(("/adam_m", "/adam_v"))
    }
    assert {variable.path for variable in make(kind, config).weights} == stored


def test_head_starts_near_0_and_its_bias_at_0(tiny_config):
    config = change(tiny_config, hidden_size=400, initializer_range=0.5)
    weights, bias = head_weights(classifier_model(config, NUM_OUTPUTS))
    # Cut at two standard deviations, 0.88 of one is left.
    assert np.abs(weights).max() <= 2 * 0.02
    assert weights.std() == pytest.approx(0.88 * 0.02, rel=0.1)
    assert bias.tolist() == [0] * NUM_OUTPUTS


def encode(model, inputs):
    """Returns the encoder's outputs on [B, S]."""
    return {
        name: values.numpy()
        for name, values in model.get_layer("bert")(inputs).items()
        if name in ("pooled_output", "sequence_output")
    }


@pytest.mark.parametrize("kind", ["classifier", "tagging", "span"])
def test_head_multiplies_what_the_encoder_gives_for_the_text_or_each_token(kind, tiny_config):
    model = spread(make(kind, tiny_config))
    inputs = make_inputs(tiny_config, 6, 7)
    weights, bias = head_weights(model)
    encoded = encode(model, inputs)["pooled_output" if kind == "classifier" else "sequence_output"]
    expected = encoded @ weights.T + bias
    assert expected.std() > 0.3
    of_spans = {"start_logits": expected[..., 0], "end_logits": expected[..., 1]}
    outputs = model(inputs)
    assert outputs.keys() == ({*of_spans} if kind == "span" else {"logits"})
    for name, values in outputs.items():
        wanted = of_spans[name] if kind == "span" else expected
        np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_choices", [1, 2, 5])
def test_choice_scores_each_row_as_a_classifier_does(tiny_config, num_choices):
    model = spread(make("choice", tiny_config))
    classifier = classifier_model(tiny_config, 1)
    classifier.set_weights(model.get_weights())
    inputs = make_inputs(tiny_config, 3, num_choices, 7)
    logits = model(inputs)["logits"].numpy()
    assert logits.shape == (3, num_choices)
    for choice in range(num_choices):
        rows = {name: values[:, choice] for name, values in inputs.items()}
        expected = classifier(rows)["logits"][:, 0]
        np.testing.assert_allclose(logits[:, choice], expected, rtol=0, atol=1e-5)
    assert num_choices == 1 or logits.std(axis=1).min() > 0.05


def test_choice_does_not_depend_on_the_other_examples(tiny_config):
    model = spread(make("choice", tiny_config))
    inputs = make_inputs(tiny_config, 3, 4, 7)
    together = model(inputs)["logits"].numpy()
    for row in range(3):
        alone = model({name: values[row : row + 1] for name, values in inputs.items()})["logits"]
        np.testing.assert_allclose(alone[0], together[row], rtol=0, atol=1e-5)
    turned = model({name: values[::-1, ::-1] for name, values in inputs.items()})["logits"]
    np.testing.assert_allclose(turned, together[::-1, ::-1], rtol=0, atol=1e-5)


@each_model
def test_one_graph_serves_all_sizes(kind, tiny_config):
    model = spread(make(kind, tiny_config))
    shape = MODELS[kind][1]
    spec = tf.TensorSpec([None] * (1 + len(shape)), tf.int32)
    function = tf.function(model, input_signature=[dict.fromkeys(NAMES, spec)])
    for count, length in ((2, 7), (5, 3), (0, 7)):
        inputs = make_inputs(tiny_config, count, *shape[:-1], length)
        expected = model(inputs)
        for name, values in function(inputs).items():
            assert values.shape == expected[name].shape
            np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-5)


@each_model
def test_padding_does_not_change_the_logits_of_real_tokens(kind, tiny_config):
    model = spread(make(kind, tiny_config))
    inputs = make_inputs(tiny_config, 6, *MODELS[kind][1])
    wider = {name: np.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, 3)]) for name, v in inputs.items()}
    real = inputs["input_mask"] > 0
    for name, values in model(inputs).items():
        expected, other = values.numpy(), model(wider)[name].numpy()
        if kind in ("span", "tagging"):
            expected, other = expected[real], other[:, :7][real]
        np.testing.assert_allclose(other, expected, rtol=0, atol=1e-5)


@each_model
def test_bfloat16_gives_float32_logits_near_those_of_float32(kind, tiny_config):
    exact, rounded = make(kind, tiny_config), make(kind, tiny_config, dtype="mixed_bfloat16")
    rounded.set_weights(spread(exact).get_weights())
    inputs = make_inputs(tiny_config, 6, *MODELS[kind][1])
    expected = exact(inputs)
    outputs = rounded(inputs)
    assert {v.dtype for v in rounded.weights} == {"float32"}
    assert {values.dtype for values in outputs.values()} == {tf.float32}
    # 8 bits of precision at each of some twenty steps, on logits of the order of 1.
    difference = np.abs(flat(outputs) - flat(expected))
    assert 0 < difference.max() < 0.2
    assert difference.mean() < 0.03


@each_model
def test_head_drops_out_a_tenth_in_training_only(kind, still_config):
    model = make(kind, still_config)
    weights, bias = MODELS[kind][2]
    # Every output is the first unit of what comes in, which dropout leaves out or divides by 0.9.
    first = np.eye(1, still_config.hidden_size)
    for variable in model.weights:
        if variable.path == weights:
            variable.assign(np.repeat(first, variable.shape[0], axis=0))
        elif variable.path == bias:
            variable.assign(np.zeros(variable.shape))
    inputs = make_inputs(still_config, 400, *MODELS[kind][1])
    still, trained = flat(model(inputs)), flat(model(inputs, training=True))
    np.testing.assert_array_equal(still, flat(model(inputs, training=False)))
    if kind == "span":
        np.testing.assert_array_equal(trained, still)
        return
    dropped = trained == 0
    np.testing.assert_allclose(trained[~dropped], still[~dropped] / 0.9, rtol=1e-4, atol=1e-6)
    # 400 rows or more: four standard deviations.
    assert dropped.mean() == pytest.approx(0.1, abs=0.06)


@each_model
def test_model_survives_being_saved(tmp_path, kind, tiny_config):
    model = spread(make(kind, tiny_config))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert [v.path for v in again.weights] == [v.path for v in model.weights]
    inputs = make_inputs(tiny_config, 3, *MODELS[kind][1])
    np.testing.assert_array_equal(flat(again(inputs)), flat(model(inputs)))
    head = {layer.name: layer for layer in again.layers}
    for layer in model.layers:
        assert head[layer.name].get_config() == layer.get_config()


def make_batch(task_type, count=9, num_labels=4, seed=0):
    """Returns logits and a batch of which the last two examples are not real."""
    rng = np.random.RandomState(seed)
    width = {"regression": 1}.get(task_type, num_labels)
    label_ids = {
        "classification": rng.randint(0, num_labels, (count, 1)).astype(np.int32),
        "multi_label": rng.randint(0, 2, (count, num_labels)).astype(np.int32),
        "regression": rng.uniform(0, 5, (count, 1)).astype(np.float32),
    }[task_type]
    is_real = np.ones((count, 1), np.int32)
    is_real[-2:] = 0
    logits = 3 * rng.standard_normal((count, width)).astype(np.float32)
    return logits, {"label_ids": label_ids, "is_real_example": is_real}


def example_losses(task_type, logits, label_ids):
    """Returns the loss of each example, in double precision."""
    logits = logits.astype(np.float64)
    if task_type == "classification":
        log_sums = np.log(np.exp(logits).sum(axis=1))
        return log_sums - np.take_along_axis(logits, label_ids, axis=1)[:, 0]
    if task_type == "regression":
        return (logits[:, 0] - label_ids[:, 0]) ** 2
    probabilities = 1 / (1 + np.exp(-logits))
    return -np.where(label_ids, np.log(probabilities), np.log(1 - probabilities)).mean(axis=1)


def objective_loss(logits, batch, task_type, class_weights=None):
    weights, losses = classification_objective(task_type, class_weights)
    parts = losses({"logits": tf.constant(logits)}, batch, weights(batch))
    assert parts.keys() == weights(batch).keys() == {"loss"}
    return float(parts["loss"])


each_task = pytest.mark.parametrize("task_type", ["classification", "multi_label", "regression"])


@each_task
def test_loss_is_the_mean_over_real_examples(task_type):
    logits, batch = make_batch(task_type)
    expected = example_losses(task_type, logits, batch["label_ids"])[:-2].mean()
    assert objective_loss(logits, batch, task_type) == pytest.approx(expected, rel=1e-5)
    logits[-2:] = 50
    assert objective_loss(logits, batch, task_type) == pytest.approx(expected, rel=1e-5)


def losses_of_shares(objective, logits, batch):
    """Returns the losses of three shares of a batch, checked to add up to the whole."""
    weights, losses = objective
    whole = losses({"logits": logits}, batch, weights(batch))["loss"]
    shares = [slice(0, 2), slice(2, 7), slice(7, 9)]
    parts = [{name: values[rows] for name, values in batch.items()} for rows in shares]
    total = {"loss": sum(weights(part)["loss"] for part in parts)}
    assert float(total["loss"]) == pytest.approx(float(weights(batch)["loss"]))
    share_losses = [
        float(losses({"logits": logits[rows]}, part, total)["loss"])
        for rows, part in zip(shares, parts, strict=True)
    ]
    assert sum(share_losses) == pytest.approx(float(whole), rel=1e-6)
    return share_losses


@each_task
def test_shares_of_a_batch_add_up_to_the_whole(task_type):
    logits, batch = make_batch(task_type)
    class_weights = [0.5, 2.0, 1.0, 3.0] if task_type == "classification" else None
    objective = classification_objective(task_type, class_weights)
    # The last share has no real example.
    assert losses_of_shares(objective, logits, batch)[-1] == 0


def test_class_weights_make_a_weighted_mean():
    logits, batch = make_batch("classification")
    class_weights = [0.5, 2.0, 0.0, 3.0]
    each = np.array(class_weights)[batch["label_ids"][:-2, 0]]
    losses = example_losses("classification", logits, batch["label_ids"])[:-2]
    expected = (each * losses).sum() / each.sum()
    loss = objective_loss(logits, batch, "classification", class_weights)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert abs(loss - losses.mean()) > 0.01
    equal = objective_loss(logits, batch, "classification", [7.0] * 4)
    assert equal == pytest.approx(losses.mean(), rel=1e-5)


def test_weights_of_examples_and_of_labels_are_multiplied():
    weights, _ = classification_objective("classification", [1.0, 3.0])
    batch = {
        "label_ids": np.array([[1], [0], [1]]),
        "is_real_example": np.array([[1], [1], [0]]),
        EXAMPLE_WEIGHTS: np.array([[0.5], [0.25], [9.0]], np.float32),
    }
    assert float(weights(batch)["loss"]) == 0.5 * 3 + 0.25


def test_a_head_is_as_its_configuration_says(tiny_config):
    layer = OutputLayer(tiny_config, 3, 0.25, scopes=("cls", "x"), name="head")
    again = OutputLayer.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert again.dropout.rate == 0.25
    assert [each.path for each in again.weights] == [each.path for each in layer.weights]


def test_smoothed_labels_are_shares_of_all_labels():
    logits, batch = make_batch("classification")
    weights, losses = classification_objective("classification", label_smoothing=0.3)
    label_ids = batch["label_ids"][:-2, 0]
    shares = 0.7 * np.eye(4)[label_ids] + 0.3 / 4
    expected = -(shares * tf.nn.log_softmax(logits[:-2])).numpy().sum(axis=1).mean()
    loss = losses({"logits": tf.constant(logits)}, batch, weights(batch))["loss"]
    assert float(loss) == pytest.approx(expected, rel=1e-5)


@each_task
def test_gradient_is_that_of_the_loss(task_type):
    logits, batch = make_batch(task_type)
    variable = tf.Variable(logits)
    weights, losses = classification_objective(task_type)
    with tf.GradientTape() as tape:
        loss = losses({"logits": tf.convert_to_tensor(variable)}, batch, weights(batch))["loss"]
    gradient = tape.gradient(loss, variable).numpy()
    real = batch["is_real_example"][:, 0] / 7
    for index in np.ndindex(*logits.shape):
        ends = []
        for change_of in (-1e-4, 1e-4):
            changed = logits.astype(np.float64)
            changed[index] += change_of
            ends.append((example_losses(task_type, changed, batch["label_ids"]) * real).sum())
        assert gradient[index] == pytest.approx((ends[1] - ends[0]) / 2e-4, abs=1e-5)


def test_certain_and_wrong_answers_have_a_finite_loss():
    batch = {"label_ids": np.array([[1]]), "is_real_example": np.array([[1]])}
    logits = np.array([[200.0, -100.0]], np.float32)
    assert objective_loss(logits, batch, "classification") == pytest.approx(300)
    # Beside an example of which the model is not as certain.
    two = {"label_ids": np.array([[1], [0]]), "is_real_example": np.array([[1], [1]])}
    assert objective_loss(np.concatenate([logits, 0 * logits]), two, "classification") == (
        pytest.approx(150 + np.log(2) / 2)
    )
    batch["label_ids"] = np.array([[0, 1]])
    assert objective_loss(logits, batch, "multi_label") == pytest.approx(150)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("clasification",), r"`task_type` must be one of .* Received 'clasification'"),
        (("multi_label", [1.0, 2.0]), r"`class_weights` need .* Received 'multi_label'"),
        (("regression", [1.0]), r"`class_weights` need .* Received 'regression'"),
    ],
)
def test_impossible_objectives_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        classification_objective(*arguments)


def make_answers(inputs, seed=0):
    """Returns the inputs with a start and an end within each."""
    rng = np.random.RandomState(seed)
    lengths = inputs["input_mask"].sum(axis=1)
    starts = rng.randint(lengths)
    places = {"start_positions": starts, "end_positions": rng.randint(starts, lengths)}
    return {**inputs, **{name: each.astype(np.int32)[:, None] for name, each in places.items()}}


def span_loss(model, batch):
    weights, losses = span_objective()
    outputs = model({name: batch[name] for name in model.input})
    return float(losses(outputs, batch, weights(batch))["loss"])


def test_span_loss_is_the_mean_over_starts_and_ends_without_padding(tiny_config):
    inputs = make_inputs(tiny_config, 6, 7)
    batch = make_answers(inputs)
    model = spread(make("span", tiny_config))
    outputs = model(inputs)
    expected = []
    for row in range(6):
        length = batch["input_mask"][row].sum()
        for end in ("start", "end"):
            logits = np.asarray(outputs[f"{end}_logits"])[row, :length].astype(np.float64)
            place = batch[f"{end}_positions"][row, 0]
            expected.append(np.log(np.exp(logits).sum()) - logits[place])
    assert span_loss(model, batch) == pytest.approx(np.mean(expected), abs=1e-5)


def test_padding_does_not_change_the_span_loss(tiny_config):
    batch = make_answers(make_inputs(tiny_config, 6, 7))
    model = spread(make("span", tiny_config))
    padded = {
        name: values if name.endswith("positions") else np.pad(values, [(0, 0), (0, 5)])
        for name, values in batch.items()
    }
    assert span_loss(model, padded) == pytest.approx(span_loss(model, batch), abs=1e-5)


def make_tags(config, *shape, seed=0):
    """Returns a batch of which some real tokens begin words, with labels also where none is."""
    rng = np.random.RandomState(seed)
    inputs = make_inputs(config, *shape, seed=seed)
    begins = (rng.uniform(size=shape) < 0.6) & (inputs["input_mask"] > 0)
    labels = rng.randint(0, NUM_OUTPUTS, shape)
    return {
        **inputs,
        "label_ids": labels.astype(np.int32),
        "label_mask": begins.astype(np.int32),
    }


def tagging_loss(logits, batch):
    weights, losses = tagging_objective()
    parts = losses({"logits": tf.constant(logits)}, batch, weights(batch))
    assert parts.keys() == weights(batch).keys() == {"loss"}
    return float(parts["loss"])


def make_logits(*shape, seed=3):
    return 3 * np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def test_tagging_loss_is_the_mean_over_words(tiny_config):
    batch = make_tags(tiny_config, 6, 7)
    logits = make_logits(6, 7, NUM_OUTPUTS)
    expected = []
    for row, place in np.argwhere(batch["label_mask"]):
        scores = logits[row, place].astype(np.float64)
        expected.append(np.log(np.exp(scores).sum()) - scores[batch["label_ids"][row, place]])
    assert 5 < len(expected) < 30
    assert tagging_loss(logits, batch) == pytest.approx(np.mean(expected), rel=1e-5)


def test_tokens_without_a_label_do_not_matter(tiny_config):
    batch = make_tags(tiny_config, 6, 7)
    logits = make_logits(6, 7, NUM_OUTPUTS)
    expected = tagging_loss(logits, batch)
    others = batch["label_mask"] == 0
    changed = {**batch, "label_ids": np.where(others, 0, batch["label_ids"])}
    logits[others] = 90
    assert tagging_loss(logits, changed) == pytest.approx(expected, rel=1e-6)
    variable = tf.Variable(logits)
    weights, losses = tagging_objective()
    with tf.GradientTape() as tape:
        loss = losses({"logits": tf.convert_to_tensor(variable)}, batch, weights(batch))["loss"]
    gradient = tape.gradient(loss, variable).numpy()
    assert not gradient[others].any()
    assert (np.abs(gradient[~others]).max(axis=-1) > 0).all()


def test_padding_changes_neither_the_tagging_nor_the_choice_loss(tiny_config):
    model = spread(make("tagging", tiny_config))
    batch = make_tags(tiny_config, 6, 7)
    wider = {name: np.pad(values, [(0, 0), (0, 5)]) for name, values in batch.items()}
    first, second = (
        tagging_loss(model({name: each[name] for name in NAMES})["logits"].numpy(), each)
        for each in (batch, wider)
    )
    assert second == pytest.approx(first, abs=1e-5)
    # Of choices, also the places of those that are not there.
    model = spread(make("choice", tiny_config))
    batch = make_choices(tiny_config, 5, 4, 7)
    pads = {"label_ids": [(0, 0), (0, 0)], "choice_mask": [(0, 0), (0, 2)]}
    wider = {
        name: np.pad(values, pads.get(name, [(0, 0), (0, 2), (0, 5)]))
        for name, values in batch.items()
    }
    first, second = (
        choice_loss(model({name: each[name] for name in NAMES})["logits"].numpy(), each)
        for each in (batch, wider)
    )
    assert second == pytest.approx(first, abs=1e-5)


def make_choices(config, *shape, seed=0):
    """Returns a batch of which some examples have fewer choices; the label is one that is there."""
    rng = np.random.RandomState(seed)
    counts = rng.randint(2, shape[1] + 1, (shape[0], 1))
    return {
        **make_inputs(config, *shape, seed=seed),
        "label_ids": rng.randint(0, counts).astype(np.int32),
        "choice_mask": (np.arange(shape[1]) < counts).astype(np.int32),
    }


def choice_loss(logits, batch):
    weights, losses = choice_objective()
    parts = losses({"logits": tf.constant(logits)}, batch, weights(batch))
    assert parts.keys() == weights(batch).keys() == {"loss"}
    return float(parts["loss"])


def test_choice_loss_is_the_mean_over_examples_of_the_choices_that_are_there(tiny_config):
    batch = make_choices(tiny_config, 9, 4, 7)
    counts = batch["choice_mask"].sum(axis=1)
    assert set(counts) == {2, 3, 4}
    logits = make_logits(9, 4)
    expected = []
    for row, count in enumerate(counts):
        scores = logits[row, :count].astype(np.float64)
        expected.append(np.log(np.exp(scores).sum()) - scores[batch["label_ids"][row, 0]])
    assert choice_loss(logits, batch) == pytest.approx(np.mean(expected), rel=1e-5)
    logits[batch["choice_mask"] == 0] = 1000
    assert choice_loss(logits, batch) == pytest.approx(np.mean(expected), rel=1e-5)


def test_shares_of_words_and_choices_add_up_to_the_whole(tiny_config):
    batch = make_tags(tiny_config, 9, 7)
    # The last share has no word at all, and the others differ in their numbers.
    batch["label_mask"][7:] = 0
    logits = make_logits(9, 7, NUM_OUTPUTS)
    assert losses_of_shares(tagging_objective(), logits, batch)[-1] == 0
    choices = make_choices(tiny_config, 9, 4, 7)
    assert losses_of_shares(choice_objective(), make_logits(9, 4), choices)[-1] > 0
