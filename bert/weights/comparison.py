"""Whether two models with the same weights compute the same."""

import keras
import numpy as np

from modeling import BertConfig


def find_difference(one: keras.Model, other: keras.Model, config: BertConfig) -> float:
    """Returns how far outputs of two models are apart at most on the same random input.

    Where one of them is not a number, neither is the difference.

    Args:
      one: A functional model whose inputs and outputs are dictionaries.
      other: Another of the same inputs and outputs.
      config: The shape of their encoders.
    """
    inputs = _random_inputs(config, one)
    ours, others = (model(inputs, training=False) for model in (one, other))
    # `max` of Python would pass over what is not a number, unless it came first.
    return float(np.max([np.abs(ours[name] - others[name]).max() for name in ours]))


def _random_inputs(config: BertConfig, model: keras.Model) -> dict[str, np.ndarray]:
    """Returns two rows of random ids, the second one with padding."""
    rng = np.random.RandomState(0)
    length = min(16, config.max_position_embeddings)
    mask = np.arange(length) < np.array([[length], [(length + 1) // 2]])
    inputs = {
        "input_ids": rng.randint(0, config.vocab_size, (2, length)),
        "input_mask": mask,
        "segment_ids": rng.randint(0, min(config.type_vocab_size, 2), (2, length)),
    }
    if "masked_lm_positions" in model.input:
        inputs["masked_lm_positions"] = np.array([[0], [length // 2 - 1]]).clip(0)
    inputs = {name: values.astype(np.int32) for name, values in inputs.items()}
    if len(model.input["input_ids"].shape) == 3:
        return {name: values[None] for name, values in inputs.items()}
    return inputs
