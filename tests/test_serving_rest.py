import json

import pytest

from bert.serving import rest
from bert.serving.served import DEFAULT, Served, Signature


def answer(rows, check):
    return [{"count": len(str(row))} for row in rows]


SINGLE = Served("m", 2, "tagging", {DEFAULT: Signature(("text",), answer)}, {"text": "a"})


CHOICE = Served(
    "m",
    2,
    "multiple_choice",
    {DEFAULT: Signature(("context", "endings"), answer)},
    {"context": "a", "endings": ["a", "b"]},
)


PAIR = Served(
    "m",
    2,
    "fill_mask",
    {
        DEFAULT: Signature(("text_a", "text_b"), answer, optional=("text_b",)),
        "score": Signature(("text_a", "text_b"), answer),
    },
    {"text_a": "a"},
)


DEEP = b'{"instances": ' + b"[" * 200_000


BAD = [
    (SINGLE, b"", "must be JSON in UTF-8. Received 0 bytes: it is empty"),
    (SINGLE, b'{"instances": ["a"', "at line 1, column 19: expecting"),
    (SINGLE, b"\xff\xfe", "byte 0 is no UTF-8"),
    (SINGLE, DEEP, "nested too deeply"),
    (SINGLE, DEEP + b"]" * 200_000 + b"}", "nested too deeply"),
    (SINGLE, b'{"instances": [' + b"9" * 5000 + b"]}", "a number has too many digits"),
    (SINGLE, b"[" * 500 + b"]" * 500, "Received a list of 1."),
    (SINGLE, "text", "must be an object with either `instances`, a list of rows, or `inputs`"),
    (SINGLE, {}, r'such as \{"instances": .*\}. Received an empty object'),
    (SINGLE, {"instances": ["a"], "inputs": ["a"]}, "either `instances`"),
    (SINGLE, {"instances": ["a"], "x": 1}, 'no other keys than .*Received \\["x"\\]'),
    (SINGLE, {"instances": []}, "at least one and at most 3 rows. Received 0 of them"),
    (SINGLE, {"instances": ["a"] * 4}, "at most 3 rows. Received 4 of them"),
    (SINGLE, {"instances": "a"}, 'at most 3 rows. Received "a"'),
    (SINGLE, {"instances": {"text": "a"}}, "Received an object with the keys"),
    (SINGLE, {"instances": ["a", 7]}, "Input 1, counted from 0, must have text as 'text'.*7"),
    (SINGLE, {"instances": [None]}, "Received null"),
    (SINGLE, {"instances": [["a", "b"]]}, r'must have text as .*Received \["a", "b"\]'),
    (SINGLE, {"instances": [{"txt": "a"}]}, "must be an object with the keys 'text'"),
    (SINGLE, {"instances": [{"text": "a", "label": "b"}]}, "must be an object with the keys"),
    (SINGLE, {"instances": ["a\ud800b"]}, r"Received half a character, \\ud800"),
    (SINGLE, {"instances": ["a"], "signature_name": "x"}, "must be one of serving_default"),
    (SINGLE, {"instances": ["a"], "signature_name": [{}]}, "must be one of serving_default"),
    (SINGLE, {"inputs": 3}, "`inputs` must be an object with a list for 'text'. Received 3"),
    (SINGLE, {"inputs": {"text": "a"}}, "`inputs` must be an object with a list"),
    (SINGLE, {"inputs": {}}, "at least one and at most 3 rows. Received 0"),
    (CHOICE, {"inputs": {"context": ["a"], "endings": []}}, 'same length.*1 as "context", 0 as'),
    (CHOICE, {"instances": ["a"]}, "the keys 'context' and 'endings'"),
    (CHOICE, {"instances": [{"context": "a", "endings": "b"}]}, "a list of texts as 'endings'"),
    (CHOICE, {"instances": [{"context": "a", "endings": ["b", 1]}]}, "Received a list of 2"),
    (
        CHOICE,
        {"instances": [{"context": "a", "endings": ["b", "c"]}] * 2},
        "must have at most 3 endings together. Received 4",
    ),
    (PAIR, {"instances": [{"text_b": "a"}]}, "'text_b', which may be absent"),
    (PAIR, {"instances": ["a"], "signature_name": "score"}, "the keys 'text_a' and 'text_b'."),
]


def read(body, served=SINGLE, limit=3):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return rest.read_question(content, rest.parse_predict, served, limit)


@pytest.mark.parametrize(
    ("served", "body", "rows"),
    [
        (SINGLE, {"instances": ["a", "b"]}, [{"text": "a"}, {"text": "b"}]),
        (SINGLE, {"instances": [{"text": "a"}, "b"]}, [{"text": "a"}, {"text": "b"}]),
        (SINGLE, {"inputs": ["a", "b"]}, [{"text": "a"}, {"text": "b"}]),
        (SINGLE, {"inputs": {"text": ["a"]}, "signature_name": ""}, [{"text": "a"}]),
        (SINGLE, {"instances": ["\x00 é \U0001f600"]}, [{"text": "\x00 é \U0001f600"}]),
        (
            CHOICE,
            {"inputs": {"endings": [["x", "y"]], "context": ["c"]}},
            [{"context": "c", "endings": ["x", "y"]}],
        ),
        (PAIR, {"instances": ["a", {"text_a": "b", "text_b": "c"}]}, None),
        (PAIR, {"inputs": {"text_a": ["a"], "text_b": ["b"]}, "signature_name": "score"}, None),
    ],
)
def test_rows_and_columns_are_read(served, body, rows):
    question = read(body, served)
    if rows is None:
        rows = [
            row if isinstance(row, dict) else {"text_a": row} for row in body.get("instances", [])
        ] or [{"text_a": "a", "text_b": "b"}]
    assert question.rows == rows
    assert question.key in body
    assert question.signature == (body.get("signature_name") or DEFAULT)


def test_answers_have_the_layout_of_the_request():
    answers = [{"label": "a", "score": 1}, {"label": "b", "score": 2}]
    assert read({"instances": ["a", "b"]}).format(answers) == {"predictions": answers}
    columns = {"label": ["a", "b"], "score": [1, 2]}
    assert read({"inputs": ["a", "b"]}).format(answers) == {"outputs": columns}


def test_characters_are_counted():
    row = {"context": "abc", "endings": ["d", "ef"]}
    question = read({"instances": [row, row]}, CHOICE, limit=4)
    assert (question.num_characters, question.num_inputs) == (12, 4)


def test_a_text_may_have_as_many_characters_as_are_allowed():
    row = {"context": "abc", "endings": ["d", "efgh"]}
    body = json.dumps({"instances": [row]}).encode()
    for limit in (None, 4):
        assert rest.read_question(body, rest.parse_predict, CHOICE, 4, limit).rows == [row]
    with pytest.raises(ValueError, match=r"Input 0, .* at most 3 characters as 'endings'.*4"):
        rest.read_question(body, rest.parse_predict, CHOICE, 4, 3)


@pytest.mark.parametrize(("served", "body", "message"), BAD)
def test_malformed_bodies_are_refused_in_a_line(served, body, message):
    with pytest.raises(ValueError, match=message) as caught:
        read(body, served)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    str(caught.value).encode()


def test_text_of_a_client_is_truncated_in_messages():
    long = "x" * 9999
    many = {f"{number}{long}": ["a"] * number for number in range(9)}
    for body in (
        {"instances": [[long]]},
        {long: 1},
        {"signature_name": long},
        {"inputs": {long: [], "text": ["a"]}},
        {"inputs": many},
    ):
        with pytest.raises(ValueError, match="must") as caught:
            read(body)
        assert len(str(caught.value)) < 500


def test_metadata_describes_inputs_and_version():
    told = rest.metadata(CHOICE)
    assert told["model_spec"] == {"name": "m", "signature_name": "", "version": "2"}
    inputs = told["metadata"]["signature_def"]["signature_def"][DEFAULT]["inputs"]
    dims = {name: len(each["tensor_shape"]["dim"]) for name, each in inputs.items()}
    assert dims == {"context": 1, "endings": 2}
    (version,) = rest.status(CHOICE)["model_version_status"]
    assert (version["version"], version["state"]) == ("2", "AVAILABLE")
