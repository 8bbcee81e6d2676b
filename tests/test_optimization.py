import gc
import json
import math
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import exhaustive
from hypothesis import given
from hypothesis import strategies as st

import optimization

NAMES = ("layer_0/dense/kernel", "layer_0/dense/bias", "layer_0/LayerNorm/gamma")


def make_variables(seed=0):
    rng = np.random.RandomState(seed)
    variables = [keras.Variable(rng.standard_normal((3, 4)).astype("float32"), name="x")]
    variables += [keras.Variable(rng.standard_normal(4).astype("float32"), name="x") for _ in "ab"]
    for variable, path in zip(variables, NAMES, strict=True):
        variable._path = path
    return variables


def make_gradients(count, seed=1):
    rng = np.random.RandomState(seed)
    return [
        [rng.standard_normal(shape).astype("float32") for shape in ((3, 4), (4,), (4,))]
        for _ in range(count)
    ]


def reference(weights, gradients, learning_rates, decayed):
    """The original's update in NumPy (original: optimization.py, apply_gradients)."""
    weights = [w.astype(np.float64) for w in weights]
    m = [np.zeros_like(w) for w in weights]
    v = [np.zeros_like(w) for w in weights]
    for step, rate in enumerate(learning_rates):
        for i, g in enumerate(gradients[step]):
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g**2
            change = m[i] / (np.sqrt(v[i]) + 1e-6) + (0.01 * weights[i] if decayed[i] else 0.0)
            weights[i] = weights[i] - rate * change
    return weights, m, v


def apply_all(optimizer, variables, gradients, *, compiled, scale=None):
    def step(*each):
        optimizer.apply(list(each), variables, scale=scale)

    if compiled:
        optimizer.build(variables)
        step = tf.function(step)
    for each in gradients:
        step(*[tf.constant(gradient) for gradient in each])


@pytest.mark.parametrize("compiled", [False, True])
def test_updates_equal_ten_lines_of_numpy(compiled):
    variables, gradients = make_variables(), make_gradients(12)
    weights = [variable.numpy() for variable in variables]
    optimizer = optimization.bert_optimizer(0.1, 20, 4)
    apply_all(optimizer, variables, gradients, compiled=compiled)
    rates = [0.1 * step / 4 if step < 4 else 0.1 * (1 - step / 20) for step in range(12)]
    # Neither the bias nor LayerNorm is decayed.
    weights, m, v = reference(weights, gradients, rates, [True, False, False])
    # Float32 against float64.
    for actual, expected in (
        (variables, weights),
        (optimizer.first_moments, m),
        (optimizer.second_moments, v),
    ):
        for one, other in zip(actual, expected, strict=True):
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-6)
    assert int(optimizer.iterations.numpy()) == 12


@pytest.mark.parametrize(
    ("path", "decayed"),
    [
        ("bert/embeddings/word_embeddings", True),
        ("bert/encoder/layer_0/attention/self/query/kernel", True),
        ("bert/encoder/layer_0/attention/self/query/bias", False),
        ("bert/embeddings/LayerNorm/gamma", False),
        ("bert/embeddings/LayerNorm/beta", False),
        ("cls/predictions/transform/layer_norm/scale", False),
        # As in the original, by a search of the name.
        ("cls/predictions/output_bias", False),
        ("cls/seq_relationship/output_weights", True),
    ],
)
def test_weight_decay_spares_what_the_original_spares(path, decayed):
    variable = keras.Variable([2.0], name="x")
    variable._path = path
    optimizer = optimization.bert_optimizer(0.5, 10, 0)
    optimizer.apply([tf.constant([0.0])], [variable])
    expected = 2.0 - 0.5 * 0.01 * 2.0 if decayed else 2.0
    assert float(variable.numpy()[0]) == pytest.approx(expected, abs=1e-6)


class _SparingTables(optimization.AdamWeightDecayOptimizer):
    """As code for the original overrides it: with the patterns, and a name of its own."""

    def _do_use_weight_decay(self, param_name):
        if not self.weight_decay_rate:
            return False
        if self.exclude_from_weight_decay:
            for pattern in self.exclude_from_weight_decay:
                if re.search(pattern, param_name) is not None:
                    return False
        return param_name != "bert/table"


@pytest.mark.parametrize("is_graph", [False, True])
def test_who_is_decayed_can_be_overridden(is_graph):
    names = ("bert/table", "bert/kernel", "bert/bias")
    optimizer = _SparingTables(0.5, weight_decay_rate=0.01, exclude_from_weight_decay=["bias"])
    assert optimizer._get_variable_name("bert/table:0") == "bert/table"
    if is_graph:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            weights = [tf.compat.v1.get_variable(name, initializer=[2.0]) for name in names]
            optimizer = _SparingTables(0.5, 0.01, exclude_from_weight_decay=["bias"])
            step = optimizer.apply_gradients([(tf.constant([0.0]), weight) for weight in weights])
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(step)
            values = session.run(weights)
    else:
        weights = [tf.Variable([2.0], name=name) for name in names]
        optimizer.apply_gradients([(tf.constant([0.0]), weight) for weight in weights])
        values = [weight.numpy() for weight in weights]
    np.testing.assert_allclose(np.ravel(values), [2.0, 2.0 - 0.5 * 0.01 * 2.0, 2.0], rtol=1e-6)


def test_finds_the_minimum_as_the_original_test_asks():
    # original: optimization_test.py
    w = keras.Variable([0.1, -0.2, -0.1], name="w")
    target = tf.constant([0.4, 0.2, -0.5])
    optimizer = optimization.AdamWeightDecayOptimizer(learning_rate=0.2)
    for _ in range(100):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(target - w.value))
        optimizer.apply(tape.gradient(loss, [w.value]), [w])
    np.testing.assert_allclose(w.numpy(), [0.4, 0.2, -0.5], rtol=1e-2, atol=1e-2)


def test_schedule_equals_the_original(golden):
    original = json.loads((golden / "trajectory.json").read_text())
    schedule = optimization.WarmupLinearDecay(
        original["learning_rate"], original["num_train_steps"], original["num_warmup_steps"]
    )
    rates = [float(schedule(step)) for step in range(original["num_train_steps"])]
    np.testing.assert_allclose(rates, original["learning_rates"], rtol=1e-6, atol=1e-12)


@given(st.integers(1, 10**6), st.floats(1e-8, 10.0), st.data())
def test_schedule_rises_then_falls_to_zero(num_train_steps, init_lr, data):
    num_warmup_steps = data.draw(st.integers(0, num_train_steps))
    step = data.draw(st.integers(0, num_train_steps - 1))
    schedule = optimization.WarmupLinearDecay(init_lr, num_train_steps, num_warmup_steps)
    here, after = float(schedule(step)), float(schedule(step + 1))
    assert 0 <= here <= init_lr * (1 + 1e-6)
    if step + 1 < num_warmup_steps:
        assert here <= after
    elif step >= num_warmup_steps:
        assert here >= after
    assert float(schedule(num_train_steps)) == pytest.approx(0, abs=1e-7 * init_lr)
    assert float(schedule(num_train_steps + 7)) == 0


def test_no_warm_up_starts_at_the_peak():
    for none in (0, None):
        assert float(optimization.WarmupLinearDecay(0.5, 10, none)(0)) == 0.5


def test_schedule_without_steps_is_refused():
    with pytest.raises(ValueError, match=r"`num_train_steps` must be at least 1. Received 0"):
        optimization.WarmupLinearDecay(0.1, 0, 0)


@pytest.mark.parametrize(("norm", "scale"), [(0.0, 1.0), (0.5, 1.0), (1.0, 1.0), (4.0, 0.25)])
def test_clip_scale_limits_the_global_norm_to_1(norm, scale):
    assert float(optimization.clip_scale(tf.constant(norm))) == pytest.approx(scale)


@pytest.mark.parametrize("compiled", [False, True])
def test_scale_multiplies_the_gradients(compiled):
    gradients = make_gradients(3)
    scaled, plain = make_variables(), make_variables()
    apply_all(
        optimization.bert_optimizer(0.1, 20, 0), scaled, gradients, compiled=compiled, scale=0.5
    )
    halves = [[0.5 * gradient for gradient in each] for each in gradients]
    apply_all(optimization.bert_optimizer(0.1, 20, 0), plain, halves, compiled=compiled)
    for one, other in zip(scaled, plain, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)


def test_scale_is_forgotten_after_its_step():
    variables = make_variables()
    others = make_variables()
    gradients = make_gradients(2)
    optimizer, other = (optimization.bert_optimizer(0.1, 20, 0) for _ in range(2))
    optimizer.apply(gradients[0], variables, scale=0.5)
    optimizer.apply(gradients[1], variables)
    other.apply([0.5 * gradient for gradient in gradients[0]], others)
    other.apply(gradients[1], others)
    for one, same in zip(variables, others, strict=True):
        np.testing.assert_allclose(one.numpy(), same.numpy(), rtol=1e-6)


def test_optimizers_share_what_is_compiled():
    counts = []
    for rate, steps in ((0.1, 20), (0.1, 20), (0.3, 7)):
        optimizer = optimization.bert_optimizer(rate, steps, 2)
        apply_all(optimizer, make_variables(), make_gradients(1), compiled=True)
        counts.append(optimization._compiled_update.experimental_get_tracing_count())
    assert counts[0] == counts[1] == counts[2] > 0


def test_optimizers_of_other_constants_share_nothing():
    gradients = make_gradients(3)
    for beta_1, rate in ((0.9, 0.01), (0.5, 0.01), (0.9, 0.2)):
        found = []
        for compiled in (False, True):
            variables = make_variables()
            optimizer = optimization.AdamWeightDecayOptimizer(0.1, rate, beta_1=beta_1)
            apply_all(optimizer, variables, gradients, compiled=compiled)
            found.append([variable.numpy() for variable in variables])
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


def test_variable_without_gradient_stays():
    variables = make_variables()
    before = variables[1].numpy()
    optimizer = optimization.bert_optimizer(0.1, 20, 0)
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        optimizer.apply([make_gradients(1)[0][0], None, None], variables)
    np.testing.assert_array_equal(variables[1].numpy(), before)


def test_variable_without_gradient_stays_when_the_others_are_scaled():
    variables = make_variables()
    before = [variable.numpy() for variable in variables]
    optimizer = optimization.bert_optimizer(0.1, 20, 0)
    optimizer.build(variables)
    optimizer.apply([make_gradients(1)[0][0], None, None], scale=0.5)
    changed = [np.any(each.numpy() != was) for each, was in zip(variables, before, strict=True)]
    assert changed == [True, False, False]
    assert int(optimizer.iterations.numpy()) == 1


def test_no_hook_of_keras_is_overridden():
    own = {name for name in vars(optimization.AdamWeightDecayOptimizer) if name[0] == "_"}
    inherited = {name for name in dir(keras.optimizers.Optimizer) if name[:2] != "__"}
    assert own & inherited == set()


def test_fit_trains_with_the_optimizer():
    rng = np.random.RandomState(0)
    inputs = rng.standard_normal((64, 3)).astype("float32")
    labels = inputs @ np.array([[1.0], [-2.0], [0.5]], "float32")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimization.bert_optimizer(0.3, 60, 5), "mse")
    before = model.evaluate(inputs, labels, batch_size=64, verbose=0)
    repeated = [np.tile(each, (60, 1)) for each in (inputs, labels)]
    model.fit(*repeated, batch_size=64, shuffle=False, verbose=0)
    assert before > 1.0
    assert model.evaluate(inputs, labels, batch_size=64, verbose=0) < 1e-2


@pytest.mark.parametrize(
    ("rate", "given"),
    [
        ("a number", 0.5),
        ("a schedule", optimization.WarmupLinearDecay(0.5, 8, 0)),
        ("a function", lambda: 0.5),
        *exhaustive(("a whole number", 1), ("one of NumPy's", np.float32(0.5))),
    ],
)
def test_fit_trains_models_of_a_process_one_after_the_other(rate, given):
    """Variables of the same shapes are updated by the same trace, when the first ones are gone."""
    steps = []
    for weight in (1.0, 3.0):
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        model.set_weights([np.array([[weight]])])
        model.compile(optimization.AdamWeightDecayOptimizer(given, 0.1), "mse")
        model.fit(np.ones((4, 1)), np.zeros((4, 1)), batch_size=4, verbose=0)
        steps.append(weight - float(model.get_weights()[0][0, 0]))
        del model
        gc.collect()
    # A first step of 0.1 / sqrt(0.001) whatever the gradient, and a tenth of the weight.
    first = float(given(0) if rate == "a schedule" else given() if callable(given) else given)
    expected = [first * (0.1 / math.sqrt(0.001) + 0.1 * weight) for weight in (1.0, 3.0)]
    np.testing.assert_allclose(steps, expected, rtol=1e-4)


OWN_CONSTANTS = {"beta_1": 0.5, "beta_2": 0.6, "epsilon": 0.7}


@pytest.mark.parametrize(
    "make",
    [
        lambda: optimization.bert_optimizer(0.1, 20, 4),
        lambda: optimization.AdamWeightDecayOptimizer(
            0.1, 0.2, exclude_from_weight_decay=["kernel"], **OWN_CONSTANTS
        ),
    ],
)
def test_optimizer_and_schedule_survive_their_configuration(make):
    optimizer = make()
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert again.get_config() == optimizer.get_config()
    results = []
    for each in (optimizer, again):
        variables = make_variables()
        apply_all(each, variables, make_gradients(6), compiled=False)
        results.append([variable.numpy() for variable in variables])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("compiled", [False, True])
def test_create_optimizer_takes_one_step_a_call(compiled):
    w = tf.Variable([0.1, -0.2, -0.1], name="w")
    target = tf.constant([0.4, 0.2, -0.5])
    train_op = optimization.create_optimizer(
        lambda: tf.reduce_mean(tf.square(target - w)), 0.2, 200, 10, use_tpu=False
    )
    if compiled:
        train_op = tf.function(train_op)
    first = float(train_op())
    assert first == pytest.approx(np.mean([0.09, 0.16, 0.16]), abs=1e-6)
    # The first step of warm-up has a rate of 0.
    np.testing.assert_allclose(w.numpy(), [0.1, -0.2, -0.1], rtol=1e-7)
    for _ in range(199):
        last = float(train_op())
    assert last < 1e-4


def test_create_optimizer_clips_by_the_global_norm():
    # Adam alone does not see a factor, but it sees gradients of which only some are clipped.
    factor = tf.Variable(0.1, trainable=False)
    variables = [tf.Variable([3.0], name="kernel"), tf.Variable([4.0], name="bias")]
    step = optimization.create_optimizer(
        lambda: factor * (3 * variables[0][0] + 4 * variables[1][0]), 0.1, 10, 0
    )
    for value in (0.1, 1e3, 0.1):
        factor.assign(value)
        step()
    norms = [0.5, 5e3, 0.5]
    gradients = [[np.array([0.6 * n]), np.array([0.8 * n])] for n in np.minimum(norms, 1.0)]
    starts = [np.array([3.0]), np.array([4.0])]
    expected, _, _ = reference(starts, gradients, [0.1, 0.09, 0.08], [True, False])
    for variable, value in zip(variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, rtol=1e-5)


def test_create_optimizer_leaves_what_the_loss_only_looks_at_as_it_is():
    kernel = tf.Variable([3.0, 4.0], name="kernel")
    other = tf.Variable([5.0], name="pooler/kernel")

    def loss():
        tf.square(other)
        return tf.reduce_sum(kernel)

    step = optimization.create_optimizer(loss, 0.1, 10, 0)
    assert float(step()) == 7.0
    # The norm is that of the gradients that are there, [1, 1].
    expected, _, _ = reference([np.array([3.0, 4.0])], [[np.full(2, 0.5**0.5)]], [0.1], [True])
    np.testing.assert_allclose(kernel.numpy(), expected[0], rtol=1e-6)
    np.testing.assert_array_equal(other.numpy(), [5.0])


def test_what_keras_means_by_weight_decay_is_not_passed_over():
    with pytest.raises(ValueError, match="Give it as `weight_decay_rate`"):
        optimization.AdamWeightDecayOptimizer(0.1, weight_decay=0.01)
    optimizer = optimization.AdamWeightDecayOptimizer(0.1, weight_decay_rate=0.5)
    with pytest.raises(ValueError, match="must be given to the constructor"):
        optimizer.exclude_from_weight_decay(var_names=["bias"])


def test_weights_of_half_precision_are_refused_and_those_of_double_trained():
    half = keras.Variable(np.ones(4), dtype="bfloat16", name="half")
    optimizer = optimization.AdamWeightDecayOptimizer(0.1)
    with pytest.raises(ValueError, match=r"must be float32 .* 'half' in bfloat16.*mixed_bfloat16"):
        optimizer.apply_gradients([(tf.ones(4, tf.bfloat16), half)])
    double = keras.Variable(np.ones(4), dtype="float64", name="double")
    optimizer = optimization.AdamWeightDecayOptimizer(0.1)
    optimizer.apply_gradients([(tf.ones(4, tf.float64), double)])
    expected = 1 - 0.1 * 0.1 / (np.sqrt(0.001) + 1e-6)
    np.testing.assert_allclose(double.numpy(), expected, rtol=1e-6)


def test_rates_of_layers_are_kept_with_the_configuration():
    optimizer = optimization.AdamWeightDecayOptimizer(0.1)
    optimizer.learning_rate_scales = {NAMES[0]: 0.5}
    kept = json.loads(json.dumps(optimizer.get_config()))
    again = optimization.AdamWeightDecayOptimizer.from_config(kept)
    assert again.learning_rate_scales == {NAMES[0]: 0.5}
