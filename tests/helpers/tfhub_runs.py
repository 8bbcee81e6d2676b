"""What tests of several modules share of `run_classifier_with_tfhub`."""

import modeling
import run_classifier

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "Red", "red", "blue", "good", "bad"]


CONFIG = modeling.BertConfig(
    vocab_size=len(WORDS),
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
    type_vocab_size=2,
)


def make_settings(folder, **changes):
    rows = [("Red blue", "yes"), ("red good", "no"), ("bad Red", "yes"), ("blue red", "no")] * 4
    text = "".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows])
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text(text)
    return run_classifier.Settings(
        **{
            "data_dir": str(folder),
            "task_name": "custom",
            "output_dir": str(folder / "out"),
            "max_seq_length": 8,
            "train_batch_size": 8,
            "num_train_epochs": 1.0,
            "do_train": True,
            "do_eval": True,
            **changes,
        }
    )
