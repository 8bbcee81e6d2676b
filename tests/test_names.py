import importlib
import pickle
import types

import pytest
from helpers.module_sources import SCRIPTS

from bert.names import serve

# Of the original's scripts; see its `import` lines and definitions.
SERVED = {
    "create_pretraining_data": {"flags", "FLAGS"},
    "extract_features": {
        "modeling",
        "tokenization",
        "InputExample",
        "model_fn_builder",
        "_truncate_seq_pair",
        "FLAGS",
    },
    "predict": {"LoadedModel", "load"},
    "run_classifier": {"modeling", "optimization", "tokenization", "create_model", "FLAGS"},
    "run_classifier_with_tfhub": {"optimization", "run_classifier", "create_model", "FLAGS"},
    "run_pretraining": {"modeling", "optimization", "gather_indexes", "flags", "FLAGS"},
    "run_squad": {"modeling", "optimization", "validate_flags_or_throw", "RawResult", "FLAGS"},
}


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_what_a_script_says_to_have_it_has(script):
    module = importlib.import_module(script)
    names = set(dir(module))
    assert SERVED.get(script, set()) | {"Settings", "define_flags", "main"} <= names
    for name in names:
        value = getattr(module, name)
        if isinstance(value, type) and value.__module__ != "__main__":
            assert pickle.loads(pickle.dumps(value)) is value
    star = {}
    exec(f"from {script} import *", star)
    assert {name for name in names if not name.startswith("_")} <= star.keys()


def test_a_name_is_that_of_its_room_and_can_be_another():
    rooms = {"json.decoder": ("JSONDecodeError", "py_scanstring as _scan"), "json": ()}
    get, names, shown = serve({"__name__": "lamp", "shade": 1}, rooms)
    decoder = importlib.import_module("json.decoder")
    assert get("JSONDecodeError") is decoder.JSONDecodeError
    assert get("_scan") is decoder.py_scanstring
    assert get("json") is importlib.import_module("json")
    assert names() == ["JSONDecodeError", "__name__", "_scan", "json", "shade"]
    assert shown == ["JSONDecodeError", "json", "shade"]


def test_a_name_that_nobody_has_is_told_as_of_any_module():
    module = types.ModuleType("lamp")
    module.__getattr__ = serve(vars(module), {"json": ()})[0]
    with pytest.raises(AttributeError, match="module 'lamp' has no attribute 'shade'"):
        _ = module.shade
    assert not hasattr(module, "py_scanstring")
