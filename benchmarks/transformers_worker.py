"""Takes the pre-training steps of `transformers` for pretraining_step.py; started by it.

The model, optimizer and clipping are what the library's own `Trainer` uses by default. Runs in an
environment of its own, with torch and transformers and without this project's packages.
"""

from collections.abc import Callable

import torch  # type: ignore[import-not-found]
import transformers  # type: ignore[import-not-found]
import worker


def make_batch(setting: dict) -> dict[str, torch.Tensor]:
    """Returns a batch as bert_worker.py makes it: random tokens without padding."""
    shape = (setting["batch_size"], setting["length"])
    ids = torch.randint(setting["vocab_size"], shape)
    positions = torch.rand(shape).argsort(dim=1)[:, : setting["predictions"]]
    labels = torch.full(shape, -100)  # -100: not predicted
    labels.scatter_(1, positions, torch.randint(setting["vocab_size"], positions.shape))
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "token_type_ids": torch.randint(2, shape),
        "labels": labels,
        "next_sentence_label": torch.randint(2, shape[:1]),
    }


def make_step(setting: dict) -> Callable[[], float]:
    """Returns a function that takes one training step and returns its loss."""
    config = transformers.BertConfig(
        vocab_size=setting["vocab_size"],
        hidden_size=setting["hidden_size"],
        num_hidden_layers=setting["num_layers"],
        num_attention_heads=setting["num_heads"],
        intermediate_size=4 * setting["hidden_size"],
        hidden_act="gelu_pytorch_tanh",
    )
    model = transformers.BertForPreTraining(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    batch = make_batch(setting)
    half = setting["precision"] == "bfloat16"

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def main() -> None:
    """Serves steps."""
    torch.manual_seed(0)
    step = make_step(worker.read_setting())
    worker.serve({"step": lambda: worker.seconds(step)})


if __name__ == "__main__":
    main()
