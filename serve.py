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
from typing import TYPE_CHECKING

from absl import logging

from bert.commands import flags as common_flags
from bert.commands.checks import Checks, start
from bert.commands.console import run_script
from bert.commands.lines import write_json_lines
from bert.commands.settings import AS_IN_FOLDER, CheckSettings
from bert.files.process import import_tensorflow
from bert.models.options import FROM_ELSEWHERE, QueriedModel, check_absent
from bert.options import REQUIRED, option

if TYPE_CHECKING:
    from bert.serving.served import Served
    from bert.serving.server import Server


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(CheckSettings, QueriedModel):
    """The flags of this script, by name."""

    GROUP = "server"

    model_dir: str = option(
        REQUIRED,
        "Pre-trained or fine-tuned model: the --output_dir of a script that trains; "
        f"{FROM_ELSEWHERE}.",
        group="model",
    )
    model_name: str | None = option(None, "Name of the model in URLs. Default: that of its folder.")
    host: str = option(
        "127.0.0.1",
        "Address to listen on; 0.0.0.0 for all addresses of this machine, so that other machines "
        "can connect.",
    )
    allowed_hosts: str | None = option(
        None,
        "Host names, comma-separated, that requests to a server on a loopback address may use "
        "besides localhost, such as the name that a proxy passes on. That of --host is always "
        "allowed.",
    )
    port: int = option(8501, "Port to listen on; 0 for any free port.", low=0, high=65535)
    top_k: int = option(
        5, "Number of tokens that a pre-trained model returns for each [MASK].", low=1
    )
    pooling: str | None = option(
        None,
        "How to make the vector of a text, for the signature `encode`: the mean or maximum over "
        f"its tokens, or the vector of [CLS]. Default: mean, or {AS_IN_FOLDER}.",
        choices=("mean", "max", "cls"),
        group="model",
    )
    max_batch_size: int = option(32, "Maximum inputs per batch.", low=1, group="devices")
    batch_wait_ms: float = option(
        0.0,
        "Milliseconds for which an input waits for others to share its batch while the model is "
        "idle. Inputs that arrive while it is busy share a batch in any case.",
        low=0.0,
        group="devices",
    )
    max_request_bytes: int = option(1 << 20, "Maximum bytes per request.", low=1)
    max_inputs: int = option(128, "Maximum inputs per request.", low=1)
    max_characters: int | None = option(
        None,
        "Maximum characters of each text; a longer one gets status 400. Default: any number.",
        low=1,
    )
    max_waiting: int = option(
        1024,
        "Maximum inputs that may wait or be answered at a time; further ones get status 429. "
        "Requests of more than 100,000 characters may take half of it, or a single one all of it.",
        low=1,
    )
    max_requests: int = option(
        256,
        "Maximum requests that may be read or answered at a time; further ones get status 503.",
        low=1,
    )
    max_connections: int = option(
        4096,
        "Maximum open connections. A further one takes the place of the one that has been idle "
        "longest, or gets status 503.",
        low=1,
    )
    read_timeout: float = option(
        10.0,
        "Seconds within which a client must send the head of its request, and again its body.",
        low=0.001,
    )
    request_timeout: float = option(
        30.0, "Seconds within which a request must be answered, including waiting.", low=0.001
    )

    log_format: str = option(
        "text",
        "`json` logs each line as a JSON object, and a line for each request: client, method, "
        "path, status and seconds, but nothing of its texts.",
        choices=("text", "json"),
    )


def define_flags() -> None:
    """Defines the flags."""
    common_flags.define(Settings)


def run(settings: Settings) -> None:
    """Serves until a signal, or `KeyboardInterrupt`, says that it is enough.

    Raises:
      ValueError: where the model or the address is not to be had.
    """
    with open_server(settings) as server:
        try:
            server.wait()
        except KeyboardInterrupt:
            logging.info("Answering what is under way, and ending.")


def check(settings: Settings, checks: Checks) -> None:
    """Checks what `run` needs."""
    checks("server library", _check_installed, tells=lambda _: "aiohttp and prometheus_client")
    checks("name", _check_name, settings, tells=lambda _: settings.model_name or "of the folder")
    checks("limits", _check_limits, settings, tells=lambda _: f"{settings.max_inputs} inputs")
    bound = checks("address", _bind, settings, tells=_describe)
    checks("model", _load, settings, False, tells=lambda served: f"{served.name}: {served.kind}")
    if isinstance(bound, socket.socket):
        bound.close()


def open_server(settings: Settings) -> "Server":
    """Returns a server that listens, in a thread of its own; `with` ends it."""
    _check_installed()
    _check_name(settings)
    _check_limits(settings)
    bound = _bind(settings)
    try:
        return _serve(settings, bound)
    except BaseException:
        bound.close()
        raise


def _serve(settings: Settings, bound: socket.socket) -> "Server":
    import_tensorflow()
    from bert.serving.app import Limits, read_hosts
    from bert.serving.server import Server
    from bert.training.devices import tell_gpus

    tell_gpus()
    served = _load(settings)
    served.warm_up()
    server = Server(
        served,
        bound,
        Limits(
            max_request_bytes=settings.max_request_bytes,
            max_inputs=settings.max_inputs,
            max_characters=settings.max_characters,
            max_requests=settings.max_requests,
            max_connections=settings.max_connections,
            read_seconds=settings.read_timeout,
            request_seconds=settings.request_timeout,
        ),
        # It is found by the name by which it was told to listen.
        allowed_hosts=[settings.host.lower(), *read_hosts(settings.allowed_hosts or "")],
        logs_requests=settings.log_format == "json",
        max_batch_size=settings.max_batch_size,
        max_waiting=settings.max_waiting,
        wait_seconds=settings.batch_wait_ms / 1000,
    )
    logging.info(
        "Serving version %d of %s: %s is a page to type into, %sv1/models/%s:predict is for "
        "programs.",
        served.version,
        served.name,
        server.address,
        server.address,
        served.name,
    )
    return server


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


def _check_name(settings: Settings) -> None:
    import_tensorflow()
    from bert.serving.app import check_name, read_hosts

    if settings.model_name:
        check_name(settings.model_name)
    read_hosts(settings.allowed_hosts or "")


def _check_limits(settings: Settings) -> None:
    if settings.max_inputs > settings.max_waiting:
        raise ValueError(
            f"`--max_inputs` must be at most `--max_waiting`, {settings.max_waiting}, or such a "
            f"request could never be answered. Received {settings.max_inputs}."
        )


def _bind(settings: Settings) -> socket.socket:
    import_tensorflow()
    from bert.serving.server import bind

    return bind(settings.host, settings.port)


def _describe(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"{host}, port {port}"


def _load(settings: Settings, runs: bool = True) -> "Served":
    import_tensorflow()
    from bert.models.frozen_weights import assume_frozen_weights
    from bert.models.open import is_export, open_model
    from bert.serving.served import find_name, find_version, serve

    path, version = find_version(settings.model_dir)
    if is_export(path):
        where = "for an exported model, in whose graph it is fixed"
        check_absent("pooling", settings.pooling, where, path)
    assume_frozen_weights(settings.precision)
    model = open_model(
        path,
        "model_dir",
        settings,
        batch_size=settings.max_batch_size,
        precision=settings.precision,
        runs=runs,
    )
    name = settings.model_name or find_name(settings.model_dir)
    return serve(model, name, version, settings.top_k, settings.pooling)


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    settings = common_flags.read_settings(Settings)
    if settings.log_format == "json":
        write_json_lines()
    start(settings, run, check)


if __name__ == "__main__":
    define_flags()
    run_script(main)
