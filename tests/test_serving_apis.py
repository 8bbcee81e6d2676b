"""Embeddings of OpenAI, reranking, and KServe's version 2, asked of a server."""

import base64
import dataclasses
import json
import math
import re

import numpy as np
import pytest
from helpers.served_models import (
    TASKS,
    approximately,
    fetch,
    load_pretrained,
    make_model,
    rows_of,
    served,
)

from bert.serving import apis
from bert.serving.options import Limits
from bert.serving.served import DEFAULT, Served, Signature, serve


@pytest.fixture(scope="module")
def single():
    with served(make_model("labels"), Limits(max_inputs=3)) as server:
        yield server


@pytest.fixture(scope="module")
def paired():
    with served(make_model("pairs"), Limits(max_inputs=3)) as server:
        yield server


TEXTS = ["a b c", "red", "d " * 40]


def test_embeddings_are_the_vectors_of_encode(single):
    model = make_model("labels")
    body = {"input": TEXTS, "model": "mine", "user": "u", "dimensions": None}
    told = fetch(single, "/v1/embeddings", body)
    assert told.status == 200
    vectors = [each.pop("embedding") for each in told.body["data"]]
    np.testing.assert_allclose(vectors, model.encode(TEXTS), rtol=1e-4, atol=1e-5)
    assert told.body["data"] == [{"object": "embedding", "index": i} for i in range(3)]
    assert (told.body["object"], told.body["model"]) == ("list", "mine")
    # With [CLS] and [SEP]; the last text is truncated.
    assert told.body["usage"] == {"prompt_tokens": 5 + 3 + 32, "total_tokens": 40}
    (alone,) = fetch(single, "/v1/embeddings", {"input": "red"}).body["data"]
    (packed,) = fetch(single, "/v1/embeddings", {"input": "red", "encoding_format": "base64"}).body[
        "data"
    ]
    values = np.frombuffer(base64.b64decode(packed["embedding"]), "<f4")
    np.testing.assert_array_equal(values, np.float32(alone["embedding"]))


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"input": [[1, 2]]}, 400, "`input` must be a text or a list of texts; tokens"),
        ({"input": [1, 2]}, 400, "`input` must be a text or a list of texts; tokens"),
        ({"input": "a", "dimensions": 3}, 400, 'no other keys than input.*\\["dimensions"\\]'),
        ({"input": "a", "encoding_format": "int8"}, 400, "must be float or base64"),
        ({"input": "a", "model": "ada"}, 404, "The model must be 'mine'. Received 'ada'"),
        ({"input": []}, 400, "at least one and at most 3"),
        ({"input": ["a"] * 4}, 400, "`input` must have at least one and at most 3"),
        ({"model": "mine"}, 400, "must be an object with the key 'input'"),
        (b"{", 400, "must be JSON"),
        (None, 405, "must be asked by POST"),
    ],
)
def test_errors_of_embeddings_have_the_form_of_openai(single, body, status, message):
    told = fetch(single, "/v1/embeddings", body)
    assert told.status == status
    error = told.body["error"]
    assert re.search(message, error["message"])
    assert error == error | {"type": "invalid_request_error", "param": None, "code": None}


def test_a_failure_of_the_server_is_no_fault_of_a_request_for_embeddings(log):
    def fail(rows, check):
        raise RuntimeError("a secret of the server")

    offered = serve(make_model("labels"), "mine", 1)
    encode = dataclasses.replace(offered.signatures["encode"], answer=fail)
    offered = dataclasses.replace(offered, signatures={**offered.signatures, "encode": encode})
    with served(offered) as server:
        told = fetch(server, "/v1/embeddings", {"input": "a"})
    assert (told.status, told.body["error"]["type"]) == (500, "server_error")
    assert "secret" not in told.body["error"]["message"] and "secret" in log.text


def scores_of(name, label=None):
    rows = [{"text_a": "red", "text_b": text} for text in TEXTS]
    answers = make_model(name).predict(rows)
    return [answer["probabilities"][label] if label else answer["score"] for answer in answers]


def test_texts_are_sorted_by_the_probability_of_the_second_label(paired):
    scores = scores_of("pairs", "yes")
    order = sorted(range(3), key=lambda number: -scores[number])
    assert order != [0, 1, 2]
    body = {"query": "red", "documents": [TEXTS[0], {"text": TEXTS[1]}, TEXTS[2]], "top_n": 2}
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        told = fetch(paired, path, {**body, "model": "mine", "return_documents": True})
        assert told.body["results"] == [
            {
                "index": number,
                "relevance_score": approximately(scores[number]),
                "document": {"text": TEXTS[number]},
            }
            for number in order[:2]
        ]
    expected = [{"index": number, "score": approximately(scores[number])} for number in order]
    body = {"query": "red", "texts": TEXTS, "raw_scores": False, "truncate": True}
    assert fetch(paired, "/rerank", body).body == expected
    told = fetch(paired, "/rerank", {**body, "return_text": True, "top_n": 1}).body
    assert told == [{**expected[0], "text": TEXTS[order[0]]}]


def test_the_score_of_a_pair_is_that_of_the_label_which_is_meant():
    assert serve(make_model("number"), "m", 1).score_pair({"score": 0.5}) == 0.5
    model = make_model("pairs")
    answer = {"probabilities": {"entailment": 0.1, "not_entailment": 0.2, "1": 0.3, "0": 0.4}}
    for labels, given, score in (
        (["entailment", "not_entailment"], None, 0.1),
        (["entailment", "not_entailment"], "not_entailment", 0.2),
        (["1", "0"], None, 0.3),
        (["1", "entailment", "0"], None, 0.1),
    ):
        model.labels = labels
        assert serve(model, "m", 1, rerank_label=given).score_pair(answer) == score
    model.labels = ["0", "1", "2"]
    assert serve(model, "m", 1).score_pair is None
    for name in ("pairs", "labels"):
        with pytest.raises(ValueError, match="`rerank_label` must be a label of a classifier of"):
            serve(make_model(name), "m", 1, rerank_label="relevant")
    for model in (make_model("labels"), make_model("choices"), load_pretrained()):
        assert serve(model, "m", 1).score_pair is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"query": "a"}, "either `documents` or `texts`"),
        ({"query": "a", "documents": ["a"], "texts": ["a"]}, "either `documents` or `texts`"),
        ({"texts": ["a"]}, "the key 'query'"),
        ({"query": ["a"], "texts": ["a"]}, "must have text as 'text_a'"),
        ({"query": "a", "texts": [{"text": "a"}]}, "`texts` must be a text or a list of texts"),
        ({"query": "a", "documents": [{"body": "a"}]}, "`documents` must be a text or"),
        ({"query": "a", "texts": ["a"], "top_n": 0}, "`top_n` must be a number, at least 1"),
        ({"query": "a", "texts": ["a"], "top_n": True}, "`top_n` must be a number"),
        ({"query": "a", "texts": ["a"], "raw_scores": True}, "`raw_scores` must be false"),
        ({"query": "a", "texts": ["a"], "truncate": False}, "`truncate` must be true"),
        ({"query": "a", "documents": ["a"], "rank_fields": ["x"]}, "no other keys"),
        ({"query": "a", "texts": ["a"] * 4}, "at most 3"),
    ],
)
def test_what_is_no_request_for_scores_is_refused(paired, body, message):
    told = fetch(paired, "/rerank", body)
    assert told.status == 400
    assert re.search(message, told.body["error"])


def test_models_without_vectors_or_scores_say_so(single):
    told = fetch(single, "/rerank", {"query": "a", "texts": ["a"]})
    assert told.status == 400
    assert "must be a classifier or a regression of pairs" in told.body["error"]
    offered = serve(make_model("labels"), "mine", 1)
    del offered.signatures["encode"]
    with served(offered) as server:
        told = fetch(server, "/v1/embeddings", {"input": "a"})
        assert (told.status, "no vectors" in told.body["error"]["message"]) == (400, True)


def tensors(rows):
    """Returns rows as inputs of KServe; rows of fewer endings are padded."""
    inputs = []
    for name in rows[0]:
        data = [row[name] for row in rows]
        shape = [len(rows)]
        if isinstance(data[0], list):
            shape.append(max(map(len, data)))
            data = [[*row, *[""] * (shape[1] - len(row))] for row in data]
        inputs.append({"name": name, "shape": shape, "datatype": "BYTES", "data": data})
    return inputs


def test_kserve_is_answered_as_predict_with_tensors():
    """Every output of every kind is a tensor of the type and shape that the metadata promise."""

    for name in TASKS:
        model = make_model(name)
        rows = rows_of(model.fields)
        expected = model.predict(rows)
        with served(model) as server:
            described = fetch(server, "/v2/models/mine").body
            assert described["versions"] == ["3"]
            told = fetch(server, "/v2/models/mine/infer", {"id": "\ud800", "inputs": tensors(rows)})
            assert told.status == 200, told.body
        assert [each["name"] for each in described["inputs"]] == [*model.fields]
        assert (told.body["model_name"], told.body["model_version"]) == ("mine", "3")
        assert told.body["id"] == "\ud800"
        promised = {each["name"]: each for each in described["outputs"]}
        found = {each["name"]: each for each in told.body["outputs"]}
        assert found.keys() == promised.keys() == expected[0].keys()
        for key, tensor in found.items():
            assert tensor["datatype"] == promised[key]["datatype"]
            assert len(tensor["shape"]) == len(promised[key]["shape"])
            assert len(tensor["data"]) == np.prod(tensor["shape"])
            values = [answer[key] for answer in expected]
            read = np.array(tensor["data"], object).reshape(tensor["shape"]).tolist()
            if key == "probabilities":
                if isinstance(values[0], dict):
                    labels = json.loads(tensor["parameters"]["labels"])
                    values = [[value[label] for label in labels] for value in values]
                else:
                    read = [row[: len(value)] for row, value in zip(read, values, strict=True)]
            elif tensor["datatype"] == "INT64":
                values = [-1 if value is None else value for value in values]
            elif not all(isinstance(value, str) for value in values):
                read = list(map(json.loads, read)) if tensor["datatype"] == "BYTES" else read
            assert read == approximately(values), (name, key)


def test_a_missing_place_is_minus_one_for_kserve():
    """As in the SavedModel of a model that may find no answer."""
    signature = Signature(("text",), lambda rows, check: [], ("answer", "start"))
    offered = Served("m", 1, "question_answering", {DEFAULT: signature}, {"text": "a"})
    question = apis.parse_infer({"inputs": tensors([{"text": "a"}] * 2)}, offered)
    answers = [{"answer": "", "start": None}, {"answer": "a", "start": 0}]
    assert [each["data"] for each in question.format(answers)["outputs"]] == [["", "a"], [-1, 0]]


def test_only_what_is_behind_the_last_text_of_a_row_is_padding():
    signature = Signature(("context", "endings"), lambda rows, check: [], ("label",))
    offered = Served("m", 1, "multiple_choice", {DEFAULT: signature}, {"context": "a"})
    rows = [
        {"context": "a", "endings": ["b", "", "c", "d"]},
        {"context": "", "endings": ["", "e"]},
        {"context": "f", "endings": ["g"]},
    ]
    assert apis.parse_infer({"inputs": tensors(rows)}, offered).rows == rows


@pytest.mark.parametrize("rows", [1, 10**18])
def test_rows_without_texts_are_no_tensor(rows):
    signature = Signature(("context", "endings"), lambda rows, check: [], ("label",))
    offered = Served("m", 1, "multiple_choice", {DEFAULT: signature}, {"context": "a"})
    empty = {"name": "endings", "shape": [rows, 0], "datatype": "BYTES", "data": []}
    with pytest.raises(ValueError, match=r"the `shape` \[rows, texts\]"):
        apis.parse_infer({"inputs": [empty]}, offered)


def test_kserve_selects_outputs_and_signatures(single):
    inputs = tensors([{"text_a": text} for text in TEXTS])
    path = "/v2/models/mine/versions/3/infer"
    told = fetch(single, path, {"inputs": inputs, "outputs": [{"name": "label"}]}).body
    assert [each["name"] for each in told["outputs"]] == ["label"]
    told = fetch(single, path, {"inputs": inputs, "parameters": {"signature_name": "encode"}}).body
    vector, num_tokens = told["outputs"]
    assert (vector["datatype"], vector["shape"]) == ("FP32", [3, 8])
    found = np.reshape(vector["data"], vector["shape"])
    np.testing.assert_allclose(found, make_model("labels").encode(TEXTS), rtol=1e-4, atol=1e-5)
    assert num_tokens["data"] == [5, 3, 32]
    flat = {**inputs[0], "shape": [3, 1], "data": [[text] for text in TEXTS]}
    assert fetch(single, path, {"inputs": [flat]}).status == 200


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"datatype": "FP32"}, "must have the datatype BYTES"),
        ({"shape": [2]}, r"`shape` \[rows\]. Received \"BYTES\" and the shape \"\[2\]\""),
        ({"shape": [1, 3]}, "`shape`"),
        ({"shape": "3"}, "`shape`"),
        ({"shape": [10**30]}, "`shape`"),
        ({"shape": [10**18, 0], "data": []}, "`shape`"),
        ({"data": [["a", "b"], ["c"]]}, "`shape`|must have text"),
        ({"data": [1, 2, 3]}, "must have text as 'text_a'"),
        ({"data": None}, "texts as `data`, not binary"),
        ({"name": "text"}, "must be an object with the keys 'text_a'"),
        ({"name": ["text_a"]}, "must be an object with the keys 'text_a'"),
    ],
)
def test_a_tensor_of_another_form_is_refused(single, change, message):
    (tensor,) = tensors([{"text_a": text} for text in TEXTS])
    told = fetch(single, "/v2/models/mine/infer", {"inputs": [tensor | change]})
    assert told.status == 400, told.body
    assert re.search(message, told.body["error"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inputs": ["a"]}, "`inputs` must be a list of objects"),
        ({"inputs": []}, "at least one"),
        ({"inputs": [], "outputs": [{"name": "logits"}]}, "`outputs` must be of label"),
        ({"inputs": [], "outputs": [{"name": "label"}] * 2}, "`outputs` must each be named once"),
        ({"inputs": [], "parameters": {"signature_name": "x"}}, "`signature_name` must be one of"),
        ({"instances": ["a"]}, "the key 'inputs'"),
        ({"id": math.inf, "inputs": tensors([{"text_a": "a"}])}, "`id` must be finite"),
    ],
)
def test_what_is_no_request_of_kserve_is_refused(single, body, message):
    told = fetch(single, "/v2/models/mine/infer", body)
    assert told.status == 400
    assert re.search(message, told.body["error"])


def test_kserve_reports_server_and_model(single):
    assert fetch(single, "/v2").body["extensions"] == []
    assert fetch(single, "/v2/health/live").body == {"live": True}
    assert fetch(single, "/v2/health/ready").body == {"ready": True}
    for path in ("/v2/models/mine/ready", "/v2/models/mine/versions/3/ready"):
        assert fetch(single, path).body == {"name": "mine", "ready": True}
    for path in ("/v2/models/yours/ready", "/v2/models/mine/versions/4/infer"):
        assert fetch(single, path, {} if "infer" in path else None).status == 404
    for path in ("/v2/models/mine:predict", "/v1/models/mine/infer", "/v1/models/mine/ready"):
        assert fetch(single, path).status == 404


def test_metrics_count_each_api(paired):
    def count(what):
        line = re.escape(f'bert_requests_total{{status="200",what="{what}"}}')
        found = re.search(rf"^{line} (\S+)$", fetch(paired, "/metrics").body, re.M)
        return float(found[1]) if found else 0.0

    names = ("embeddings", "rerank", "v2_infer")
    before = list(map(count, names))
    fetch(paired, "/v1/embeddings", {"input": "a"})
    fetch(paired, "/rerank", {"query": "a", "texts": ["a"]})
    rows = [{"text_a": "a", "text_b": "b"}]
    fetch(paired, "/v2/models/mine/infer", {"inputs": tensors(rows)})
    assert list(map(count, names)) == [number + 1 for number in before]
