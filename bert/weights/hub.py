"""Models of the Hugging Face hub by their names, such as google/bert_uncased_L-2_H-128_A-2.

The package `huggingface_hub` fetches them into its cache (HF_HOME) from the hub that HF_ENDPOINT
names, and shows its progress. Only the files that are read here are fetched, and of weights only
safetensors.
"""

import functools
import os
import re

from bert.files.paths import is_remote
from bert.files.stored_models import (
    SAFETENSORS_FILE,
    SAFETENSORS_INDEX_FILE,
    TASK_FILE,
    WEIGHTS_ENDINGS,
)
from bert.log import logger
from bert.options import Message, Option, OptionError
from bert.weights import sentence_transformers, tokenizers

# The files of a model, as patterns.
FILES = (
    *("config.json", "vocab.txt", *tokenizers.FILES),
    *sentence_transformers.FILES,
    # Written by convert_checkpoint.py.
    TASK_FILE,
    SAFETENSORS_FILE,
    SAFETENSORS_INDEX_FILE,
    "model-*-of-*.safetensors",
)
_WEIGHTS = (SAFETENSORS_FILE, SAFETENSORS_INDEX_FILE)

_NAME = re.compile(r"(?P<name>[\w-][\w.-]*/[\w-][\w.-]*?)(?:@(?P<revision>[\w-][\w./-]*))?")
# Models that once had no owner on the hub; books and tutorials still name them so.
_OWNER = "google-bert"
_WITHOUT_OWNER = frozenset(
    {
        *("bert-base-uncased", "bert-base-cased", "bert-large-uncased", "bert-large-cased"),
        *("bert-base-multilingual-uncased", "bert-base-multilingual-cased", "bert-base-chinese"),
        *("bert-base-german-cased", "bert-large-uncased-whole-word-masking"),
        *("bert-large-cased-whole-word-masking", "bert-base-cased-finetuned-mrpc"),
        "bert-large-uncased-whole-word-masking-finetuned-squad",
        "bert-large-cased-whole-word-masking-finetuned-squad",
    }
)
# Endings of the paths of checkpoints; no known name of a BERT has one of them.
_LOCAL = re.compile(
    rf"(\.ckpt-\d+|\.index|\.meta|\.index\.json|{'|'.join(map(re.escape, WEIGHTS_ENDINGS))})$"
)


def is_name(path: str) -> bool:
    """Returns whether `path` may be a name on the hub, `owner/model` or `owner/model@revision`.

    A local path is no name. Without a revision, neither is `runs/my_model` beside a folder `runs`.
    The owner of google-bert's models may be left out.
    """
    name, has_revision, _ = path.partition("@")
    if is_remote(path) or not _NAME.fullmatch(_with_owner(path)) or _LOCAL.search(name):
        return False
    if not has_revision and os.path.isdir(os.path.dirname(path)):
        return False
    return not any(map(os.path.exists, (path, f"{path}.index")))


def _with_owner(name: str) -> str:
    return f"{_OWNER}/{name}" if name.partition("@")[0] in _WITHOUT_OWNER else name


@functools.lru_cache
def fetch(name: str, option: str = "init_checkpoint", *, fetches: bool = True) -> str:
    """Returns the local folder with the files of a model, fetched if they are not there already.

    Args:
      name: A name for which `is_name` holds.
      option: The option that gave the name, for messages.
      fetches: Whether files that are not there are fetched.

    Raises:
      ValueError: where it cannot be fetched, or has no weights as safetensors; the message says
        what to do by hand.
    """
    match = _NAME.fullmatch(_with_owner(name))
    assert match is not None
    model, revision = match["name"], match["revision"] or "main"
    try:
        folder = _fetch(model, revision, fetches)
    except OSError as error:
        endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
        raise OptionError(
            option,
            "name a checkpoint, here or on the Hugging Face hub",
            remedy=Message(
                "%r is no local path. %s By hand: download config.json, vocab.txt, "
                "tokenizer_config.json and model.safetensors (or all its parts and their index) "
                "from %s/%s/tree/%s into one folder, and give its path as %s.",
                model,
                error,
                endpoint,
                model,
                revision,
                Option(option),
            ),
        ) from error
    if not any(os.path.isfile(os.path.join(folder, name)) for name in _WEIGHTS):
        raise OptionError(
            option,
            "name a model with weights as safetensors",
            remedy=f"{model!r} has none in its revision {revision!r}. Some models have them in "
            f"another revision, such as {model}@refs/pr/1: look there under 'Community'. Or "
            "download its weights, config.json and vocab.txt into a folder, and give that.",
        )
    logger.info("%s@%s is in %s.", model, revision, folder)
    return folder


def _fetch(model: str, revision: str, fetches: bool) -> str:
    """Returns the folder of a model.

    Raises:
      OSError: with the reason, as a sentence, where it cannot be fetched.
    """
    try:
        # The package takes time to load and is needed for names on the hub alone.
        import huggingface_hub  # noqa: PLC0415
        from huggingface_hub import errors  # noqa: PLC0415
    except ImportError:
        raise OSError(
            "The package huggingface_hub, which would fetch it, is not installed."
        ) from None
    try:
        return huggingface_hub.snapshot_download(
            model, revision=revision, allow_patterns=list(FILES), local_files_only=not fetches
        )
    except errors.GatedRepoError as error:
        raise OSError(
            "Its owner demands an agreement first: accept it on its page, and `hf auth login`."
        ) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise OSError(f"The hub shows no such model or revision. {_first_line(error)}") from error
    except (OSError, ValueError, errors.HTTPError) as error:
        if not fetches:
            raise OSError("It is not here yet, and a check fetches nothing.") from error
        raise OSError(f"It could not be fetched. {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return f"({type(error).__name__}: {first_line})"
