"""The files of a run's scores."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert.files.durable import write_text
from bert.files.json_text import finite
from bert.files.owned import claim
from bert.log import logger
from bert.training.progress import open_summaries, write_summaries


def save_results(
    output_dir: str, step: int, results: Mapping[str, float], name: str = "eval_results"
) -> None:
    """Writes `<name>.txt`, sorted lines `key = value`, and the same to TensorBoard."""
    lines = {name: np.float32(value) for name, value in results.items()} | {"global_step": step}
    values = "  ".join(f"{key} {results[key]:.4g}" for key in sorted(results))
    logger.info("Results at step %d: %s", step, values)
    path = claim(output_dir, f"{name}.txt")
    write_text(path, "".join(f"{key} = {lines[key]!s}\n" for key in sorted(lines)))
    writer = open_summaries(output_dir, name.replace("eval_results", "eval"))
    write_summaries(writer, step, results)
    writer.close()


def save_scores(
    output_dir: str, step: int, scores: Mapping[str, Any], name: str = "eval_results"
) -> None:
    """Writes `<name>.json`, all scores as they are, null where not finite, with the step."""
    values = finite({"global_step": step, **scores})
    text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    write_text(claim(output_dir, f"{name}.json"), text)
