import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import change, make_examples

import optimization
from bert.pretraining import heads as pretraining_heads
from bert.pretraining.objectives import OBJECTIVE
from bert.training.trainer import LossScale, Trainer


@pytest.fixture
def config(tiny_config):
    """Two layers: the last one is compiled by itself, as it computes fewer tokens."""
    return change(tiny_config, num_hidden_layers=2)


@pytest.fixture
def flat_config(tiny_config):
    """One layer, of which half as much is to be compiled."""
    return change(tiny_config, num_hidden_layers=1)


def make_trainer(
    config, *, compiles, precision="float32", checkpointing=False, num_micro_batches=1
):
    keras.utils.set_random_seed(0)
    model = pretraining_heads.pretraining_model(config, dtype=precision)
    model.get_layer("bert").gradient_checkpointing = checkpointing
    trainer = Trainer(
        model,
        optimization.bert_optimizer(1e-3, 10, 0),
        OBJECTIVE,
        seed=5,
        num_micro_batches=num_micro_batches,
        loss_scale=LossScale() if precision == "mixed_float16" else None,
    )
    trainer.compiles = compiles
    if not compiles:
        # A few steps take less time than a graph.
        trainer._step_function = trainer._distributed_step
    return trainer


def make_batch(config, count=8):
    return {name: tf.constant(values) for name, values in make_examples(config, count).items()}


def compiled_functions(trainer, batch):
    """Returns the name of the compiled function of each call in a step's graph."""
    graph = trainer._step_function.get_concrete_function(batch).graph
    operations = [op for op in graph.get_operations() if "_XlaMustCompile" in op.node_def.attr]
    return [op.get_attr("f").name for op in operations if op.get_attr("_XlaMustCompile")]


def test_a_compiled_step_in_half_precision_is_that_of_single_operations(flat_config):
    one, other = (
        make_trainer(flat_config, compiles=compiles, precision="mixed_float16")
        for compiles in (True, False)
    )
    batch = make_batch(flat_config)
    for _ in range(2):
        assert one.train_step(batch) == pytest.approx(other.train_step(batch), rel=1e-3)


def test_compiled_batches_of_all_sizes_and_parts_give_the_same_weights(config):
    batch = make_batch(config)
    signature = {
        name: tf.TensorSpec([None] * values.ndim, values.dtype) for name, values in batch.items()
    }
    weights = []
    for compiles in (True, False):
        trainer = make_trainer(config, compiles=compiles, num_micro_batches=2)
        if compiles:
            trainer._step_function = tf.function(
                trainer._distributed_step, input_signature=[signature], autograph=False
            )
        for count in (8, 4):
            trainer.train_step(make_batch(config, count))
        weights.append([weight.numpy() for weight in trainer.model.weights])
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_all_layers_share_what_is_compiled(config):
    trainer = make_trainer(change(config, num_hidden_layers=3), compiles=True)
    names = [name for name in compiled_functions(trainer, make_batch(config)) if "_call_" in name]
    assert len(names) == 2 * 3
    # Both directions of all layers but the last, and of the last, which computes fewer tokens.
    assert len(set(names)) == 4


def test_layers_that_are_recomputed_are_not_compiled(flat_config):
    trainer = make_trainer(flat_config, compiles=True, checkpointing=True)
    names = compiled_functions(trainer, make_batch(flat_config))
    assert not any("_call_" in name for name in names)


@pytest.mark.parametrize(("num_train_steps", "compiles"), [(499, False), (500, True)])
def test_short_trainings_are_not_worth_compiling(
    make_batches, flat_config, num_train_steps, compiles
):
    trainer = make_trainer(flat_config, compiles=True)
    next(trainer.read(make_batches(4), num_train_steps))
    assert trainer.compiles is compiles


def test_training_goes_on_without_xla_where_it_fails(flat_config, log):
    def activation(inputs):
        # XLA has no Python functions.
        same = tf.numpy_function(np.copy, [tf.nn.relu(inputs)], inputs.dtype)
        same.set_shape(inputs.shape)
        return tf.nn.relu(inputs) + tf.stop_gradient(same - tf.nn.relu(inputs))

    config = change(flat_config, hidden_act=activation)
    one, other = (make_trainer(config, compiles=compiles) for compiles in (True, False))
    for _ in range(2):
        batch = make_batch(config, 4)
        assert one.train_step(batch) == pytest.approx(other.train_step(batch), rel=1e-4)
        assert not one.compiles
    warnings = [text for text in log.messages if "training goes on without XLA" in text]
    assert len(warnings) == 1
    assert one.step == 2
    for weight, expected in zip(one.model.weights, other.model.weights, strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-5)


def test_other_errors_of_a_step_are_raised(flat_config):
    trainer = make_trainer(flat_config, compiles=False)
    batch = make_batch(flat_config)
    batch["masked_lm_positions"] += 1000
    with pytest.raises(tf.errors.OpError):
        trainer.train_step(batch)
