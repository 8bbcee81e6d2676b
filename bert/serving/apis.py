"""Bodies of other APIs: OpenAI's embeddings, reranking, and version 2 of KServe's inference.

Sources: the reference of OpenAI's API, "Create embeddings"; those of Cohere and of Text Embeddings
Inference for reranking; the Open Inference Protocol, inference_rest.md.
"""

import base64
import contextlib
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert.serving.rest import Question, check_keys, find_signature, shown, turn, types_of
from bert.serving.served import DEFAULT, Served, Signature
from bert.tasks.examples import LISTS

Answers = Sequence[Mapping[str, Any]]

_DATATYPES = {"DT_STRING": "BYTES", "DT_FLOAT": "FP32", "DT_INT64": "INT64"}
# Options of Text Embeddings Inference, with the only value that is computed.
_FIXED = {"raw_scores": False, "truncate": True}


def _read_object(request: Any, required: str, optional: Sequence[str]) -> dict[str, Any]:
    """Returns the values of a body, without those that are null."""
    if not isinstance(request, dict) or request.get(required) is None:
        raise ValueError(
            f"The body must be an object with the key {required!r}. Received {shown(request)}."
        )
    given = {name: value for name, value in request.items() if value is not None}
    check_keys(given, (required, *optional))
    return given


def _as_list(texts: Any, key: str) -> list[str]:
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"`{key}` must be a text or a list of texts; tokens and objects are not read. Received "
            f"{shown(texts)}."
        )
    return texts


def parse_embeddings(request: Any, served: Served) -> Question:
    """Returns the content of a request for vectors, `/v1/embeddings` of OpenAI.

    Raises:
      ValueError: where the body is malformed, or the model has no vectors.
    """
    request = _read_object(request, "input", ("model", "encoding_format", "user"))
    texts = _as_list(request["input"], "input")
    if "encode" not in served.signatures:
        raise ValueError("The model must have the signature `encode`. This one has no vectors.")
    form = request.get("encoding_format", "float")
    if form not in ("float", "base64"):
        raise ValueError(f"`encoding_format` must be float or base64. Received {shown(form)}.")

    def write(vector: Sequence[float]) -> Any:
        values = np.asarray(vector, "<f4").tobytes()
        return base64.b64encode(values).decode() if form == "base64" else vector

    def respond(answers: Answers) -> dict[str, Any]:
        num_tokens = sum(answer["num_tokens"] for answer in answers)
        return {
            "object": "list",
            "data": [
                {"object": "embedding", "index": number, "embedding": write(answer["vector"])}
                for number, answer in enumerate(answers)
            ],
            "model": served.name,
            "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
        }

    rows = [{"text_a": text} for text in texts]
    return Question("encode", rows, "input", respond, str(request.get("model", served.name)))


def parse_rerank(request: Any, served: Served) -> Question:
    """Returns the content of a request for the scores of texts with a query.

    With `documents`, the answer is as Cohere's; with `texts`, as that of Text Embeddings Inference.

    Raises:
      ValueError: where the body is malformed, or the model does not score pairs.
    """
    optional = ("documents", "texts", "top_n", "model", "return_documents", "return_text")
    request = _read_object(request, "query", (*optional, *_FIXED))
    score_pair = served.score_pair
    if score_pair is None:
        raise ValueError(
            "The model must be a classifier or a regression of pairs of texts, for which "
            "`rerank_label` gives the label of relevant texts where it is not plain. This one is "
            f"no such model: {served.kind}."
        )
    if len(keys := sorted({"documents", "texts"} & request.keys())) != 1:
        raise ValueError(f"The body must have either `documents` or `texts`. Received {keys}.")
    for name, value in _FIXED.items():
        if request.get(name, value) is not value:
            must = f"`{name}` must be {json.dumps(value)}, or absent"
            raise ValueError(f"{must}. Received {shown(request[name])}.")
    texts = request[keys[0]]
    if keys == ["documents"] and isinstance(texts, list):
        texts = [text.get("text") if isinstance(text, dict) else text for text in texts]
    texts, top_n = _as_list(texts, keys[0]), request.get("top_n", 1)
    if type(top_n) is not int or top_n < 1:
        raise ValueError(f"`top_n` must be a number, at least 1. Received {shown(top_n)}.")

    is_cohere = keys == ["documents"]

    def respond(answers: Answers) -> Any:
        scores = [score_pair(answer) for answer in answers]
        order = sorted(range(len(scores)), key=lambda number: -scores[number])
        results = []
        for number in order[: request.get("top_n")]:
            text: dict[str, Any] = {"text": texts[number]}
            text = {"document": text} if is_cohere else text
            is_wanted = request.get("return_documents" if is_cohere else "return_text")
            score = {"relevance_score" if is_cohere else "score": scores[number]}
            results.append({"index": number, **score, **(text if is_wanted else {})})
        return {"model": served.name, "results": results} if is_cohere else results

    rows = [{"text_a": request["query"], "text_b": text} for text in texts]
    return Question(DEFAULT, rows, keys[0], respond, str(request.get("model", served.name)))


def parse_infer(request: Any, served: Served) -> Question:
    """Returns the content of a request of KServe's version 2; a signature is a parameter.

    Raises:
      ValueError: where the body is malformed.
    """
    request = _read_object(request, "inputs", ("id", "parameters", "outputs"))
    try:
        # It goes back as it came.
        json.dumps(request.get("id"), allow_nan=False)
    except ValueError:
        raise ValueError(f"`id` must be finite. Received {shown(request['id'])}.") from None
    for key in ("inputs", "outputs"):
        tensors = request.get(key, [])
        if not isinstance(tensors, list) or not all(isinstance(each, dict) for each in tensors):
            raise ValueError(f"`{key}` must be a list of objects. Received {shown(tensors)}.")
    parameters = request.get("parameters", {})
    name = parameters.get("signature_name", DEFAULT) if isinstance(parameters, dict) else ""
    signature = find_signature(name, served)
    wanted = [each.get("name") for each in request.get("outputs", [])] or [*signature.outputs]
    if unknown := [each for each in wanted if each not in signature.outputs]:
        must = f"`outputs` must be of {', '.join(signature.outputs)}"
        raise ValueError(f"{must}. Received {shown(unknown[0])}.")
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"`outputs` must each be named once. Received {shown(wanted)}.")

    def respond(answers: Answers) -> dict[str, Any]:
        return {
            "model_name": served.name,
            "model_version": str(served.version),
            **({"id": request["id"]} if "id" in request else {}),
            "outputs": [
                _write_tensor(name, [answer[name] for answer in answers], signature)
                for name in wanted
            ],
        }

    columns = {str(each.get("name")): _read_tensor(each, signature) for each in request["inputs"]}
    return Question(name, turn(columns, signature), "inputs", respond)


def _read_tensor(tensor: Mapping[str, Any], signature: Signature) -> list[Any]:
    """Returns the values of the rows: texts, or for `endings` lists of texts."""
    name, shape = tensor.get("name"), tensor.get("shape")
    is_list = name in signature.fields and name in LISTS
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        values = np.array(tensor["data"], object).reshape(shape) if "data" in tensor else None
        if tensor.get("datatype") == "BYTES" and values is not None:
            if is_list and values.ndim == 2 and values.size >= len(values):
                # Rows of fewer endings are padded.
                sizes = [max(np.flatnonzero(row != ""), default=-1) + 1 for row in values]
                return [[*row[:size]] for row, size in zip(values, sizes, strict=True)]
            if not is_list and values.size == len(values):
                return values.ravel().tolist()
    raise ValueError(
        f"The input {shown(name)} must have the datatype BYTES, texts as `data`, not binary, and "
        f"the `shape` {'[rows, texts]' if is_list else '[rows]'}. Received "
        f"{shown(tensor.get('datatype'))} and the shape {shown(json.dumps(shape))}."
    )


def _datatype(name: str, signature: Signature) -> tuple[str, int]:
    """Returns the datatype and the rank of an output; JSON, a text a row, for what is no tensor."""
    types = {"probabilities": ("DT_FLOAT", 2), **types_of(signature), "labels": ("DT_STRING", 1)}
    dtype, rank = types.get(name, ("DT_STRING", 1))
    return _DATATYPES[dtype], rank


def _write_tensor(name: str, values: Sequence[Any], signature: Signature) -> dict[str, Any]:
    datatype, rank = _datatype(name, signature)
    shape, more = [len(values)], {}
    if rank == 2:
        if isinstance(values[0], dict):
            more = {"parameters": {"labels": json.dumps([*values[0]], ensure_ascii=False)}}
            values = [[*value.values()] for value in values]
        shape.append(max(map(len, values)))
        values = [value for row in values for value in (*row, *[0.0] * (shape[1] - len(row)))]
    elif datatype == "BYTES":
        write = functools.partial(json.dumps, ensure_ascii=False)
        values = [value if isinstance(value, str) else write(value) for value in values]
    elif datatype == "INT64":
        values = [-1 if value is None else value for value in values]
    return {"name": name, "datatype": datatype, "shape": shape, "data": values, **more}


def describe_model(served: Served) -> dict[str, Any]:
    """Returns the body of the metadata of a model in KServe's version 2."""
    signature = served.signatures[DEFAULT]

    def describe(name: str, datatype: str, rank: int) -> dict[str, Any]:
        return {"name": name, "datatype": datatype, "shape": [-1] * rank}

    return {
        "name": served.name,
        "versions": [str(served.version)],
        "platform": "bert",
        "inputs": [describe(name, "BYTES", 1 + (name in LISTS)) for name in signature.fields],
        "outputs": [describe(name, *_datatype(name, signature)) for name in signature.outputs],
    }
