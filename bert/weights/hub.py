"""Models of the Hugging Face hub by their names, such as google/bert_uncased_L-2_H-128_A-2.

They are fetched with `huggingface_hub`, which keeps them in its cache (HF_HOME), shows how far it
is, and asks the hub that HF_ENDPOINT names. Only the files that are read here are fetched: weights
as safetensors, never as a pickle, which could run code.
"""

import functools
import os
import re

from absl import logging

from bert.commands.checks import is_checking
from bert.files import sentence_transformers
from bert.files.paths import is_remote
from bert.files.weight_names import SAFETENSORS_FILE, SAFETENSORS_INDEX_FILE, TASK_FILE

# What belongs to a model, as patterns.
FILES = (
    "config.json",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "added_tokens.json",
    "special_tokens_map.json",
    *sentence_transformers.FILES,
    # Of models that convert_checkpoint.py has written.
    TASK_FILE,
    SAFETENSORS_FILE,
    SAFETENSORS_INDEX_FILE,
    "model-*-of-*.safetensors",
)
_WEIGHTS = (SAFETENSORS_FILE, SAFETENSORS_INDEX_FILE)

_NAME = re.compile(r"(?P<name>[\w-][\w.-]*/[\w-][\w.-]*?)(?:@(?P<revision>[\w-][\w./-]*))?")
# Models that had no owner on the hub once, as books and tutorials still call them.
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
# How the paths of checkpoints end; a name may as well, but none of a BERT is known to.
_LOCAL = re.compile(r"\.(?:ckpt(?:-\d+)?|index|meta|safetensors|bin|h5)$")


def is_name(path: str) -> bool:
    """Returns whether `path` may be a name on the hub, `owner/model` or `owner/model@revision`.

    A local path is none. Without a revision, nor is `runs/my_model` where there is a folder `runs`.
    Of google-bert's, the owner may be left out.
    """
    if is_remote(path) or not _NAME.fullmatch(_with_owner(path)) or _LOCAL.search(path):
        return False
    if "@" not in path and os.path.isdir(os.path.dirname(path)):
        return False
    return not any(map(os.path.exists, (path, f"{path}.index")))


def _with_owner(name: str) -> str:
    return f"{_OWNER}/{name}" if name.partition("@")[0] in _WITHOUT_OWNER else name


@functools.lru_cache
def fetch(name: str, flag: str = "init_checkpoint") -> str:
    """Returns the local folder with the files of a model, fetched if they are not there already.

    Args:
      name: As `is_name` knows it.
      flag: The flag that gave the name, for messages.

    Raises:
      ValueError: where it cannot be fetched, or has no weights as safetensors; the message says
        what to do by hand.
    """
    match = _NAME.fullmatch(_with_owner(name))
    assert match is not None
    model, revision = match["name"], match["revision"] or "main"
    try:
        folder = _fetch(model, revision)
    except OSError as error:
        raise ValueError(_refusal(model, revision, flag, str(error))) from error
    if not any(os.path.isfile(os.path.join(folder, each)) for each in _WEIGHTS):
        raise ValueError(
            f"`--{flag}` must name a model with weights as safetensors. {model!r} has none in its "
            f"revision {revision!r}; a pickle such as pytorch_model.bin is not read, since it "
            f"could run code. Some models have them in another revision, such as "
            f"{model}@refs/pr/1: look there under 'Community'."
        )
    logging.info("%s@%s is in %s.", model, revision, folder)
    return folder


def _fetch(model: str, revision: str) -> str:
    """Returns the folder of a model.

    Raises:
      OSError: with the reason, as a sentence, where it cannot be fetched.
    """
    try:
        # What needs no name of the hub has no need of it, nor of the time that it takes.
        import huggingface_hub  # noqa: PLC0415
        from huggingface_hub import errors  # noqa: PLC0415
    except ImportError:
        raise OSError(
            "The package huggingface_hub, which would fetch it, is not installed."
        ) from None
    try:
        return huggingface_hub.snapshot_download(
            model,
            revision=revision,
            allow_patterns=list(FILES),
            local_files_only=is_checking(),
        )
    except errors.GatedRepoError as error:
        raise OSError(
            "Its owner asks for an agreement first: accept it on its page, and `hf auth login`."
        ) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise OSError(f"The hub shows no such model or revision. {_first_line(error)}") from error
    except (OSError, ValueError, errors.HTTPError) as error:
        reason = "It is not here yet, and --check fetches nothing." if is_checking() else ""
        reason = reason or f"It could not be fetched. {_first_line(error)}"
        raise OSError(reason) from error


def _refusal(model: str, revision: str, flag: str, reason: str) -> str:
    return (
        f"`--{flag}` must name a checkpoint, here or on the Hugging Face hub. {model!r} is no "
        f"local path. {reason} By hand: download config.json, vocab.txt, tokenizer_config.json and "
        f"model.safetensors (or all its parts and their index) from "
        f"{_endpoint()}/{model}/tree/{revision} into one folder, and give its path as `--{flag}`."
    )


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _first_line(error: Exception) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return f"({type(error).__name__}: {first_line})"
