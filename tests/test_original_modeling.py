import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, golden_batch, make_examples
from helpers.original_functions import model_of_functions

import modeling
from bert.original import modeling as original_modeling

# As in the original's modeling.py.
SIGNATURES = {
    "assert_rank": "tensor, expected_rank, name=None",
    "attention_layer": "from_tensor, to_tensor, attention_mask=None, num_attention_heads=1, "
    "size_per_head=512, query_act=None, key_act=None, value_act=None, "
    "attention_probs_dropout_prob=0.0, initializer_range=0.02, do_return_2d_tensor=False, "
    "batch_size=None, from_seq_length=None, to_seq_length=None",
    "create_attention_mask_from_input_mask": "from_tensor, to_mask",
    "dropout": "input_tensor, dropout_prob",
    "embedding_lookup": "input_ids, vocab_size, embedding_size=128, initializer_range=0.02, "
    "word_embedding_name='word_embeddings', use_one_hot_embeddings=False",
    "embedding_postprocessor": "input_tensor, use_token_type=False, token_type_ids=None, "
    "token_type_vocab_size=16, token_type_embedding_name='token_type_embeddings', "
    "use_position_embeddings=True, position_embedding_name='position_embeddings', "
    "initializer_range=0.02, max_position_embeddings=512, dropout_prob=0.1",
    "get_assignment_map_from_checkpoint": "tvars, init_checkpoint",
    "get_shape_list": "tensor, expected_rank=None, name=None",
    "layer_norm": "input_tensor, name=None",
    "layer_norm_and_dropout": "input_tensor, dropout_prob, name=None",
    "reshape_from_matrix": "output_tensor, orig_shape_list",
    "reshape_to_matrix": "input_tensor",
    "transformer_model": "input_tensor, attention_mask=None, hidden_size=768, "
    "num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, "
    "intermediate_act_fn=gelu, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, "
    "initializer_range=0.02, do_return_all_layers=False",
}


def random(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def spread(model):
    """Sets all weights to values of the order of 1, and returns them by name."""
    for seed, variable in enumerate(model.weights):
        variable.assign(random(*variable.shape, seed=seed))
    return {variable.path: variable.numpy() for variable in model.weights}


def reload(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


def ids_and_masks(config):
    """Returns `input_ids`, `input_mask` and `token_type_ids` as the original's arguments."""
    examples = make_examples(config, 3)
    return [examples[name] for name in ("input_ids", "input_mask", "segment_ids")]


def symbolic(arrays, batch=None, length=None):
    return [keras.Input(batch_shape=(batch, length), dtype=each.dtype) for each in arrays]


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature_is_the_original_one(name):
    signature = inspect.signature(getattr(modeling, name))
    shown = []
    for parameter in signature.parameters.values():
        default = getattr(parameter.default, "__name__", repr(parameter.default))
        required = parameter.default is parameter.empty
        shown.append(parameter.name if required else f"{parameter.name}={default}")
    assert ", ".join(shown) == SIGNATURES[name]


def test_modeling_has_the_names_and_no_others():
    assert set(SIGNATURES) == {*modeling._ORIGINAL.split()}
    assert set(SIGNATURES) < set(dir(modeling))
    assert modeling.layer_norm is original_modeling.layer_norm
    with pytest.raises(AttributeError, match="'modeling' has no attribute 'layer_nrom'"):
        _ = modeling.layer_nrom


@pytest.mark.parametrize(("batch", "length"), [(None, None), (4, 48)])
def test_functions_give_the_original_numbers_and_names(tmp_path, batch, length):
    examples = golden_batch(GOLDEN)
    names = ("input_ids", "input_mask", "segment_ids")
    arrays = [examples[name][:4].astype(np.int32) for name in names]
    config = modeling.BertConfig.from_json_file(str(GOLDEN / "bert_config.json"))
    tensors = symbolic(arrays, batch, length)
    model = keras.Model(tensors, model_of_functions(config, tensors))
    reader = tf.train.load_checkpoint(str(GOLDEN / "bert_model.ckpt"))
    for variable in model.weights:
        variable.assign(reader.get_tensor(variable.path))
    encoder = {variable.path for variable in modeling_variables(config)}
    assert {variable.path for variable in model.weights} == encoder
    table, *outputs = model(arrays)
    np.testing.assert_array_equal(table, reader.get_tensor("bert/embeddings/word_embeddings"))
    with np.load(GOLDEN / "forward.npz") as original:
        for output, name in zip(outputs, ("embedding_output", "layer_0", "layer_1"), strict=True):
            # Float32 sums in another order differ by a few 1e-7 a layer.
            np.testing.assert_allclose(output, original[name], rtol=0, atol=1e-5)
    for output, again in zip(outputs, reload(model, tmp_path)(arrays)[1:], strict=True):
        np.testing.assert_array_equal(output, again)


def modeling_variables(config):
    bert = modeling.BertModel(config)
    bert.build(None)
    return [variable for variable in bert.weights if "pooler" not in variable.path]


def test_functions_give_as_many_dimensions_on_eager_tensors(tiny_config):
    arrays = ids_and_masks(tiny_config)
    outputs = model_of_functions(tiny_config, [tf.constant(each) for each in arrays])
    shape = (*arrays[0].shape, tiny_config.hidden_size)
    assert [tuple(output.shape) for output in outputs[1:]] == [shape] * 3
    for output in outputs[1:]:  # What LayerNorm starts with: mean 0 and variance 1, but dropout.
        assert 0.5 < np.std(output) < 1.5


def test_transformer_without_a_mask_attends_everywhere():
    inputs = keras.Input((5, 8))
    mask = keras.Input((5, 5))
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 12, "intermediate_act_fn": None}
    open_model = keras.Model(inputs, modeling.transformer_model(inputs, **sizes))
    masked = keras.Model([inputs, mask], modeling.transformer_model(inputs, mask, **sizes))
    spread(open_model)
    masked.set_weights(open_model.get_weights())
    x = random(3, 5, 8)
    np.testing.assert_array_equal(open_model(x), masked([x, np.ones((3, 5, 5))]))
    causal = np.tril(np.ones((1, 5, 5)))  # One mask for all examples.
    changed = x + np.array([0, 0, 0, 0, 1])[:, None]
    before, after = masked([x, causal]).numpy(), masked([changed, causal]).numpy()
    np.testing.assert_allclose(before[:, :4], after[:, :4], rtol=0, atol=1e-5)
    assert np.abs(before[:, 4] - after[:, 4]).max() > 0.1


@pytest.mark.parametrize("one_hot", [False, True])
def test_embedding_lookup_sets_the_embeddings_of_a_token_side_by_side(one_hot):
    ids = np.random.RandomState(0).randint(0, 11, (3, 5, 2))
    output, table = modeling.embedding_lookup(ids, 11, 4, use_one_hot_embeddings=one_hot)
    expected = table.numpy()[ids].reshape(3, 5, 8)
    np.testing.assert_array_equal(output, expected)
    np.testing.assert_array_equal(modeling.embedding_lookup(ids[..., 0], 11, 4)[0].shape, (3, 5, 4))


def test_layer_norm_has_its_name_and_normalizes_the_last_axis():
    inputs = keras.Input((4, 6))
    with keras.name_scope("scope"):
        model = keras.Model(inputs, modeling.layer_norm(modeling.layer_norm(inputs), "second"))
    weights = spread(model)
    expected = x = random(2, 4, 6)
    for name in ("LayerNorm", "second"):
        centred = expected - expected.mean(-1, keepdims=True)
        expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        gamma, beta = (weights.pop(f"scope/{name}/{leaf}") for leaf in ("gamma", "beta"))
        expected = expected * gamma + beta
    assert not weights
    np.testing.assert_allclose(model(x), expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(modeling.layer_norm(x), modeling.layer_norm_and_dropout(x, None))


def attention_in_numpy(weights, x, y, mask, heads):
    """Returns attention with a tanh of the queries, a relu of the keys and a gelu of the values."""

    def split(inputs, name, activation):
        projected = inputs @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]
        return activation(projected).reshape(*inputs.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    query = split(x, "query", np.tanh)
    key = split(y, "key", lambda z: np.maximum(z, 0))
    value = split(
        y, "value", lambda z: z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))) / 2
    )
    scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(query.shape[-1])
    scores = np.exp(scores - 10000.0 * (1 - mask[:, None]))
    context = scores / scores.sum(-1, keepdims=True) @ value
    return context.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)


@pytest.mark.parametrize("masked", [False, True])
def test_attention_layer_equals_numpy(tmp_path, masked):
    x, y = random(3, 5, 8), random(3, 7, 6, seed=1)
    mask = np.random.RandomState(2).randint(0, 2, (3, 5, 7)) if masked else np.ones((3, 5, 7))
    mask[..., 0] = 1
    tensors = keras.Input((None, 8)), keras.Input((None, 6)), keras.Input((None, None))
    from_tensor, to_tensor, attention_mask = tensors
    output = modeling.attention_layer(
        from_tensor,
        to_tensor,
        attention_mask if masked else None,
        num_attention_heads=2,
        size_per_head=3,
        query_act=modeling.get_activation("tanh"),
        key_act=tf.nn.relu,
        value_act=modeling.gelu,
    )
    model = keras.Model(tensors, output)
    expected = attention_in_numpy(spread(model), x, y, mask, heads=2)
    np.testing.assert_allclose(model([x, y, mask]), expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(reload(model, tmp_path)([x, y, mask]), model([x, y, mask]))


def test_attention_layer_takes_matrices_for_sequences():
    x, y = tf.constant(random(3, 5, 8)), tf.constant(random(3, 7, 8))
    lengths = {"batch_size": 3, "from_seq_length": 5, "to_seq_length": 7}
    outputs = []
    for matrices in (False, True):
        keras.utils.set_random_seed(1)
        inputs = [modeling.reshape_to_matrix(each) if matrices else each for each in (x, y)]
        given = lengths if matrices else {}
        for as_matrix in (False, True):
            keras.utils.set_random_seed(1)
            output = modeling.attention_layer(
                *inputs, size_per_head=4, do_return_2d_tensor=as_matrix, **given
            )
            assert output.shape == ((15, 4) if as_matrix else (3, 5, 4))
            outputs.append(np.reshape(output, (3, 5, 4)))
    assert np.abs(outputs[0]).max() > 0
    for output in outputs[1:]:
        np.testing.assert_array_equal(output, outputs[0])
    with pytest.raises(ValueError, match=r"must be given with matrices\. Received 3, 5 and None"):
        modeling.attention_layer(*inputs, batch_size=3, from_seq_length=5)
    with pytest.raises(ValueError, match=r"must have the same rank\. Received 3 and 2"):
        modeling.attention_layer(x, inputs[1])


def test_mask_lets_every_query_attend_to_the_real_keys():
    to_mask = np.array([[1, 1, 0], [1, 0, 0]])
    for from_tensor in (np.zeros((2, 4)), np.zeros((2, 4, 5))):
        mask = modeling.create_attention_mask_from_input_mask(from_tensor, to_mask)
        assert mask.dtype == "float32"
        np.testing.assert_array_equal(mask, np.repeat(to_mask[:, None], 4, axis=1))


def test_dropout_of_none_or_0_is_nothing():
    x = tf.ones((3, 3))
    assert modeling.dropout(x, None) is x
    assert modeling.dropout(x, 0.0) is x


def test_dropout_drops_out_of_eager_tensors_at_once_and_keeps_the_mean():
    dropped = np.asarray(modeling.dropout(tf.ones((100, 100)), 0.2))
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1.25)}
    assert dropped.mean() == pytest.approx(1, abs=0.03)  # Six standard deviations.


@pytest.mark.parametrize("rates", [(0.5, 0.0, 0.0), (0.0, 0.5, 0.0), (0.0, 0.0, 0.5)])
def test_dropout_of_a_functional_model_follows_its_phase(rates):
    inputs = keras.Input((5, 12))
    outputs = modeling.dropout(modeling.layer_norm(inputs), rates[0])
    outputs = modeling.transformer_model(outputs, None, 12, 1, 12, 24, None, *rates[1:])
    model = keras.Model(inputs, outputs)
    spread(model)
    x = random(9, 5, 12)
    np.testing.assert_array_equal(model(x), model(x, training=False))
    assert np.abs(model(x, training=True) - model(x)).max() > 0.01


def test_shape_list_has_integers_where_the_dimensions_are_known():
    assert modeling.get_shape_list(tf.zeros((2, 3, 4)), expected_rank=[2, 3]) == [2, 3, 4]

    @tf.function(input_signature=[tf.TensorSpec((None, 3))])
    def batch_size(tensor):
        size, width = modeling.get_shape_list(tensor)
        assert isinstance(size, tf.Tensor) and width == 3
        return size

    assert int(batch_size(tf.zeros((5, 3)))) == 5


def test_shapes_survive_the_matrix_in_functional_models(tmp_path):
    inputs = keras.Input((None, 6))
    shape = modeling.get_shape_list(inputs)
    assert shape[-1] == 6
    matrix = modeling.reshape_to_matrix(inputs)
    narrow = modeling.reshape_from_matrix(matrix[:, :2], shape)
    assert narrow.shape == (None, None, 2)
    model = keras.Model(inputs, [narrow, shape[0] * shape[1]])
    x = random(4, 3, 6)
    for each in (model, reload(model, tmp_path)):
        output, count = each(x)
        np.testing.assert_array_equal(output, x[..., :2])
        assert int(count) == 12


def test_matrices_stay_as_they_are():
    matrix = tf.zeros((2, 3))
    assert modeling.reshape_to_matrix(matrix) is matrix
    assert modeling.reshape_from_matrix(matrix, [2, 3]) is matrix
    with pytest.raises(ValueError, match="must have rank 2 or more"):
        modeling.reshape_to_matrix(tf.zeros(3))


def test_wrong_ranks_are_refused():
    modeling.assert_rank(tf.zeros((2, 3)), 2)
    modeling.assert_rank(tf.zeros((2, 3)), [2, 3])
    with pytest.raises(ValueError, match=r"rank of `ids` must be among \[3\]. Received 2"):
        modeling.assert_rank(tf.zeros((2, 3)), 3, "ids")
    with pytest.raises(ValueError, match=r"rank of `tensor` must be among \[1, 4\]"):
        modeling.get_shape_list(keras.Input((3,)), [1, 4])


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        ("transformer_model", {"hidden_size": 12}, r"must be `hidden_size`\. Received 8 and 12"),
        (
            "transformer_model",
            {"hidden_size": 8, "num_attention_heads": 3},
            r"must be a multiple of `num_attention_heads`\. Received 8 and 3",
        ),
        ("embedding_postprocessor", {"use_token_type": True}, "`token_type_ids` must be given"),
        (
            "embedding_postprocessor",
            {"max_position_embeddings": 4},
            "`seq_length` must be at most 4",
        ),
    ],
)
def test_impossible_arguments_are_refused(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        getattr(modeling, function)(tf.zeros((2, 5, 8)), **arguments)


def test_assignment_map_has_the_names_of_model_and_checkpoint():
    model = keras.Sequential([keras.layers.Dense(16, name="dense")], name="pooler")
    with keras.name_scope("bert"), keras.name_scope("pooler"):
        layer = keras.layers.Dense(16, name="dense")
        layer.build((None, 16))
    model.build((None, 16))
    names = ["bert/pooler/dense/bias", "bert/pooler/dense/kernel"]
    plain = [tf.Variable(0.0, name=name) for name in (*names, "not/there")]
    for variables in (layer.weights + model.weights, plain):
        for path in ("bert_model.ckpt", "bert_model.ckpt.index"):
            assignment, initialized = modeling.get_assignment_map_from_checkpoint(
                variables, str(GOLDEN / path)
            )
            assert assignment == {name: name for name in names}
            assert initialized == {key: 1 for name in names for key in (name, f"{name}:0")}
    with pytest.raises(ValueError, match="must name a checkpoint"):
        modeling.get_assignment_map_from_checkpoint(plain, str(GOLDEN / "absent"))


GETTERS = {
    "get_pooled_output": "pooled_output",
    "get_sequence_output": "sequence_output",
    "get_all_encoder_layers": "encoder_layers",
    "get_embedding_output": "embedding_output",
    "get_embedding_table": "embedding_table",
}


def gotten(model):
    return {name: getattr(model, getter)() for getter, name in GETTERS.items()}


def assert_all_equal(outputs, expected):
    flat, flat_expected = keras.tree.flatten(outputs), keras.tree.flatten(expected)
    for output, other in zip(flat, flat_expected, strict=True):
        np.testing.assert_array_equal(output, other)


def test_getters_give_what_a_call_gives(tiny_config):
    arrays = ids_and_masks(tiny_config)
    tensors = [tf.constant(each) for each in arrays]
    model = modeling.BertModel(tiny_config, False, *tensors)
    names = ("input_ids", "input_mask", "segment_ids")
    assert_all_equal(gotten(model), model(dict(zip(names, tensors, strict=True))))
    assert isinstance(model.get_all_encoder_layers(), list)
    shorter = modeling.BertModel(
        config=tiny_config, is_training=False, input_ids=tensors[0], scope="other"
    )
    shorter.set_weights(model.get_weights())
    assert shorter.name == "other" and model.name == "bert"
    assert_all_equal(
        shorter({"input_ids": tensors[0]}),
        model(
            {
                "input_ids": tensors[0],
                "input_mask": tf.ones_like(tensors[0]),
                "segment_ids": tf.zeros_like(tensors[0]),
            }
        ),
    )


def test_getters_give_the_original_numbers_in_functional_models(tmp_path):
    examples = golden_batch(GOLDEN)
    names = ("input_ids", "input_mask", "segment_ids")
    arrays = [examples[name][:4].astype(np.int32) for name in names]
    config = modeling.BertConfig.from_json_file(str(GOLDEN / "bert_config.json"))
    input_ids, input_mask, token_type_ids = tensors = symbolic(arrays)
    bert = modeling.BertModel(
        config=config,
        is_training=True,
        input_ids=input_ids,
        input_mask=input_mask,
        token_type_ids=token_type_ids,
        use_one_hot_embeddings=True,
    )
    model = keras.Model(tensors, gotten(bert))
    reader = tf.train.load_checkpoint(str(GOLDEN / "bert_model.ckpt"))
    for variable in model.weights:
        variable.assign(reader.get_tensor(variable.path))
    outputs = model(arrays)
    with np.load(GOLDEN / "forward.npz") as original:
        # Float32 sums in another order differ by a few 1e-7 a layer.
        for name in ("embedding_output", "pooled_output"):
            np.testing.assert_allclose(outputs[name], original[name], rtol=0, atol=1e-5)
        for index, layer in enumerate(outputs["encoder_layers"]):
            np.testing.assert_allclose(layer, original[f"layer_{index}"], rtol=0, atol=1e-5)
    again = reload(model, tmp_path)
    assert [v.path for v in again.weights] == [v.path for v in model.weights]
    assert_all_equal(again(arrays), outputs)


def test_is_training_decides_about_dropout(tiny_config):
    arrays = ids_and_masks(tiny_config)
    tensors = symbolic(arrays)
    for is_training in (False, True):
        eager = modeling.BertModel(tiny_config, is_training, *map(tf.constant, arrays))
        names = ("input_ids", "input_mask", "segment_ids")
        called = eager(dict(zip(names, arrays, strict=True)))["sequence_output"]
        assert np.array_equal(called, eager.get_sequence_output()) is not is_training
        bert = modeling.BertModel(tiny_config, is_training, *tensors)
        model = keras.Model(tensors, bert.get_sequence_output())
        np.testing.assert_array_equal(model(arrays), model(arrays, training=False))
        trained = model(arrays, training=True)
        assert np.array_equal(model(arrays), trained) is not is_training


@pytest.mark.parametrize("of_keras", [False, True])
def test_layers_are_computed_again_where_the_model_is_called_at_once(tiny_config, of_keras):
    arrays = ids_and_masks(tiny_config)
    tensors = symbolic(arrays) if of_keras else map(tf.constant, arrays)
    bert = modeling.BertModel(tiny_config, True, *tensors, gradient_checkpointing=True)
    assert bert.encoder.gradient_checkpointing


@pytest.mark.parametrize("getter", GETTERS)
def test_getters_without_inputs_say_what_is_missing(tiny_config, getter):
    with pytest.raises(ValueError, match="`BertModel` must be made with `input_ids`"):
        getattr(modeling.BertModel(tiny_config), getter)()


@pytest.mark.parametrize("arguments", [{"is_training": True}, {"input_ids": np.ones((1, 2))}])
def test_is_training_and_input_ids_come_together(tiny_config, arguments):
    with pytest.raises(ValueError, match="`is_training` and `input_ids` must be given together"):
        modeling.BertModel(tiny_config, **arguments)


def test_model_of_functions_trains_all_its_weights(tiny_config):
    arrays = ids_and_masks(tiny_config)
    tensors = symbolic(arrays)
    _, *outputs = model_of_functions(tiny_config, tensors)
    model = keras.Model(tensors, keras.layers.Dense(1)(outputs[-1][:, 0]))
    before = {variable.path: variable.numpy() for variable in model.weights}
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(arrays, np.arange(3.0)[:, None], batch_size=3, verbose=0)
    unchanged = [v.path for v in model.weights if np.array_equal(v.numpy(), before[v.path])]
    # Softmax does not see what a bias adds to all keys alike: its gradient is 0, but for rounding.
    assert [path for path in unchanged if not path.endswith("key/bias")] == []
