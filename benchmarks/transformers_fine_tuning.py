"""Fine-tunes `transformers` on MRPC for fine_tuning.py, which starts it and takes its time.

The optimizer, schedule and clipping are what the library's own `Trainer` uses by default. Runs in
an environment of its own, with torch and transformers and without this project's packages.
"""

import json
import math
import sys

import torch  # type: ignore[import-not-found]
import transformers  # type: ignore[import-not-found]


def read_examples(path: str) -> tuple[list[str], list[str], list[int]]:
    """Returns both sentences and the label of each line but the first."""
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    return [row[3] for row in rows], [row[4] for row in rows], [int(row[0]) for row in rows]


def make_loader(setting: dict) -> torch.utils.data.DataLoader:
    """Returns shuffled batches, padded as asked for."""
    tokenizer = transformers.BertTokenizerFast(vocab=setting["vocab_file"], do_lower_case=True)
    first, second, labels = read_examples(setting["train_file"])
    encoded = tokenizer(first, second, truncation=True, max_length=setting["length"])
    examples = [
        {name: values[number] for name, values in encoded.items()} | {"labels": labels[number]}
        for number in range(len(labels))
    ]
    collate = transformers.DataCollatorWithPadding(
        tokenizer, padding=setting["padding"], max_length=setting["length"]
    )
    return torch.utils.data.DataLoader(
        examples, setting["batch_size"], shuffle=True, collate_fn=collate
    )


def main() -> None:
    """Trains, and prints the number of tokens that went through the model, padding included."""
    setting = json.loads(sys.argv[1])
    torch.manual_seed(0)
    loader = make_loader(setting)
    config = transformers.BertConfig.from_json_file(setting["config_file"])
    config.hidden_act = "gelu_pytorch_tanh"
    model = transformers.BertForSequenceClassification(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01, fused=True)
    num_steps = math.ceil(len(loader) * setting["epochs"])
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, num_steps // 10, num_steps)
    step = tokens = 0
    while step < num_steps:
        for batch in loader:
            tokens += batch["input_ids"].numel()
            with torch.autocast("cpu", torch.bfloat16, enabled=setting["precision"] == "bfloat16"):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if step == num_steps:
                break
    print(f"{step} steps, {tokens} tokens, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
