"""Plans of the paper's tables of the smallest size, some of whose runs are noted as done."""

import json
import random

import reproduce_paper
from paper import reproduction
from paper.ledger import Entry


def settings_in(folder, **given):
    values = {"output_dir": str(folder / "out"), "budget": "1s", "precision": "float32"}
    return reproduce_paper.Settings(**{**values, **given})


def prepare(folder, **given):
    return reproduction.prepare(settings_in(folder, **given))


def note(prepared, scores_of):
    """Notes jobs as run, with the scores that a function of their names gives, if any."""
    for name, job in prepared.plan.jobs.items():
        scores = scores_of(name)
        if job.has_scores and scores is not None:
            entry = Entry(
                name=name,
                kind=job.kind,
                command=job.shown(),
                scores=scores,
                seed=job.seed,
                seconds=90.0,
                guessed=60.0,
                machine="a processor, 2 cores",
                versions={"keras": "3.15"},
                date="2026-01-01",
            )
            prepared.ledger.entries[prepared.plan.digests[name]] = entry


def fill(folder, missing=(), **given):
    """Writes a ledger in which all but some jobs have run, with any scores; returns what is so."""
    prepared = prepare(folder, **given)
    rng = random.Random(0)
    names = ("accuracy", "f1", "test_f1", "perplexity", "matthews", "spearman")

    def scores_of(name):
        return None if name in missing else {each: rng.random() for each in names}

    note(prepared, scores_of)
    (folder / "out").mkdir(exist_ok=True)
    prepared.ledger.save()
    return prepared


def write_glue(folder):
    """Writes a task that takes the place of the sample's."""
    (folder / "SST-2").mkdir(parents=True)
    for part in ("train", "dev"):
        (folder / "SST-2" / f"{part}.tsv").write_text("sentence\tlabel\ngood\t1\nbad\t0\n")


def write_weights(folder, **config):
    """Writes what looks like the folder of a model of transformers."""
    folder.mkdir()
    shape = {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12}
    values = {**shape, "max_position_embeddings": 512, **config}
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "vocab.txt").write_text("[CLS]\n")
    (folder / "model.safetensors").write_bytes(b"weights")
    return str(folder)
