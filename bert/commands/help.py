"""What --help shows, and what is said of flags that are wrong, both before TensorFlow is loaded."""

import contextlib
import difflib
import itertools
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from absl import app, flags

from bert.commands.flags import GROUPS, WITHOUT_EFFECT
from bert.commands.lines import write_lines
from bert.commands.other_names import answer
from bert.log import logger

_HELP = ("h", "help", "helpshort", "?")
_NARROW, _WIDE = 80, 100
# How similar a known flag must be to a misspelt one to be suggested: two letters of `port` swapped.
_NEAR = 0.75
# Where the text of a flag begins.
_COLUMN = 30

# What comes first in a group, behind what is required; all else is in the order of the fields.
_FIRST: Mapping[str, Sequence[str]] = {
    "steps": ("do_train", "do_eval", "do_predict", "do_export"),
    "data": (
        *("task_name", "data_dir", "train_file", "dev_file", "test_file", "predict_file"),
        *("dev_fraction", "split_seed", "input_file", "eval_input_file", "input_format"),
    ),
    "model": ("init_checkpoint", "word_vectors", "bert_config_file", "vocab_file", "do_lower_case"),
    "training": (
        *("objective", "train_batch_size", "learning_rate", "num_train_epochs"),
        *("num_train_steps", "time_budget", "num_warmup_steps", "warmup_proportion"),
        *("eval_batch_size", "predict_batch_size", "max_eval_steps"),
    ),
    "output": (
        *("output", "output_dir", "overwrite_output_dir", "output_file", "format", "overwrite"),
    ),
    "devices": ("precision", "strategy", "batch_size"),
}

_MORE = (
    (
        "--flagfile=FILE",
        "Read flags from a file: one --flag=value a line, without quotes; a line that begins with "
        "# is a comment.",
    ),
    ("--verbosity=1, -v 1", "Log more, with a traceback for errors."),
    ("--helpfull", "Show the flags of the libraries, too."),
)


def parse_flags(arguments: list[str]) -> list[str]:
    """Reads the flags of the command line, and returns what is none, behind the script's name.

    Shows the help and exits where that is asked for; exits with a line where a flag is wrong.
    """
    # Behind `--` stand texts.
    words = itertools.takewhile(lambda word: word != "--", arguments[1:])
    asked = {word.lstrip("-") for word in words if word.startswith("-")}
    if asked.intersection(_HELP):
        _show(help_text(sys.modules["__main__"].__doc__ or ""))
    if "helpfull" in asked:
        app.usage(writeto_stdout=True, exitcode=0)
    try:
        return list(flags.FLAGS(arguments))
    except (flags.Error, ValueError) as error:
        refuse(*_explain(error, arguments))


def refuse(*lines: str) -> NoReturn:
    """Exits with lines that say what is wrong with the command line."""
    write_lines()
    logger.error("\n".join(["%s"] * len(lines)) + " `--help` shows all flags.", *lines)
    sys.exit(1)


def _show(text: str) -> NoReturn:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Who reads the help through `head` has read enough; nor has what Python writes at its end.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def help_text(story: str) -> str:
    """Returns the description of a script, and its flags by groups."""
    width = min(max(shutil.get_terminal_size().columns, _NARROW), _WIDE)
    parts = [story.strip()]
    own = _own_flags()
    for group, title in GROUPS.items():
        members = [each for each in own if each.said.group == group]
        members.sort(key=_place)
        if members:
            rows = [_row(_typed(each), _described(each), width) for each in members]
            parts.append("\n".join([f"{title}:", *rows]))
    every = flags.FLAGS
    if old := [f"--{name}" for name in sorted(every) if every[name].help == WITHOUT_EFFECT]:
        said = textwrap.fill(", ".join(old), width, initial_indent="  ", subsequent_indent="  ")
        parts.append(f"Accepted for compatibility, without effect:\n{said}")
    parts.append("\n".join(["More:", *(_row(typed, text, width) for typed, text in _MORE)]))
    return "\n\n".join(parts)


def _own_flags() -> list[Any]:
    """Returns the flags of the script's `Settings`, in their order, that have an effect."""
    own = [flags.FLAGS[name] for name in flags.FLAGS if hasattr(flags.FLAGS[name], "said")]
    return [each for each in own if each.help != WITHOUT_EFFECT]


def _place(flag: Any) -> tuple[bool, bool, int]:
    """Returns what flags of a group are sorted by."""
    first = _FIRST.get(flag.said.group, ())
    place = first.index(flag.name) if flag.name in first else len(first)
    return not flag.said.is_required, flag.name == "check", place


def _typed(flag: Any) -> str:
    """Returns a flag as it is typed."""
    if not flag.boolean:
        return f"--{flag.name}"
    return f"--{flag.name}" if flag.default is False else f"--[no]{flag.name}"


def _described(flag: Any) -> str:
    """Returns the help of a flag, and in brackets what it is where it is not given."""
    said = flag.said
    remarks = [f"one of {', '.join(said.choices)}"] if said.choices else []
    if said.alias:
        remarks.append(f"also --{said.alias}")
    if said.is_required:
        remarks.append("required")
    elif flag.boolean and flag.default:
        remarks.append("default: true")
    elif not flag.boolean and flag.default is not None:
        remarks.append(f"default: {flag.default}")
    return f"{said.text} ({'; '.join(remarks)})" if remarks else str(said.text)


def _row(typed: str, text: str, width: int) -> str:
    indent = " " * _COLUMN
    lines = textwrap.wrap(text, width - _COLUMN)
    head = f"  {typed}"
    if len(head) < _COLUMN - 1:
        return "\n".join([f"{head:{_COLUMN}}{lines[0]}", *(indent + line for line in lines[1:])])
    return "\n".join([head, *(indent + line for line in lines)])


def _explain(error: Exception, arguments: Sequence[str]) -> list[str]:
    """Returns the faults of a command line, each with what to type instead."""
    if not isinstance(error, flags.UnrecognizedFlagError):
        return [_explain_one(error)]
    script = os.path.basename(arguments[0])
    words = flags.FLAGS.read_flags_from_files(arguments[1:])
    unknown = _unknown(words) or {error.flagname: error.flagvalue.partition("=")[2]}
    return [_explain_unknown(name, value, script) for name, value in unknown.items()]


def _unknown(arguments: Sequence[str]) -> dict[str, str]:
    """Returns the names of all flags that the script does not have, with the values typed."""
    known = _names()
    words = [*itertools.takewhile(lambda word: word != "--", arguments), "-"]
    unknown = {}
    for word, following in itertools.pairwise(words):
        match = re.fullmatch(r"--?([A-Za-z][\w-]*)(=.*)?", word, re.DOTALL)
        if match and match[1] not in known:
            value = "" if following.startswith("-") else following
            unknown[match[1]] = match[2][1:] if match[2] else value
    return unknown


def _names() -> list[str]:
    """Returns the names of all flags, with those that switch one off."""
    return [*flags.FLAGS, *(f"no{each}" for each in flags.FLAGS if flags.FLAGS[each].boolean)]


def _explain_one(error: Exception) -> str:
    """Returns what is wrong with a flag that the script has, or must have."""
    required = [each for each in _own_flags() if each.said.is_required]
    missing = [f"`--{each.name}`" for each in required if each.value is None]
    if flags.FLAGS.is_parsed() and missing:
        return f"{' and '.join(missing)} must be given."
    text = str(error)
    match = re.fullmatch(r"flag --(\w+)=(.*?): .*", text, re.DOTALL)
    if match and hasattr(flags.FLAGS[match[1]], "said"):
        name, value = match.groups()
        return f"`--{name}` must be {_allowed(flags.FLAGS[name])}. Received {value!r}."
    if match := re.fullmatch(r"Missing value for flag -*(\w+)", text):
        return f"`--{match[1]}` must have a value, as in `--{match[1]}=...`."
    return f"Flags must be as `--help` shows them. {text.rstrip('.')}."


def _explain_unknown(name: str, value: str, script: str) -> str:
    """Returns what to type in place of a flag, and of its value, that a script does not have."""
    ours = name.replace("-", "_")
    if ours in _names():
        is_switch = ours not in flags.FLAGS or flags.FLAGS[ours].boolean
        given = f"={value}" if value and not is_switch else ""
        return f"There is no `--{name}`. Here: `--{ours}{given}`."
    if said := answer(name, value, _names()):
        return said
    own = [each.name for each in _own_flags()]
    own += [f"no{each.name}" for each in _own_flags() if each.boolean and name.startswith("no")]
    near = difflib.get_close_matches(name.lower().replace("-", "_"), own, n=2, cutoff=_NEAR)
    near = near or [each for each in own if name in each.split("_")][:3]
    guess = f" Did you mean {' or '.join(f'`--{each}`' for each in near)}?" if near else ""
    return f"`--{name}` must be a flag of {script}.{guess}"


def _allowed(flag: Any) -> str:
    """Returns what the value of a flag must be."""
    if flag.said.choices:
        return f"one of {', '.join(flag.said.choices)}"
    if flag.boolean:
        return "true or false"
    allowed = str(flag.parser.syntactic_help)
    article = "" if allowed.startswith(("a ", "an ")) else "an " if allowed[0] == "i" else "a "
    return f"{article}{allowed}"
