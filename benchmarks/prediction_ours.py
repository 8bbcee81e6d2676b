"""Predicts with this project for prediction.py; started by it.

What serves a SavedModel loads nothing of the project, as a server would not. In bfloat16, weights
are taken to stay as they are, as predict.py and serve.py do and docs/serving.md asks of a server.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import prediction_worker
import worker

Predict = Callable[..., Any]

# The environment variable that tells TensorFlow so.
FROZEN_WEIGHTS = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"

# Names of the two forms of a model's input, and of the signatures of a SavedModel that take them.
SIGNATURES = {"ids": "features", "texts": "serving_default"}
# Exports for the runtimes of others, by the names that prediction.py has for them.
PORTABLE = {"our_onnx": "onnx", "our_tflite": "tflite"}
# `bert.load` with each of its engines.
ENGINES = {"load": "tensorflow", "load_litert": "litert", "load_onnx": "onnx"}


def open_loaded(folder: str, precision: str, engine: str = "tensorflow") -> Any:
    """Returns what `bert.load` does for a classifier's folder of transformers."""
    from bert.models.open import load

    return load(
        folder,
        precision=precision,
        engine=engine,
        labels=prediction_worker.LABELS,
        is_pair=False,
        max_seq_length=prediction_worker.MAX_LENGTH,
    )


def make_saved_model(model: str, output: str, precision: str) -> None:
    """Writes a SavedModel of a classifier's folder of transformers."""
    loaded = open_loaded(model, precision)
    loaded.task.export(output, loaded.model)


def make_portable(model: str, output: str, form: str, precision: str) -> None:
    """Writes an export for another runtime of a classifier's folder of transformers."""
    from bert.export import portable as folder

    shutil.rmtree(output, ignore_errors=True)
    folder.write(output, form, precision, open_loaded(model, "float32").model, {})


def open_portable(model: str, form: str) -> dict[str, Predict]:
    """Returns by form of input what predicts with an export for another runtime."""
    from bert.export import portable as folder

    runtime = folder.open_runtime(model, form)
    return {"ids": lambda inputs: runtime(inputs)["logits"]}


def open_saved_model(folder: str) -> dict[str, Predict]:
    """Returns by form what predicts with a SavedModel."""
    import tensorflow as tf

    module = tf.saved_model.load(folder)
    features, texts = (module.signatures[name] for name in SIGNATURES.values())

    def predict_ids(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        outputs = features(**{name: tf.constant(values) for name, values in inputs.items()})
        return outputs["logits"].numpy()

    def predict_texts(inputs: Sequence[str]) -> list[str]:
        labels = texts(text_a=tf.constant(inputs))["label"].numpy()
        return [label.decode() for label in labels]

    # Keeps the module, whose variables the signatures use.
    predict_ids.module = module  # type: ignore[attr-defined]
    return {"ids": predict_ids, "texts": predict_texts}


def open_folder(folder: str, precision: str, engine: str) -> dict[str, Predict]:
    """Returns by form what predicts with `bert.load`."""
    loaded = open_loaded(folder, precision, engine)
    return {"texts": lambda inputs: [answer["label"] for answer in loaded.predict(inputs)]}


def main() -> None:
    """Makes an export, or serves predictions."""
    setting = worker.read_setting()
    model, program, precision = (setting[name] for name in ("model", "program", "precision"))
    if "output" in setting:
        if program in ENGINES:
            open_loaded(model, precision, ENGINES[program])
        elif program in PORTABLE:
            make_portable(model, setting["output"], PORTABLE[program], precision)
        else:
            make_saved_model(model, setting["output"], precision)
        return
    if precision == "bfloat16":
        os.environ.setdefault(FROZEN_WEIGHTS, "1")
    if program in PORTABLE:
        predict = open_portable(model, PORTABLE[program])
    elif program in ENGINES:
        predict = open_folder(model, precision, ENGINES[program])
    else:
        predict = open_saved_model(model)
    prediction_worker.serve(setting["cases"], predict)


if __name__ == "__main__":
    main()
