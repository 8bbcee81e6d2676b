"""The bodies of requests and answers in TensorFlow Serving's REST API.

A request has `instances`, a list of rows, or `inputs`, a column for each field; the answer has
`predictions`, an answer a row, or `outputs`, a column for each name of what an answer holds.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert.serving.served import DEFAULT, Served, Signature
from bert.tasks.examples import LISTS, InputRow, num_sequences

_KEYS = ("signature_name", "instances", "inputs")
_SHOWN = 80


@dataclasses.dataclass(frozen=True)
class Question:
    """The content of a request.

    Attributes:
      signature: The name of the requested signature.
      rows: The inputs.
      key: The key of the inputs in the body.
      format: Returns the body with the answers.
      model: The name of the model, where the body has one.
    """

    signature: str
    rows: Sequence[InputRow]
    key: str
    format: Callable[[Sequence[Mapping[str, Any]]], Any]
    model: str | None = None

    @property
    def num_inputs(self) -> int:
        """The number of inputs; each ending counts as one."""
        return sum(map(num_sequences, self.rows))

    @property
    def num_characters(self) -> int:
        """The number of characters of all texts."""
        texts = [text for row in self.rows for text in row.values()]
        return sum(len(text) if isinstance(text, str) else sum(map(len, text)) for text in texts)


# From a body to a question, whose inputs are not checked yet.
Parse = Callable[[Any, Served], Question]


def _as_rows(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"predictions": answers}


def _as_columns(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"outputs": {name: [each[name] for each in answers] for name in answers[0]}}


def read_question(
    body: bytes, parse: Parse, served: Served, max_inputs: int, max_characters: int | None = None
) -> Question:
    """Returns the content of a request.

    Args:
      body: The body, JSON.
      parse: Reads the form of the body.
      served: The model with its signatures.
      max_inputs: Maximum rows, or endings in all rows.
      max_characters: Maximum characters of each text; None for any number.

    Raises:
      ValueError: where the body is malformed.
    """
    question = parse(_read_json(body), served)
    signature = served.signatures[question.signature]
    _check_count(question.rows, question.key, max_inputs)
    read = [
        _read_row(row, number, signature, max_characters)
        for number, row in enumerate(question.rows)
    ]
    question = dataclasses.replace(question, rows=read)
    if question.num_inputs > max_inputs:
        raise ValueError(
            f"All rows must have at most {max_inputs} endings together. Received "
            f"{question.num_inputs}."
        )
    return question


def parse_predict(request: Any, served: Served) -> Question:
    """Returns the content of a request of TensorFlow Serving's REST API.

    Raises:
      ValueError: where the body is malformed.
    """
    if not isinstance(request, dict) or len({"instances", "inputs"} & request.keys()) != 1:
        example = f'{{"instances": [{json.dumps(dict(served.example))}]}}'
        raise ValueError(
            "The body must be an object with either `instances`, a list of rows, or `inputs`, a "
            f"list for each field, such as {example}. Received {shown(request)}."
        )
    check_keys(request, _KEYS)
    name = request.get("signature_name", DEFAULT) or DEFAULT
    signature = find_signature(name, served)
    if "inputs" in request:
        return Question(name, turn(request["inputs"], signature), "inputs", _as_columns)
    return Question(name, request["instances"], "instances", _as_rows)


def check_keys(request: Mapping[str, Any], known: Sequence[str]) -> None:
    """Checks that a body has no key that would be ignored."""
    if unknown := sorted(request.keys() - set(known)):
        raise ValueError(
            f"The body must have no other keys than {', '.join(known)}. Received {shown(unknown)}."
        )


def find_signature(name: Any, served: Served) -> Signature:
    """Returns the signature of a name; raises `ValueError` where there is none."""
    if not isinstance(name, str) or name not in served.signatures:
        raise ValueError(
            f"`signature_name` must be one of {', '.join(sorted(served.signatures))}. Received "
            f"{shown(name)}."
        )
    return served.signatures[name]


def _read_json(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is no UTF-8"
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        reason = f"at {where}: {error.msg.lower()}" if body.strip() else "it is empty"
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError:
        reason = "a number has too many digits"
    raise ValueError(f"The body must be JSON in UTF-8. Received {len(body)} bytes: {reason}.")


def shown(value: Any) -> str:
    """Returns a value of any depth and size for a message, truncated."""
    if isinstance(value, dict):
        names = ", ".join(shown(name) for name in list(value)[:5])
        return f"an object with the keys {names}"[: 2 * _SHOWN] if names else "an empty object"
    if isinstance(value, list) and not all(isinstance(each, str) for each in value):
        return f"a list of {len(value)}" if value else "an empty list"
    text = json.dumps(value[:3] if isinstance(value, list) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _check_count(rows: Any, key: str, limit: int) -> None:
    if not isinstance(rows, list) or not 1 <= len(rows) <= limit:
        received = f"{len(rows)} of them" if isinstance(rows, list) else shown(rows)
        raise ValueError(
            f"`{key}` must have at least one and at most {limit} rows. Received {received}."
        )


def turn(inputs: Any, signature: Signature) -> list[dict[str, Any]]:
    """Returns the rows of columns."""
    required = signature.required
    if isinstance(inputs, list) and len(required) == 1:
        inputs = {required[0]: inputs}
    if not isinstance(inputs, dict) or not all(isinstance(each, list) for each in inputs.values()):
        raise ValueError(
            f"`inputs` must be an object with a list for {_named(signature)}. Received "
            f"{shown(inputs)}."
        )
    if len({len(column) for column in inputs.values()}) > 1:
        sizes = [f"{len(column)} as {shown(name)}" for name, column in list(inputs.items())[:5]]
        raise ValueError(
            "The lists of `inputs` must be of the same length. Received "
            f"{', '.join(sizes)[: 2 * _SHOWN]}."
        )
    columns = zip(*inputs.values(), strict=True)
    return [dict(zip(inputs, values, strict=True)) for values in columns]


def _named(signature: Signature) -> str:
    remark = {name: ", which may be absent" for name in signature.optional}
    return " and ".join(f"{name!r}{remark.get(name, '')}" for name in signature.fields)


def _read_row(row: Any, number: int, signature: Signature, max_characters: int | None) -> InputRow:
    required = signature.required
    if len(required) == 1 and not isinstance(row, dict):
        row = {required[0]: row}
    place = f"Input {number}, counted from 0,"
    names = row.keys() if isinstance(row, dict) else set()
    if not set(required) <= names or not names <= set(signature.fields):
        raise ValueError(
            f"{place} must be an object with the keys {_named(signature)}. Received {shown(row)}."
        )
    for name, value in row.items():
        texts = value if name in LISTS else [value]
        if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
            kind = "a list of texts" if name in LISTS else "text"
            raise ValueError(f"{place} must have {kind} as {name!r}. Received {shown(value)}.")
        _check_texts(texts, place, name, max_characters)
    return dict(row)


def _check_texts(texts: Sequence[str], place: str, name: str, max_characters: int | None) -> None:
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{place} must have Unicode text as {name!r}. Received half a character, "
            f"\\u{ord(error.object[error.start]):04x}."
        ) from None
    longest = max(map(len, texts), default=0)
    if max_characters is not None and longest > max_characters:
        raise ValueError(
            f"{place} must have at most {max_characters} characters as {name!r}. Received "
            f"{longest}."
        )


def status(served: Served) -> dict[str, Any]:
    """Returns the body of the status of a model."""
    fine = {"error_code": "OK", "error_message": ""}
    version = {"version": str(served.version), "state": "AVAILABLE", "status": fine}
    return {"model_version_status": [version]}


def metadata(served: Served) -> dict[str, Any]:
    """Returns the body of the metadata of a model: its signatures and its kind."""
    signatures = {
        name: {
            "inputs": {
                field: _describe(field, ("DT_STRING", 1 + (field in LISTS)))
                for field in signature.fields
            },
            "outputs": {
                name: _describe(name, types_of(signature).get(name)) for name in signature.outputs
            },
            "method_name": "tensorflow/serving/predict",
        }
        for name, signature in served.signatures.items()
    }
    return {
        "model_spec": {
            "name": served.name,
            "signature_name": "",
            "version": str(served.version),
        },
        "metadata": {"signature_def": {"signature_def": signatures}, "kind": served.kind},
    }


# The values of answers that are tensors: type, and number of dimensions of all answers together.
# Other values are objects or lists of objects, which the format cannot describe.
_OUTPUTS = {
    "label": ("DT_STRING", 1),
    "labels": ("DT_STRING", 2),
    "score": ("DT_FLOAT", 1),
    "answer": ("DT_STRING", 1),
    "start": ("DT_INT64", 1),
    "end": ("DT_INT64", 1),
    "probability": ("DT_FLOAT", 1),
    "null_odds": ("DT_FLOAT", 1),
    "ending": ("DT_STRING", 1),
    "vector": ("DT_FLOAT", 2),
    "pseudo_log_likelihood": ("DT_FLOAT", 1),
    "num_tokens": ("DT_INT64", 1),
    "perplexity": ("DT_FLOAT", 1),
}
# Values of answers about numbered endings instead of named labels.
_OF_ENDINGS = {"label": ("DT_INT64", 1), "probabilities": ("DT_FLOAT", 2)}


def types_of(signature: Signature) -> Mapping[str, tuple[str, int]]:
    """Returns type and number of dimensions of those outputs that are tensors."""
    return {**_OUTPUTS, **(_OF_ENDINGS if "ending" in signature.outputs else {})}


def _describe(name: str, tensor: tuple[str, int] | None) -> dict[str, Any]:
    """Returns a field or an output as TensorFlow Serving has it."""
    dtype, rank = tensor or ("DT_INVALID", 0)
    return {
        "dtype": dtype,
        "tensor_shape": {
            "dim": [{"size": "-1", "name": ""}] * rank,
            "unknown_rank": tensor is None,
        },
        "name": name,
    }
