"""Formats and precisions of an exported model, and the options that choose among them."""

import dataclasses
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from bert.options import option

# By format, the precisions that it can have.
PRECISIONS: Mapping[str, Sequence[str]] = {
    "saved_model": ("float32", "bfloat16"),
    "tflite": ("float32", "int8"),
    "onnx": ("float32", "int8"),
}
MODEL_FILES: Mapping[str, str] = {
    "saved_model": "saved_model.pb",
    "tflite": "model.tflite",
    "onnx": "model.onnx",
}
ALL_PRECISIONS = ("float32", "bfloat16", "int8")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """In which formats and precisions a model is exported."""

    GROUP = "output"

    export_format: str = option(
        "saved_model",
        f"Formats that --do_export writes, comma-separated: {', '.join(MODEL_FILES)}.",
    )
    export_precision: str = option(
        "float32",
        "Precisions of the exported weights, comma-separated: float32; bfloat16, half the size "
        "(saved_model); int8, a quarter of the size (tflite, onnx). Other than float32, exports "
        "go to <output_dir>/<format>_<precision>.",
    )
    max_score_loss: float = option(
        0.01,
        "Refuse an export whose dev-set score is lower than that of the float32 model by more "
        "than this; of accuracy, by more than one example, too, unless this is 0.",
        low=0.0,
    )


# By format, the packages that write and run it; they are an extra of this package of that name.
_PACKAGES: Mapping[str, Sequence[str]] = {
    "tflite": ("ai_edge_litert",),
    "onnx": ("tf2onnx", "onnx", "onnxruntime"),
}
# Their names on the package index where they are others.
_PIP_NAMES = {"ai_edge_litert": "ai-edge-litert"}


@dataclasses.dataclass(frozen=True)
class Export:
    """A form of a model.

    Attributes:
      format: One of `PRECISIONS`.
      precision: One of `ALL_PRECISIONS`.
    """

    format: str
    precision: str

    @property
    def name(self) -> str:
        """That of its folder within `--output_dir`."""
        return self.format if self.precision == "float32" else f"{self.format}_{self.precision}"

    @property
    def file(self) -> str:
        """That in the folder which makes it one of this format."""
        return MODEL_FILES[self.format]


def read_exports(settings: Any) -> list[Export]:
    """Returns what `--export_format` and `--export_precision` ask for: each with each.

    Raises:
      ValueError: where there is no such form.
    """
    formats = _split("export_format", settings.export_format, PRECISIONS)
    precisions = _split("export_precision", settings.export_precision, ALL_PRECISIONS)
    exports = [Export(form, precision) for form in formats for precision in precisions]
    for each in exports:
        if each.precision not in PRECISIONS[each.format]:
            others = [name for name, known in PRECISIONS.items() if each.precision in known]
            raise ValueError(
                f"`--export_precision` must be one of {', '.join(PRECISIONS[each.format])} for "
                f"{each.format}. Received {each.precision!r}"
                + (f", which {' and '.join(others)} can have." if others else ", which none has.")
            )
    return exports


def _split(flag: str, text: str, known: Mapping[str, Any] | Sequence[str]) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if len({*names}) < len(names) or any(name not in known for name in names):
        raise ValueError(
            f"`--{flag}` must be among {', '.join(known)}, or several of them, each once, with "
            f"commas between. Received {text!r}."
        )
    return names


def check_exports(settings: Any) -> None:
    """Checks that what is asked for can be written here.

    Raises:
      ValueError: where nothing is to be exported, though it is told how, or packages are missing.
    """
    exports = read_exports(settings)
    if not settings.do_export:
        if exports != [Export("saved_model", "float32")]:
            raise ValueError("`--export_format` and `--export_precision` need `--do_export`.")
        return
    for form in dict.fromkeys(each.format for each in exports):
        check_installed(form, f"`--export_format={form}`")


def check_installed(form: str, what: str) -> None:
    """Checks that the packages of a format are there, without loading them.

    Args:
      form: One of `PRECISIONS`.
      what: What needs them, to begin the message.

    Raises:
      ValueError: where one is missing.
    """
    needed = _PACKAGES.get(form, ())
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        names = " ".join(_PIP_NAMES.get(name, name) for name in missing)
        raise ValueError(
            f"{what} needs packages that are not there: {names}. Install them with `pip install "
            f"{names}`, or with this package as `pip install '.[{form}]'`."
        )
