"""Extracts features with `transformers` for feature_speed.py; started by it.

Runs in an environment of its own, with torch and transformers and without this project's packages.
"""

import json
from collections.abc import Iterator
from typing import Any

import torch  # type: ignore[import-not-found]
import transformers  # type: ignore[import-not-found]
import worker


def make_model(setting: dict[str, Any], vocab_size: int) -> transformers.BertModel:
    """Returns a model of that size at random weights."""
    config = transformers.BertConfig(
        vocab_size=vocab_size,
        hidden_size=setting["hidden_size"],
        num_hidden_layers=setting["num_layers"],
        num_attention_heads=setting["hidden_size"] // 64,
        intermediate_size=4 * setting["hidden_size"],
        hidden_act="gelu_pytorch_tanh",
    )
    return transformers.BertModel(config).eval()


def main() -> None:
    """Serves both measures."""
    setting = worker.read_setting()
    torch.manual_seed(0)
    tokenizer = transformers.BertTokenizerFast(vocab=setting["vocab_file"], do_lower_case=True)
    model = make_model(setting, len(tokenizer))

    def features() -> Iterator[tuple[list[str], list[Any]]]:
        with open(setting["text_file"], encoding="utf-8") as file:
            lines = [line.strip() for line in file]
        for start in range(0, len(lines), setting["batch_size"]):
            batch = tokenizer(
                lines[start : start + setting["batch_size"]],
                padding=True,
                truncation=True,
                max_length=setting["length"],
                return_tensors="pt",
            )
            with torch.inference_mode():
                states = model(**batch, output_hidden_states=True).hidden_states
            layers = [states[index].numpy() for index in (-1, -2, -3, -4)]
            for row, ids in enumerate(batch["input_ids"]):
                length = int(batch["attention_mask"][row].sum())
                tokens = tokenizer.convert_ids_to_tokens(ids[:length])
                yield tokens, [layer[row, :length] for layer in layers]

    def write_jsonl() -> None:
        with open(setting["output_file"], "w", encoding="utf-8") as file:
            for number, (tokens, layers) in enumerate(features()):
                entries = []
                for place, token in enumerate(tokens):
                    values = [
                        {"index": -1 - index, "values": [round(float(x), 6) for x in layer[place]]}
                        for index, layer in enumerate(layers)
                    ]
                    entries.append({"token": token, "layers": values})
                file.write(json.dumps({"linex_index": number, "features": entries}) + "\n")

    def consume() -> None:
        for _ in features():
            pass

    worker.serve(
        {
            "arrays": lambda: worker.seconds(consume),
            "jsonl": lambda: worker.seconds(write_jsonl),
        }
    )


if __name__ == "__main__":
    main()
