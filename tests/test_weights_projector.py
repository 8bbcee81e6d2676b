import json

import numpy as np
import pytest

from bert.weights import checkpoint
from bert.weights.projector import WORDS_FILE, projector_files

TABLE = "bert/embeddings/word_embeddings"


def test_every_row_has_one_label_and_none_is_blank():
    vocabulary = "[PAD]\nthe\n \n a\tb\u2028c\r\n\u00e9".encode()
    words = projector_files(vocabulary, 7)[WORDS_FILE].decode()
    assert words.split("\n") == ["[PAD]", "the", "[2]", "a b c", "\u00e9", "[5]", "[6]", ""]
    assert projector_files(vocabulary, 2)[WORDS_FILE] == b"[PAD]\nthe\n"


def test_tensorboard_shows_the_table_with_its_words(tmp_path):
    projector = pytest.importorskip("tensorboard.plugins.projector.projector_plugin")
    base_plugin = pytest.importorskip("tensorboard.plugins.base_plugin")
    test = pytest.importorskip("werkzeug.test")
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    checkpoint.save_tensors(str(tmp_path / "model.ckpt-2"), {TABLE: table})
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"\n')
    for name, text in projector_files(b"[PAD]\nthe\ncat\n", 4).items():
        (tmp_path / name).write_bytes(text)
    plugin = projector.ProjectorPlugin(base_plugin.TBContext(logdir=str(tmp_path)))
    apps = plugin.get_plugin_apps()

    def get(route, **query):
        return test.Client(apps[route]).get("/", query_string=query).data

    assert json.loads(get("/runs")) == ["."]
    (found,) = [
        each for each in json.loads(get("/info", run="."))["embeddings"] if "metadataPath" in each
    ]
    assert found["tensorName"].partition(":")[0] == TABLE
    assert found["tensorShape"] == [4, 3]
    name = found["tensorName"]
    values = np.frombuffer(get("/tensor", run=".", name=name), np.float32)
    np.testing.assert_array_equal(values.reshape(4, 3), table)
    assert get("/metadata", run=".", name=name) == b"[PAD]\nthe\ncat\n[3]\n"
