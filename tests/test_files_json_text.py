import pytest

from bert.files.paths import parse_json


@pytest.mark.parametrize("text", ['{"a": [1, "\u00e9"]}', b'{"a": [1, "\xc3\xa9"]}'])
def test_json_is_read_from_text_and_from_bytes(text):
    assert parse_json(text) == {"a": [1, "\u00e9"]}


@pytest.mark.parametrize("text", ["", "{", b"\xff", "[" * 100_000, b'{"a":' * 100_000])
def test_what_is_no_json_or_too_deep_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"Expecting|decode|recursion"):
        parse_json(text)
