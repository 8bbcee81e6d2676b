r"""Serves a model over HTTP, with TensorFlow Serving's REST API and a page to try it in a browser.

    python serve.py --model_dir=mrpc
    curl -d '{"instances": [{"text_a": "One text.", "text_b": "Another."}]}' \
      http://127.0.0.1:8501/v1/models/mrpc:predict

The answers are those of predict.py, or of fill_mask.py for pre-trained models. To try it in a
browser, open http://127.0.0.1:8501/. Monitoring can use /healthz, /readyz and /metrics. SIGTERM or
Ctrl-C stops the server once it has answered the requests in progress.
"""

from typing import TYPE_CHECKING
from urllib.parse import quote

from bert.commands import flags as common_flags
from bert.commands.checks import start
from bert.commands.console import run_script
from bert.commands.lines import show_lines, write_json_lines
from bert.commands.serve import Settings, bind_address, check, closed_on_error, load_model
from bert.log import logger
from bert.options import take
from bert.serving.options import Batching, Limits

if TYPE_CHECKING:
    from bert.serving.server import Server


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(settings: Settings) -> None:
    """Serves until a signal or `KeyboardInterrupt`.

    Raises:
      ValueError: where the model cannot be opened, or the address is not free.
    """
    show_lines()
    with open_server(settings) as server:
        try:
            server.wait()
        except KeyboardInterrupt:
            logger.info("Answering the requests in progress, and ending.")


def open_server(settings: Settings) -> "Server":
    """Returns a server that listens in its own thread; `with` ends it."""
    bound = bind_address(settings)
    from bert.serving.server import Server
    from bert.training.devices import log_gpus

    with closed_on_error(bound):
        log_gpus()
        served = load_model(settings)
        served.warm_up()
        is_logged = settings.log_format == "json"
        limits, batching = take(Limits, settings), take(Batching, settings)
        server = Server(served, bound, limits, batching, settings.names, is_logged)
    url = server.address
    address = f"{url}v1/models/{quote(served.name, safe='')}:predict"
    logger.info(
        "Serving version %d of %s: %s is a page to type into, %s is for programs.",
        served.version,
        served.name,
        url,
        address,
    )
    return server


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    settings = common_flags.read_settings(Settings)
    if settings.log_format == "json":
        write_json_lines()
    start(settings, run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)
