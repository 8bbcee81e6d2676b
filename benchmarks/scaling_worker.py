"""Takes pre-training steps as one of several workers for scaling.py; started by it."""

import json
import os
import statistics
import sys
import time
from pathlib import Path

# The first steps compile and allocate.
WARM_UP = 2


def bytes_sent() -> int:
    """Returns the bytes that have gone through the loopback device."""
    lines = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.strip().startswith("lo:")).split()[9])


def main() -> None:
    """Prints the median seconds of a step, the bytes of all workers in one, and the last loss."""
    setting = json.loads(sys.argv[1])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[setting["index"] % len(cores)]})
    # Not before: libraries look at the cores that there are.
    import bert_worker  # noqa: PLC0415
    import tensorflow as tf  # noqa: PLC0415

    from bert.training.strategies import make_strategy  # noqa: PLC0415

    tf.config.threading.set_intra_op_parallelism_threads(1)
    with make_strategy(setting["strategy"]).scope():
        trainer = bert_worker.make_trainer(setting)
    trainer.num_micro_batches = setting["accumulation"]
    trainer.all_reduce_precision = setting["sent"]
    batch = bert_worker.make_batch(setting)
    seconds: list[float] = []
    for step in range(WARM_UP + setting["steps"]):
        if step == WARM_UP:
            sent = bytes_sent()
        begin = time.perf_counter()
        results = trainer.train_step(batch)
        seconds.append(time.perf_counter() - begin)
    figures = {
        "seconds": statistics.median(seconds[WARM_UP:]),
        "bytes": (bytes_sent() - sent) / setting["steps"],
        "loss": results["loss"],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
