"""Predicts with torch, ONNX Runtime and OpenVINO for prediction.py; started by it.

Each model is made by its program's own tools: transformers → torch.onnx;
`onnxruntime.quantization`; `openvino.convert_model`. Runs in an environment of its own, without
this project's packages.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import prediction_worker
import worker

Ids = Mapping[str, np.ndarray]
Logits = Callable[[Ids], np.ndarray]

NAMES = ("input_ids", "attention_mask", "token_type_ids")
LABELS = dict(enumerate(prediction_worker.LABELS))


def make_transformers(output: str, setting: Mapping[str, Any]) -> None:
    """Writes a folder of transformers with a classifier of random weights and the vocabulary."""
    import torch  # type: ignore
    import transformers  # type: ignore

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=setting["vocab_size"],
        hidden_size=setting["hidden_size"],
        num_hidden_layers=setting["num_layers"],
        num_attention_heads=setting["num_heads"],
        intermediate_size=4 * setting["hidden_size"],
        hidden_act=setting["hidden_act"],
        id2label=LABELS,
        label2id={label: number for number, label in LABELS.items()},
    )
    transformers.BertForSequenceClassification(config).save_pretrained(output)
    tokenizer = transformers.BertTokenizerFast(vocab=setting["vocab_file"], do_lower_case=True)
    tokenizer.save_pretrained(output)
    with open(setting["vocab_file"], encoding="utf-8") as file:
        vocabulary = file.read()
    with open(os.path.join(output, "vocab.txt"), "w", encoding="utf-8") as file:
        file.write(vocabulary)


def make_onnx(model: str, output: str) -> None:
    """Writes an ONNX model of a folder of transformers."""
    import torch
    import transformers

    module = transformers.BertForSequenceClassification.from_pretrained(model).eval()
    inputs = {name: torch.ones((2, 16), dtype=torch.int64) for name in NAMES}
    axes = {name: {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")} for name in NAMES}
    torch.onnx.export(
        module,
        (),
        output,
        kwargs=inputs,
        input_names=list(NAMES),
        output_names=["logits"],
        dynamic_shapes=axes,
        dynamo=True,
        external_data=False,
    )


def make_int8(model: str, output: str) -> None:
    """Writes an ONNX model with int8 weights of one with float32 weights."""
    import onnx  # type: ignore
    from onnxruntime import quantization  # type: ignore

    # What torch.onnx tells of the shapes within does not hold; without it, they are inferred.
    bare = f"{output}.bare"
    graph = onnx.load(model)
    del graph.graph.value_info[:]
    onnx.save(graph, bare)
    quantization.quantize_dynamic(bare, output, weight_type=quantization.QuantType.QInt8)
    os.remove(bare)


def make_openvino(model: str, output: str) -> None:
    """Writes a model of OpenVINO, with float32 weights, of one of ONNX."""
    import openvino  # type: ignore

    openvino.save_model(openvino.convert_model(model), output, compress_to_fp16=False)


def open_torch(model: str, precision: str) -> Logits:
    """Returns what computes logits with torch, eagerly."""
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count() or 1)
    module = transformers.BertForSequenceClassification.from_pretrained(
        model, dtype=getattr(torch, precision)
    ).eval()

    def logits(ids: Ids) -> np.ndarray:
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(values) for name, values in ids.items()}
            return module(**tensors).logits.float().numpy()

    return logits


def open_onnxruntime(model: str, precision: str) -> Logits:
    """Returns what computes logits with ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count() or 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda ids: session.run(["logits"], dict(ids))[0]


def open_openvino(model: str, precision: str) -> Logits:
    """Returns what computes logits with OpenVINO."""
    import openvino

    hints = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": os.cpu_count() or 1,
        "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[precision],
    }
    compiled = openvino.Core().compile_model(model, "CPU", hints)
    return lambda ids: compiled(dict(ids))[0]


PROGRAMS = {
    "torch": open_torch,
    "onnxruntime": open_onnxruntime,
    "openvino": open_openvino,
}
MAKERS = {"onnx": make_onnx, "int8": make_int8, "openvino": make_openvino}


def main() -> None:
    """Makes a model, or serves predictions."""
    setting = worker.read_setting()
    if setting.get("make") == "transformers":
        make_transformers(setting["output"], setting)
        return
    if "make" in setting:
        MAKERS[setting["make"]](setting["model"], setting["output"])
        return
    logits = PROGRAMS[setting["program"]](setting["model"], setting["precision"])

    def predict_ids(inputs: Ids) -> np.ndarray:
        values = (inputs[name].astype(np.int64) for name in prediction_worker.IDS)
        return logits(dict(zip(NAMES, values, strict=True)))

    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast(vocab=setting["vocab_file"], do_lower_case=True)

    def predict_texts(inputs: Sequence[str]) -> list[str]:
        encoded = tokenizer(
            list(inputs),
            padding=True,
            truncation=True,
            max_length=prediction_worker.MAX_LENGTH,
            return_tensors="np",
        )
        values = {name: np.asarray(encoded[name], np.int64) for name in NAMES}
        return [LABELS[number] for number in logits(values).argmax(axis=-1).tolist()]

    prediction_worker.serve(setting["cases"], {"ids": predict_ids, "texts": predict_texts})


if __name__ == "__main__":
    main()
