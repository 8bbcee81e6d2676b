"""Code written for the original builds a graph and runs it in a Session."""

import json

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from conftest import GOLDEN, change, exhaustive, golden_batch, make_examples
from helpers.forks import fork_python
from helpers.original_functions import model_of_functions

import modeling
import optimization

v1 = tf.compat.v1
NAMES = ("input_ids", "input_mask", "segment_ids")


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture(scope="module")
def tiny_config(tiny_config):
    """One layer: graphs of two take twice as long."""
    return change(tiny_config, num_hidden_layers=1)


@pytest.fixture(scope="module")
def config():
    return modeling.BertConfig.from_json_file(str(GOLDEN / "bert_config.json"))


def placeholders():
    return [v1.placeholder(tf.int32, (None, None), name) for name in NAMES]


def feed_of(examples, tensors):
    return {tensor: examples[name] for tensor, name in zip(tensors, NAMES, strict=True)}


def names_of(variables):
    return [variable.name.removesuffix(":0") for variable in variables]


def by_name():
    variables = v1.global_variables()
    return dict(zip(names_of(variables), variables, strict=True))


def load_golden_weights():
    """Initializes the graph's variables as all fine-tuning scripts of the original do."""
    checkpoint = str(GOLDEN / "bert_model.ckpt")
    assignment_map, initialized = modeling.get_assignment_map_from_checkpoint(
        v1.trainable_variables(), checkpoint
    )
    v1.train.init_from_checkpoint(checkpoint, assignment_map)
    return assignment_map, initialized


def start_session():
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    return session


def checkpoint_names():
    return {name for name, _ in tf.train.list_variables(str(GOLDEN / "bert_model.ckpt"))}


@pytest.mark.usefixtures("graph")
def test_model_in_a_graph_gives_the_original_numbers(config):
    tensors = placeholders()
    bert = modeling.BertModel(config, False, *tensors)
    assignment_map, initialized = load_golden_weights()
    variables = v1.global_variables()
    assert variables == v1.trainable_variables()
    encoder = {name for name in checkpoint_names() if name.startswith("bert/")}
    assert set(names_of(variables)) == encoder == assignment_map.keys()
    assert all(assignment_map[name] is each for name, each in by_name().items())
    assert initialized == {key: 1 for name in encoder for key in (name, f"{name}:0")}
    outputs = {
        "pooled_output": bert.get_pooled_output(),
        "embedding_output": bert.get_embedding_output(),
        **{f"layer_{n}": each for n, each in enumerate(bert.get_all_encoder_layers())},
    }
    examples = {name: values[:4] for name, values in golden_batch(GOLDEN).items()}
    with start_session() as session:
        found = session.run(outputs, feed_of(examples, tensors))
    with np.load(GOLDEN / "forward.npz") as original:
        for name, values in found.items():
            # Float32 sums in another order differ by a few 1e-7 a layer.
            np.testing.assert_allclose(values, original[name], rtol=0, atol=1e-5)


@pytest.mark.usefixtures("graph")
def test_assignment_map_has_the_names_in_the_file(tmp_path, tiny_config):
    """Elsewhere, weights are found without the scope around them, and in other formats."""
    with v1.variable_scope("module"):
        modeling.BertModel(tiny_config, False, *placeholders())
    variables = v1.trainable_variables()
    with start_session() as session:
        path = v1.train.Saver(variables).save(session, str(tmp_path / "model.ckpt"))
    assignment_map, _ = modeling.get_assignment_map_from_checkpoint(variables, path)
    assert assignment_map == dict(zip(names_of(variables), variables, strict=True))
    modeling.BertModel(tiny_config, False, *placeholders())
    table = {"embeddings.word_embeddings.weight": np.ones((29, 8), np.float32)}
    safetensors.numpy.save_file(table, tmp_path / "model.safetensors")
    for name in (path, str(tmp_path / "model.safetensors")):
        with pytest.raises(ValueError, match=r"other names; convert_checkpoint\.py"):
            modeling.get_assignment_map_from_checkpoint(v1.trainable_variables("bert/"), name)


@pytest.mark.usefixtures("graph")
def test_attributes_are_what_the_getters_give(config):
    bert = modeling.BertModel(config, True, *placeholders())
    layers = bert.all_encoder_layers
    assert layers == bert.get_all_encoder_layers() and len(layers) == config.num_hidden_layers
    assert bert.sequence_output is bert.get_sequence_output() is layers[-1]
    assert bert.pooled_output is bert.get_pooled_output()
    assert bert.embedding_output is bert.get_embedding_output()
    assert bert.embedding_table is bert.get_embedding_table()
    assert bert.embedding_table.shape == (config.vocab_size, config.hidden_size)


@pytest.mark.usefixtures("graph")
def test_layers_of_a_graph_are_not_computed_again(config):
    with pytest.raises(ValueError, match="`gradient_checkpointing` must be false in a graph"):
        modeling.BertModel(config, True, *placeholders(), gradient_checkpointing=True)


@pytest.mark.usefixtures("graph")
def test_models_of_one_scope_share_their_variables(tiny_config):
    tensors = placeholders()
    with v1.variable_scope("", reuse=v1.AUTO_REUSE):
        one, other = (
            modeling.BertModel(tiny_config, False, *tensors, scope="bert") for _ in range(2)
        )
    assert len(v1.global_variables()) == 23
    examples = make_examples(tiny_config, 2)
    with start_session() as session:
        found = session.run([one.pooled_output, other.pooled_output], feed_of(examples, tensors))
    np.testing.assert_array_equal(*found)
    with pytest.raises(ValueError, match="already exists"):
        modeling.BertModel(tiny_config, False, *tensors, scope="bert")


@pytest.mark.usefixtures("graph")
def test_models_without_a_scope_have_variables_of_their_own(tiny_config):
    with v1.variable_scope("tower"):
        for _ in range(2):
            modeling.BertModel(tiny_config, True, *placeholders())
    scopes = [name.split("/embeddings")[0] for name in names_of(v1.global_variables())]
    assert scopes.count("tower/bert") == scopes.count("tower/bert_1") == 5
    assert len(scopes) == 46


@pytest.mark.usefixtures("graph")
def test_each_run_of_a_session_draws_a_dropout_mask(tiny_config):
    examples = make_examples(tiny_config, 2)
    tensors = placeholders()
    with v1.variable_scope("", reuse=v1.AUTO_REUSE):
        training, still = (
            modeling.BertModel(tiny_config, flag, *tensors, scope="bert").sequence_output
            for flag in (True, False)
        )
    dropped = modeling.dropout(tf.ones((100, 100)), 0.2)
    again = modeling.dropout(tf.ones((100, 100)), 0.2)
    with start_session() as session:
        feed = feed_of(examples, tensors)
        first, second = ([session.run(each, feed) for _ in range(2)] for each in (training, still))
        assert np.abs(first[0] - first[1]).max() > 0.1
        np.testing.assert_array_equal(*second)
        masks = [mask for _ in range(2) for mask in session.run([dropped, again])]
    for n, mask in enumerate(masks):
        assert set(np.unique(mask)) == {np.float32(0), np.float32(1.25)}
        assert mask.mean() == pytest.approx(1, abs=0.03)  # Six standard deviations.
        for other in masks[:n]:
            # 0.8² + 0.2² of two independent masks are equal; deviation 0.005.
            assert (mask == other).mean() == pytest.approx(0.68, abs=0.03)


@pytest.mark.usefixtures("graph")
def test_keras_layers_draw_a_dropout_mask_in_each_run(tiny_config):
    examples = make_examples(tiny_config, 2)
    inputs = {name: tf.constant(examples[name]) for name in NAMES}
    output = modeling.BertModel(tiny_config)(inputs, training=True)["sequence_output"]
    with start_session() as session:
        first, second = (session.run(output) for _ in range(2))
    assert np.abs(first - second).max() > 0.1


def initial_values(config, seed):
    with tf.Graph().as_default():
        v1.set_random_seed(seed)
        modeling.BertModel(config, True, *placeholders())
        with start_session() as session:
            return session.run(by_name())


def test_variables_begin_as_the_configuration_says_and_the_seed_of_the_graph_decides(tiny_config):
    config = change(tiny_config, hidden_size=64, vocab_size=500, initializer_range=0.1)
    values, same, others = (initial_values(config, seed) for seed in (1, 1, 2))
    table = "bert/embeddings/word_embeddings"
    assert np.abs(values[table]).max() <= 0.2 + 1e-6
    # A normal distribution cut at 2 standard deviations has 0.88 of its width.
    assert values[table].std() == pytest.approx(0.088, abs=0.003)
    for name, value in values.items():
        np.testing.assert_array_equal(value, same[name])
        if value.ndim == 1:
            np.testing.assert_array_equal(value, 1.0 if name.endswith("gamma") else 0.0)
        else:
            assert np.abs(value - others[name]).max() > 0.01


@pytest.mark.usefixtures("graph")
def test_functions_give_the_original_numbers_and_names(config):
    tensors = placeholders()
    table, embedded, *layers = model_of_functions(config, tensors, v1.variable_scope)
    load_golden_weights()
    parts = ("bert/embeddings", "bert/encoder")
    assert set(names_of(v1.global_variables())) == {
        name for name in checkpoint_names() if name.startswith(parts)
    }
    examples = {name: values[:4] for name, values in golden_batch(GOLDEN).items()}
    with start_session() as session:
        found = session.run([table, embedded, *layers], feed_of(examples, tensors))
    reader = tf.train.load_checkpoint(str(GOLDEN / "bert_model.ckpt"))
    np.testing.assert_array_equal(found[0], reader.get_tensor("bert/embeddings/word_embeddings"))
    with np.load(GOLDEN / "forward.npz") as original:
        for output, name in zip(found[1:], ("embedding_output", "layer_0", "layer_1"), strict=True):
            np.testing.assert_allclose(output, original[name], rtol=0, atol=1e-5)


@pytest.mark.usefixtures("graph")
def test_attention_and_normalization_have_the_original_names_in_a_scope():
    x, y = tf.ones((3, 5, 8)), tf.ones((3, 7, 6))
    with v1.variable_scope("scope"):
        context = modeling.attention_layer(x, y, num_attention_heads=2, size_per_head=3)
        modeling.layer_norm(modeling.layer_norm(context))
        modeling.layer_norm_and_dropout(context, 0.1, name="named")
    parts = {name.rpartition("/")[0] for name in names_of(v1.global_variables())}
    assert parts == {
        f"scope/{name}" for name in ("query", "key", "value", "LayerNorm", "LayerNorm_1", "named")
    }
    with start_session() as session:
        assert session.run(context).shape == (3, 5, 6)


@pytest.mark.usefixtures("graph")
def test_optimizer_reaches_its_goal():
    """Original: optimization_test.py."""
    w = v1.get_variable("w", initializer=[0.1, -0.2, -0.1])
    loss = tf.reduce_mean(tf.square(tf.constant([0.4, 0.2, -0.5]) - w))
    variables = v1.trainable_variables()
    global_step = v1.train.get_or_create_global_step()
    optimizer = optimization.AdamWeightDecayOptimizer(learning_rate=0.2)
    pairs = zip(tf.gradients(loss, variables), variables, strict=True)
    train_op = optimizer.apply_gradients(pairs, global_step)
    with start_session() as session:
        for _ in range(100):
            session.run(train_op)
        np.testing.assert_allclose(session.run(w), [0.4, 0.2, -0.5], rtol=1e-2, atol=1e-2)
        # Faithful: that is for who calls it.
        assert session.run(global_step) == 0
    assert names_of(v1.global_variables()) == ["w", "global_step", "w/adam_m", "w/adam_v"]


@pytest.mark.usefixtures("graph")
def test_optimizer_minimizes_as_any_of_tensorflow_1():
    """Original: a tf.train.Optimizer, whose `minimize` computes the gradients and applies them."""
    chosen, other = (v1.get_variable(name, initializer=[1.0]) for name in ("chosen", "other"))
    loss = tf.reduce_sum(tf.square(chosen) * other)
    optimizer = optimization.AdamWeightDecayOptimizer(0.1)
    pairs = optimizer.compute_gradients(loss)
    train_op = optimizer.minimize(loss, var_list=[chosen])
    with start_session() as session:
        gradients = session.run([gradient for gradient, _ in pairs])
        session.run(train_op)
        np.testing.assert_allclose(gradients, [[2.0], [1.0]])
        # m / √v of a first step.
        np.testing.assert_allclose(session.run(chosen), [1 - 0.1 * 0.1 / 0.001**0.5], rtol=1e-5)
        assert session.run(other) == [1.0]


def test_optimizer_minimizes_nothing_that_is_eager():
    with pytest.raises(ValueError, match="`loss` must be a tensor in a graph"):
        optimization.AdamWeightDecayOptimizer(0.1).minimize(tf.constant(1.0))


VALUES = {"table": [[0.3, -0.4], [0.2, 0.9], [5.0, 6.0]], "dense/bias": [3.0, 0.5], "unused": [1.0]}
FACTORS = (0.1, 1e3, 0.1, 0.1, 7.0, 0.1)


def some_loss(table, bias, factor):
    """Reads a row of the table twice, and the last one never; some gradients are clipped."""
    rows = tf.gather(table, [1, 0, 1])
    return factor * tf.reduce_sum(tf.sin(rows) * bias)


def eager_steps():
    variables = [tf.Variable(value, name=name) for name, value in VALUES.items()]
    factor = tf.Variable(0.0, trainable=False)
    train_op = optimization.create_optimizer(lambda: some_loss(*variables[:2], factor), 0.1, 6, 2)
    for value in FACTORS:
        factor.assign(value)
        train_op()
    return [variable.numpy() for variable in variables]


def test_train_op_of_a_graph_takes_the_steps_of_the_eager_one():
    with tf.Graph().as_default():
        variables = [v1.get_variable(name, initializer=value) for name, value in VALUES.items()]
        factor = v1.placeholder(tf.float32, ())
        loss = some_loss(variables[0], variables[1], factor)
        train_op = optimization.create_optimizer(loss, 0.1, 6, 2, use_tpu=False)
        assert isinstance(train_op, tf.Operation)
        with start_session() as session:
            for value in FACTORS:
                session.run(train_op, {factor: value})
            assert session.run(v1.train.get_global_step()) == len(FACTORS)
            found = session.run(variables)
        slots = [
            f"{name}/{slot}" for name in ("table", "dense/bias") for slot in ("adam_m", "adam_v")
        ]
        assert names_of(v1.global_variables()) == [*VALUES, "global_step", *slots]
    for one, other in zip(found, eager_steps(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


@pytest.mark.usefixtures("graph")
def test_learning_rate_may_be_a_tensor_or_a_schedule():
    found = []
    schedule = optimization.WarmupLinearDecay(0.1, 10, 0)
    step = v1.train.get_or_create_global_step()
    for n, rate in enumerate((0.1, schedule, schedule(tf.identity(step)))):
        w = v1.get_variable(f"w{n}", initializer=[1.0])
        optimizer = optimization.AdamWeightDecayOptimizer(rate)
        found.append(optimizer.apply_gradients([(tf.constant([0.5]), w), (None, w)], step))
    with start_session() as session:
        for _ in range(3):
            session.run(found)
            session.run(v1.assign_add(step, 1))
        constant, scheduled, tensor = session.run(v1.trainable_variables())
    np.testing.assert_array_equal(scheduled, tensor)
    assert constant < scheduled < 1


@pytest.mark.usefixtures("graph")
def test_a_given_step_and_the_scales_of_layers_set_the_rate():
    step = v1.get_variable("my_step", initializer=4, trainable=False)
    optimizer = optimization.AdamWeightDecayOptimizer(lambda step: 0.1 * tf.cast(step, tf.float32))
    optimizer.learning_rate_scales = {"scope/scaled": 0.5}
    with v1.variable_scope("scope"):
        pairs = [
            (tf.constant([0.5]), v1.get_variable(name, initializer=[1.0]))
            for name in ("scaled", "plain")
        ]
    train_op = optimizer.apply_gradients(pairs, step)
    # m / √v of a first step; the epsilon is 1e-6.
    change = 0.1 / np.sqrt(0.001)
    with start_session() as session:
        session.run(train_op)
        scaled, plain = session.run([variable for _, variable in pairs])
    np.testing.assert_allclose(1 - plain, [0.4 * change], rtol=1e-3)
    np.testing.assert_allclose(1 - scaled, [0.2 * change], rtol=1e-3)


def test_a_loss_that_is_eager_is_refused():
    with pytest.raises(ValueError, match="`loss` must be a function of no arguments"):
        optimization.create_optimizer(tf.constant(1.0), 0.1, 10, 0)


@pytest.mark.usefixtures("graph")
def test_a_user_defined_classifier_learns(tiny_config):
    """As in any script that was made of run_classifier.py."""
    v1.set_random_seed(1)
    tensors = placeholders()
    labels = v1.placeholder(tf.int32, (None,))
    bert = modeling.BertModel(tiny_config, True, *tensors)
    weights = v1.get_variable(
        "output_weights",
        [2, tiny_config.hidden_size],
        initializer=v1.truncated_normal_initializer(stddev=0.02),
    )
    logits = tf.matmul(tf.nn.dropout(bert.get_pooled_output(), 0.1), weights, transpose_b=True)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    loss = tf.reduce_mean(losses)
    train_op = optimization.create_optimizer(loss, 0.01, 100, 10, False)
    # Weights, two moments each, and the step.
    assert len(v1.global_variables()) == 3 * 24 + 1
    examples = make_examples(tiny_config, 8)
    feed = {**feed_of(examples, tensors), labels: examples["next_sentence_labels"][:, 0]}
    with start_session() as session:
        history = [session.run([loss, train_op], feed)[0] for _ in range(60)]
    assert history[0] > 0.5
    # Dropout lets a step in ten or so stumble, even at the end.
    assert np.median(history[-15:]) < 0.1


# Runs in a fresh interpreter: the switches hold for all of it.
OLD_CODE = """
import json, sys
import numpy as np
import tensorflow.compat.v1 as tf
getattr(tf, sys.argv[1])()
import modeling, optimization, run_classifier
golden = sys.argv[2]
config = modeling.BertConfig.from_json_file(f"{golden}/bert_config.json")
examples = dict(np.load(f"{golden}/pretrain_records.npz"))
names = ("input_ids", "input_mask", "segment_ids")
tensors = [tf.placeholder(tf.int32, (None, None)) for _ in names]
feed = {each: examples[name][:4] for each, name in zip(tensors, names)}
with tf.variable_scope("", reuse=tf.AUTO_REUSE):
    for rate in (0.0, 0.3):
        config = modeling.BertConfig.from_dict({**config.to_dict(), "hidden_dropout_prob": rate})
        bert = modeling.BertModel(config, True, *tensors, scope="bert")
        pooled, dropped = (bert.pooled_output, None) if not rate else (pooled, bert.pooled_output)
variables = tf.trainable_variables()
assignment_map, _ = modeling.get_assignment_map_from_checkpoint(
    variables, f"{golden}/bert_model.ckpt"
)
tf.train.init_from_checkpoint(f"{golden}/bert_model.ckpt", assignment_map)
with tf.variable_scope("more"):
    context = modeling.attention_layer(tf.ones((3, 5, 8)), tf.ones((3, 7, 8)), size_per_head=4)
    modeling.transformer_model(tf.ones((3, 5, 8)), None, 8, 1, 2, 12)
train_op = optimization.create_optimizer(tf.reduce_mean(tf.square(dropped)), 0.01, 10, 1, False)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    report = {"pooled": session.run(pooled, feed).tolist(), "variables": len(variables)}
    masks = [session.run(dropped, feed) for _ in range(2)]
    report["dropped"] = float(np.abs(masks[0] - masks[1]).max())
    losses = [session.run([train_op, tf.reduce_mean(tf.square(pooled))], feed)[1] for _ in range(5)]
    report["fell"] = bool(losses[-1] < 0.9 * losses[0])
    report["step"] = int(session.run(tf.train.get_global_step()))
print(json.dumps(report))
"""


@pytest.mark.slow
@pytest.mark.parametrize("switch", ["disable_eager_execution", *exhaustive("disable_v2_behavior")])
def test_programs_that_switch_to_graphs_run(switch):
    result = fork_python("-c", OLD_CODE, switch, str(GOLDEN))
    report = json.loads(result.stdout.splitlines()[-1])
    with np.load(GOLDEN / "forward.npz") as original:
        np.testing.assert_allclose(
            report.pop("pooled"), original["pooled_output"], rtol=0, atol=1e-5
        )
    assert report.pop("dropped") > 0.01
    assert report == {"variables": 39, "fell": True, "step": 5}


def needed_by(outputs):
    """Returns all operations that some outputs come from."""
    needed, rest = set(), [output.op for output in outputs]
    while rest:
        operation = rest.pop()
        if operation not in needed:
            needed.add(operation)
            rest += [each.op for each in operation.inputs] + list(operation.control_inputs)
    return needed


def test_all_that_the_graph_computes_is_needed(graph, tiny_config):
    """Original: modeling_test.py, which asks whether each tensor is reachable."""
    bert = modeling.BertModel(tiny_config, True, *placeholders())
    outputs = [bert.pooled_output, bert.embedding_output, bert.embedding_table]
    needed = needed_by([*outputs, *bert.all_encoder_layers])
    operations = set(graph.get_operations())
    # What variables have for their own, and the sizes that Keras asks for.
    own = {"VarHandleOp", "VarIsInitializedOp", "ReadVariableOp", "AssignVariableOp", "NoOp"}
    own |= {"Const", "Shape", "StridedSlice"}
    initializers = {
        operation
        for variable in v1.global_variables()
        for operation in needed_by([tf.identity(variable.initial_value)])
    }
    left = operations - needed - initializers
    assert [each.name for each in left if each.type not in own] == []


def test_shapes_are_those_of_the_configuration(graph, tiny_config):
    """Original: modeling_test.py."""
    del graph
    ids = tf.ones((3, 7), tf.int32)
    bert = modeling.BertModel(tiny_config, True, ids, tf.ones_like(ids), tf.zeros_like(ids))
    shapes = [bert.embedding_output.shape, bert.sequence_output.shape, bert.pooled_output.shape]
    assert shapes == [(3, 7, 8), (3, 7, 8), (3, 8)]
    assert [layer.shape for layer in bert.all_encoder_layers] == [(3, 7, 8)]
    with start_session() as session:
        assert session.run(bert.pooled_output).shape == (3, 8)
