"""Options of a server: its address, its limits, and what the model answers."""

import dataclasses
import re
from urllib.parse import urlsplit

from bert.options import Message, Option, OptionError, OptionGroup, option
from bert.weights.sentence_transformers import AS_IN_FOLDER

# Characters of a name in URLs.
NAME = r"[^/:]+"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Address(OptionGroup):
    """Where a server listens, and by which names it is requested."""

    GROUP = "server"

    model_name: str | None = option(None, "Name of the model in URLs. Default: that of its folder.")
    host: str = option(
        "127.0.0.1",
        "Address to listen on; 0.0.0.0 for all addresses of this machine, so that other machines "
        "can connect.",
    )
    allowed_hosts: str | None = option(
        None,
        Message(
            "Host names, comma-separated, that requests to a server on a loopback address may use "
            "besides localhost, such as the name that a proxy passes on. That of %s is always "
            "allowed.",
            Option("host"),
        ),
    )
    port: int = option(8501, "Port to listen on; 0 for any free port.", low=0, high=65535)

    def check_name(self) -> None:
        """Checks that the model can be named in URLs.

        Raises:
          OptionError: where it cannot.
        """
        if self.model_name and not re.fullmatch(NAME, self.model_name):
            must = "have neither / nor :, which have a meaning in URLs"
            raise OptionError("model_name", must, self.model_name)

    @property
    def names(self) -> list[str]:
        """The names by which requests may name the server, besides localhost.

        Raises:
          OptionError: where an allowed host is no name.
        """
        return [self.host.lower(), *read_hosts(self.allowed_hosts or "")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits(OptionGroup):
    """What one client, and all clients together, may request."""

    GROUP = "server"

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

    def check_inputs(self) -> None:
        """Checks that the largest request can be answered.

        Raises:
          OptionError: where it cannot.
        """
        if self.max_inputs > self.max_waiting:
            text = "be at most %s, %d, or such a request is never answered"
            must = Message(text, Option("max_waiting"), self.max_waiting)
            raise OptionError("max_inputs", must, self.max_inputs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batching(OptionGroup):
    """How inputs of several requests share a batch."""

    GROUP = "devices"

    max_batch_size: int = option(32, "Maximum inputs per batch.", low=1)
    batch_wait_ms: float = option(
        0.0,
        "Milliseconds for which an input waits for others to share its batch while the model is "
        "idle. Inputs that arrive while it is busy share a batch in any case.",
        low=0.0,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerOptions(OptionGroup):
    """How a model answers."""

    GROUP = "server"

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
    rerank_label: str | None = option(
        None,
        "Label of a classifier of pairs whose probability is the score of a text in /rerank. "
        "Default: `entailment`, or else `1` or the second of two labels.",
    )


def read_hosts(names: str) -> list[str]:
    """Returns the host names of a comma-separated list, without ports.

    Raises:
      OptionError: where one is no host name.
    """
    hosts = [name.strip() for name in names.split(",") if name.strip()]
    found = [host_name(host) for host in hosts]
    if wrong := [host for host, name in zip(hosts, found, strict=True) if not name or "/" in host]:
        must = "be host names, such as ask.example, separated by commas"
        raise OptionError("allowed_hosts", must, wrong[0])
    return [name for name in found if name]


def host_name(host: str) -> str | None:
    """Returns the name in the header `Host`, in lower case; None where it is malformed."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return None
