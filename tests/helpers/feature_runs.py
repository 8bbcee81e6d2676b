"""What tests of several modules share of `extract_features`."""

import numpy as np

import extract_features
import modeling
from bert.tasks.features import Extractor
from bert.weights import saving

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "##s", "."]


LINES = ["the cat sat on the mat .", "the cats ||| the mat .", "", "sat", "the mats sat . " * 9]


def make_settings(tmp_path, config):
    (tmp_path / "bert_config.json").write_text(config.to_json_string())
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    (tmp_path / "text.txt").write_text("".join(f"{line}\n" for line in LINES))
    extractor = Extractor(modeling.BertModel(config), [-1], "none")
    weights = {each.path: np.asarray(each) * 20 for each in extractor.model.weights}
    saving.save_tensors(str(tmp_path / "bert_model.ckpt"), weights)

    def make(**changes):
        return extract_features.Settings(
            **{
                "input_file": str(tmp_path / "text.txt"),
                "output_file": str(tmp_path / "out"),
                "bert_config_file": str(tmp_path / "bert_config.json"),
                "init_checkpoint": str(tmp_path / "bert_model.ckpt"),
                "vocab_file": str(tmp_path / "vocab.txt"),
                "layers": "-1,-2",
                "max_seq_length": 16,
                "batch_size": 2,
                "overwrite": True,
                **changes,
            }
        )

    return make
