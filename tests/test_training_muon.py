import keras
import numpy as np
import pytest
import tensorflow as tf

import optimization
from bert.training.muon import MuonOptimizer, orthogonalize

SHAPES = {
    "encoder/layer_0/attention/self/query/kernel": (6, 6),
    "encoder/layer_0/intermediate/dense/kernel": (4, 10),
    "encoder/layer_0/output/dense/kernel": (10, 4),
    "encoder/layer_0/output/dense/bias": (4,),
    "embeddings/word_embeddings": (12, 4),
    "cls/seq_relationship/output_weights": (2, 4),
    "encoder/layer_0/forward/kernel": (4, 8),
}
KERNELS = list(SHAPES)[:3]


def draw(seed, shapes=SHAPES):
    rng = np.random.RandomState(seed)
    return [rng.standard_normal(shape).astype("float32") for shape in shapes.values()]


def make_variables():
    variables = [keras.Variable(value, name="x") for value in draw(0)]
    for variable, path in zip(variables, SHAPES, strict=True):
        variable._path = path
    return variables


def train(kind, gradients, *, is_compiled=False, scale=1.0):
    variables = make_variables()
    optimizer = optimization.bert_optimizer(0.1, 20, 2, kind=kind)
    optimizer.build(variables)

    def step(*each):
        optimizer.apply(list(each), variables, scale=scale)

    step = tf.function(step) if is_compiled else step
    for each in gradients:
        step(*map(tf.constant, each))
    moments = (optimizer.first_moments, optimizer.second_moments)
    return [
        {path: value.numpy() for path, value in zip(SHAPES, values, strict=True)}
        for values in (variables, *moments)
    ]


@pytest.mark.parametrize("gpus", [[], ["one"]])
@pytest.mark.parametrize("shape", [(8, 8), (5, 12), (12, 5)])
def test_a_matrix_keeps_its_singular_vectors_and_loses_its_singular_values(
    monkeypatch, shape, gpus
):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: gpus)
    matrix = np.random.RandomState(1).standard_normal(shape).astype("float32")
    result = orthogonalize(tf.constant(matrix)).numpy()
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    inner = left.T @ result @ right.T
    assert np.abs(inner - np.diag(np.diag(inner))).max() < 1e-4
    assert (np.diag(inner) > 0.6).all() and (np.diag(inner) < 1.3).all()
    # How large the matrix is makes no difference.
    np.testing.assert_allclose(orthogonalize(tf.constant(1e3 * matrix)), result, atol=1e-4)
    np.testing.assert_allclose(orthogonalize(tf.constant(matrix.T)), result.T, atol=1e-5)
    of_keras = keras.optimizers.Muon().zeropower_via_newtonschulz5(tf.constant(matrix), 5)
    np.testing.assert_allclose(result, of_keras, atol=1e-5)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_kernels_move_along_their_momentum_and_all_else_as_by_adam(is_compiled):
    gradients = [draw(seed) for seed in range(1, 5)]
    scale = 0.5
    weights, first, second = train(MuonOptimizer, gradients, is_compiled=is_compiled, scale=scale)
    expected, momenta = dict(zip(SHAPES, draw(0), strict=True)), dict.fromkeys(KERNELS, 0.0)
    for step, each in enumerate(gradients):
        rate = 0.1 * step / 2 if step < 2 else 0.1 * (1 - step / 20)
        for path, gradient in zip(SHAPES, each, strict=True):
            if path not in KERNELS:
                continue
            momenta[path] = 0.95 * momenta[path] + scale * gradient
            direction = orthogonalize(tf.constant(scale * gradient + 0.95 * momenta[path])).numpy()
            # Its root mean square is about 0.2, whatever the shape.
            change = 0.2 * max(gradient.shape) ** 0.5 * direction
            expected[path] = expected[path] - rate * (change + 0.01 * expected[path])
    by_adam = train(optimization.AdamWeightDecayOptimizer, gradients, scale=scale)
    for path in SHAPES:
        if path in KERNELS:
            np.testing.assert_allclose(weights[path], expected[path], atol=2e-5)
            np.testing.assert_allclose(first[path], momenta[path], atol=1e-5)
            assert not second[path].any()
        else:
            for mine, adams in zip((weights, first, second), by_adam, strict=True):
                np.testing.assert_allclose(mine[path], adams[path], atol=1e-6)
