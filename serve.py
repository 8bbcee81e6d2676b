r"""Serves a model over HTTP, with TensorFlow Serving's REST API and a page to try it in a browser.

    python serve.py --model_dir=mrpc
    curl -d '{"instances": [{"text_a": "One text.", "text_b": "Another."}]}' \
      http://127.0.0.1:8501/v1/models/mrpc:predict

The answers are those of predict.py, or of fill_mask.py for pre-trained models. To try it in a
browser, open http://127.0.0.1:8501/. Monitoring can use /healthz, /readyz and /metrics. SIGTERM or
Ctrl-C stops the server once it has answered the requests in progress.
"""

import dataclasses
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from absl import flags

from bert.commands.checks import Checks, CheckSettings, Step, call, make_script
from bert.commands.console import run_script
from bert.commands.lines import begin_run, write_json_lines
from bert.files.process import import_tensorflow
from bert.log import logger
from bert.models.options import ENGINE_HELP, ENGINES, FROM_ELSEWHERE, EngineModel
from bert.options import REQUIRED, option, take
from bert.serving.options import Address, AnswerOptions, Batching, Limits
from bert.weights.options import AUTO

if TYPE_CHECKING:
    from bert.serving.served import Served
    from bert.serving.server import Server


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Batching, Limits, AnswerOptions, Address, CheckSettings, EngineModel):
    """The flags of the script, by name."""

    model_dir: str = option(
        REQUIRED,
        "Pre-trained or fine-tuned model: the --output_dir of a script that trains; "
        f"{FROM_ELSEWHERE}.",
        group="model",
    )
    engine: str = option(AUTO, ENGINE_HELP, choices=ENGINES, group="devices")
    log_format: str = option(
        "text",
        "`json` logs each line as a JSON object, and a line for each request: client, method, "
        "path, status and seconds, but nothing of its texts.",
        choices=("text", "json"),
        group="server",
    )


def run(settings: Settings) -> None:
    """Serves until a signal or `KeyboardInterrupt`.

    Raises:
      ValueError: where the model cannot be opened, or the address is not free.
    """
    begin_run(settings.check)
    with open_server(settings) as server:
        try:
            server.wait()
        except KeyboardInterrupt:
            logger.info("Answering the requests in progress, and ending.")


def open_server(settings: Settings) -> "Server":
    """Returns a server that listens in its own thread; `with` ends it."""
    bound = bind_address(settings)
    from bert.network.gpus import log_gpus
    from bert.serving.server import Server

    log_gpus()
    limits, batching = take(Limits, settings), take(Batching, settings)
    is_logged = settings.log_format == "json"
    try:
        served = load_model(settings)
        served.warm_up()
        server = Server(served, bound, limits, batching, settings.names, is_logged)
    except BaseException:
        bound.close()
        raise
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


def bind_address(settings: Settings, step: Step = call) -> Any:
    """Checks the options and returns a socket that is bound to the address."""
    step("server library", _check_installed, shows=lambda _: "aiohttp and prometheus_client")
    name = settings.model_name or "of the folder"
    step("name", _check_names, settings, shows=lambda _: name)
    step("limits", Limits.check_inputs, settings, shows=lambda _: f"{settings.max_inputs} inputs")
    return step("address", _bind, settings, shows=_describe)


def load_model(settings: Settings) -> "Served":
    """Returns the model; for `--check`, the graph of an export is not run."""
    import_tensorflow()
    from bert.serving.served import open_served

    return open_served(
        take(EngineModel, settings),
        take(AnswerOptions, settings),
        settings.model_name,
        settings.max_batch_size,
        dry=settings.check,
    )


def check(settings: Settings, checks: Checks) -> None:
    """Shows the options, the address and the model."""
    bound = bind_address(settings, checks)
    checks("model", load_model, settings, shows=lambda served: f"{served.name}: {served.kind}")
    if isinstance(bound, socket.socket):
        bound.close()


def _check_installed() -> None:
    try:
        import_tensorflow()
        import aiohttp  # noqa: F401
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"The package {error.name} must be there to serve a model. Install it with `pip "
            "install aiohttp prometheus_client`, or with this package as `pip install '.[serve]'`."
        ) from None


def _check_names(settings: Settings) -> None:
    settings.check_name()
    assert settings.names


def _bind(settings: Settings) -> socket.socket:
    import_tensorflow()
    from bert.serving.server import bind

    return bind(settings.host, settings.port)


def _describe(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"{host}, port {port}"


define_flags, _main = make_script(Settings, run, check)


def main(arguments: list[str]) -> None:
    """Runs the script on its flags, and writes lines as they say."""
    if flags.FLAGS.log_format == "json":
        write_json_lines()
    _main(arguments)


if __name__ == "__main__":
    define_flags()
    run_script(main)
