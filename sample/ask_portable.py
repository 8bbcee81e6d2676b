"""Asks an exported classifier about texts: `--export_format=onnx`, or tflite.

    python sample/ask_portable.py my_remarks/onnx 'One text.' 'Another text.'

Needs onnxruntime, or ai-edge-litert; and of this project tokenization.py and the exported folder.
"""

import json
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tokenization

folder, *texts = sys.argv[1:] or [""]
if not os.path.exists(os.path.join(folder, "task.json")):
    sys.exit(
        f"The first argument must be the folder of an export, with task.json. Received {folder!r}."
    )
if not texts:
    sys.exit("Texts must follow the folder. Received none.")
with open(os.path.join(folder, "task.json"), encoding="utf-8") as file:
    task = json.load(file)
kind = task.get("task", {})
if kind.get("task_type") != "classification" or kind["is_pair"]:
    sys.exit("This sample asks classifiers of single texts, with one label each.")
if "truncation" in task:
    sys.exit(f"This sample cuts texts at their ends. The model has {task['truncation']!r}.")
vocabulary = os.path.join(folder, "vocab.txt")
# How the tokenizer differs from the original's, which few models' does.
options = dict(task.get("tokenizer", {}))
options["added_tokens"] = [
    tokenization.AddedToken.from_dict(token) for token in options.get("added_tokens", [])
]
tokenizer = tokenization.FullTokenizer(vocabulary, task["do_lower_case"], **options)
rows = []
numbers = []
room, stride = task["max_seq_length"] - 2, task.get("doc_stride")
for number, text in enumerate(texts):
    tokens = tokenizer.tokenize(text)
    # A model that was trained with --doc_stride reads a long text in windows.
    starts = range(0, max(len(tokens) - room, 0) + stride, stride) if stride else [0]
    for start in starts[: task.get("max_windows")]:
        packed, _ = tokenization.pack(tokens[start:], [], max_length=room + 2)
        rows.append(tokenizer.convert_tokens_to_ids(packed))
        numbers.append(number)
longest = max(map(len, rows))
ids = np.array([row + [0] * (longest - len(row)) for row in rows], np.int32)
mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows], np.int32)
inputs = {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids)}

if os.path.exists(os.path.join(folder, "model.onnx")):
    import onnxruntime

    session = onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"))
    [logits] = session.run(["logits"], inputs)
else:
    from ai_edge_litert.interpreter import Interpreter

    model = Interpreter(os.path.join(folder, "model.tflite")).get_signature_runner()
    logits = model(**inputs)["logits"]

pool = np.max if task.get("window_pooling") == "max" else np.mean
logits = np.stack([pool(logits[np.array(numbers) == n], axis=0) for n in range(len(texts))])
# A calibrated model has a temperature.
logits = logits / task.get("temperature", 1.0)
chances = np.exp(logits - logits.max(axis=1, keepdims=True))
chances /= chances.sum(axis=1, keepdims=True)
for text, row in zip(texts, chances, strict=True):
    print(f"{task['task']['labels'][row.argmax()]} ({row.max():.1%} sure): {text}")
