"""What tests of several modules share of `serving_rest`."""

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
