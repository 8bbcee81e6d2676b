"""Takes this project's own pre-training steps for pretraining_step.py; started by it."""

import keras
import numpy as np
import tensorflow as tf
import worker

import modeling
import optimization
from bert.pretraining import heads as pretraining_heads
from bert.training.loop import Objective
from bert.training.trainer import Trainer

PRECISIONS = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


def make_trainer(setting: dict) -> Trainer:
    """Returns what run_pretraining.py trains with."""
    config = modeling.BertConfig(
        vocab_size=setting["vocab_size"],
        hidden_size=setting["hidden_size"],
        num_hidden_layers=setting["num_layers"],
        num_attention_heads=setting["num_heads"],
        intermediate_size=4 * setting["hidden_size"],
        type_vocab_size=2,
    )
    keras.utils.set_random_seed(0)
    return Trainer(
        pretraining_heads.pretraining_model(config, dtype=PRECISIONS[setting["precision"]]),
        optimization.bert_optimizer(1e-4, num_train_steps=1000, num_warmup_steps=100),
        Objective(pretraining_heads.loss_weights, pretraining_heads.losses),
    )


def make_batch(setting: dict) -> dict[str, tf.Tensor]:
    """Returns a batch of random tokens without padding."""
    rng = np.random.default_rng(0)
    size, length = setting["batch_size"], setting["length"]
    predictions = (size, setting["predictions"])
    positions = np.argsort(rng.random((size, length)), axis=1)[:, : setting["predictions"]]
    arrays = {
        "input_ids": rng.integers(setting["vocab_size"], size=(size, length)),
        "input_mask": np.ones((size, length)),
        "segment_ids": rng.integers(2, size=(size, length)),
        "masked_lm_positions": np.sort(positions, axis=1),
        "masked_lm_ids": rng.integers(setting["vocab_size"], size=predictions),
        "next_sentence_labels": rng.integers(2, size=(size, 1)),
    }
    batch = {name: tf.constant(array, tf.int32) for name, array in arrays.items()}
    return {**batch, "masked_lm_weights": tf.ones(predictions)}


def main() -> None:
    """Serves steps."""
    setting = worker.read_setting()
    trainer, batch = make_trainer(setting), make_batch(setting)
    worker.serve({"step": lambda: worker.seconds(lambda: trainer.train_step(batch))})


if __name__ == "__main__":
    main()
