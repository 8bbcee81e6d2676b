"""Ways of running a pipeline, and small ones to run."""

import os
from pathlib import Path

import apache_beam
from apache_beam.metrics import Metrics

from bert.scale.batches import NAMESPACE

PROCESSES = "--direct_num_workers=2 --direct_running_mode=multi_processing"


def pipeline(function):
    return lambda root: root | apache_beam.Create([3]) | apache_beam.Map(function)


def double(number):
    Metrics.counter(NAMESPACE, "numbers").inc()
    Metrics.counter("others", "numbers").inc()
    return 2 * number


def refuse(number):
    raise ValueError(f"No such number: {number}")


def refuse_and_tell(file, number):
    Path(file).touch()
    refuse(number)


def die(number):
    os.kill(os.getpid(), 9)
