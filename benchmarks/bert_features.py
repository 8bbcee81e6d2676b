"""Extracts features as extract_features.py does, for feature_speed.py; started by it."""

from collections.abc import Iterator

import keras
import worker

import extract_features
import modeling
import tokenization
from bert.files import vectors as files_vectors
from bert.files.texts import TextColumns, Texts
from bert.files.vectors import Features
from bert.scale import features
from bert.tasks.features import Extractor

LAYERS = [-1, -2, -3, -4]


def main() -> None:
    """Serves both measures."""
    setting = worker.read_setting()
    keras.utils.set_random_seed(0)
    tokenizer = tokenization.FullTokenizer(setting["vocab_file"])
    config = modeling.BertConfig(
        vocab_size=len(tokenizer.vocab),
        hidden_size=setting["hidden_size"],
        num_hidden_layers=setting["num_layers"],
        num_attention_heads=setting["hidden_size"] // 64,
        intermediate_size=4 * setting["hidden_size"],
        type_vocab_size=2,
    )
    settings = extract_features.Settings(
        input_file=setting["text_file"],
        output_file=setting["output_file"],
        bert_config_file="",
        init_checkpoint="none",
        vocab_file=setting["vocab_file"],
        batch_size=setting["batch_size"],
        max_seq_length=setting["length"],
    )
    extractor = Extractor(modeling.BertModel(config), LAYERS, "none")

    def extracted() -> Iterator[Features]:
        texts = Texts([settings.input_file], TextColumns(input_format="lines"))
        lines = features.Lines.of(texts, tokenizer, settings.tokens_at_most())
        features.survey(lines, config)
        return features.extract(extractor, lines, settings)

    def write_jsonl() -> None:
        with open(settings.output_file, "wb") as file:
            files_vectors.write_jsonl(file, extracted(), LAYERS, "none")

    def consume() -> None:
        for _ in extracted():
            pass

    worker.serve(
        {
            "arrays": lambda: worker.seconds(consume),
            "jsonl": lambda: worker.seconds(write_jsonl),
        }
    )


if __name__ == "__main__":
    main()
