"""Formats and precisions of an exported model, the options that choose them, and its runtime."""

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert.options import Message, MessageError, Option, OptionError, OptionGroup, option

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
# Whose operations cut words into pieces in a SavedModel: TensorFlow's own, or TensorFlow Text's.
WORDPIECES = (CORE, TEXT) = ("core", "tensorflow_text")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions(OptionGroup):
    """In which formats and precisions a model is exported."""

    GROUP = "output"

    export_format: str = option(
        "saved_model",
        Message(
            f"Formats that %s writes, comma-separated: {', '.join(MODEL_FILES)}.",
            Option("do_export"),
        ),
    )
    export_precision: str = option(
        "float32",
        "Precisions of the exported weights, comma-separated: float32; bfloat16, half the size "
        "(saved_model); int8, a quarter of the size (tflite, onnx). Other than float32, exports "
        "go to <output_dir>/<format>_<precision>.",
    )
    export_tokenizer: str = option(
        CORE,
        "Operations that cut words into pieces in a SavedModel: core, those of TensorFlow alone; "
        "tensorflow_text, the faster one of TensorFlow Text, which then must be wherever the "
        "SavedModel is loaded.",
        choices=WORDPIECES,
    )
    max_score_loss: float = option(
        0.01,
        "Refuse an export whose dev-set score is lower than that of the float32 model by more "
        "than this; of accuracy, by more than one example, too, unless this is 0.",
        low=0.0,
    )


# By extra of this package, what it installs: for a format, and for a tokenizer.
_PACKAGES: Mapping[str, Sequence[str]] = {
    "tflite": ("ai_edge_litert",),
    "onnx": ("tf2onnx", "onnx", "onnxruntime"),
    "text": ("tensorflow_text",),
}


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
        """The name of the folder within the output folder."""
        return self.format if self.precision == "float32" else f"{self.format}_{self.precision}"


@dataclasses.dataclass(frozen=True)
class Runtime:
    """Runs a model.

    Attributes:
      run: From the model's inputs to its outputs, arrays by name.
      ranks: By name of an input, the number of its dimensions.
      mixes_rows: Whether the outputs of a row depend on the other rows and on padding.
    """

    run: Callable[[Mapping[str, Any]], dict[str, Any]]
    ranks: Mapping[str, int]
    mixes_rows: bool = False

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return self.run(inputs)


def read_exports(options: ExportOptions) -> list[Export]:
    """Returns the exports that the options name: each format in each precision.

    Raises:
      OptionError: where a format cannot have a precision.
    """
    formats = _split("export_format", options.export_format, PRECISIONS)
    precisions = _split("export_precision", options.export_precision, ALL_PRECISIONS)
    exports = [Export(form, precision) for form in formats for precision in precisions]
    for export in exports:
        if export.precision not in PRECISIONS[export.format]:
            others = [name for name, known in PRECISIONS.items() if export.precision in known]
            can = f"which {' and '.join(others)} can have" if others else "which none has"
            raise OptionError(
                "export_precision",
                f"be one of {', '.join(PRECISIONS[export.format])} for {export.format}",
                Message("%r, %s", export.precision, can),
            )
    return exports


def _split(option: str, text: str, known: Mapping[str, Any] | Sequence[str]) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if len({*names}) < len(names) or any(name not in known for name in names):
        must = f"be among {', '.join(known)}, or several of them, each once, with commas between"
        raise OptionError(option, must, text)
    return names


def check_exports(options: ExportOptions, *, is_exported: bool) -> None:
    """Checks that the exports can be written on this machine.

    Raises:
      MessageError: where nothing is exported, though options say how, or packages are missing.
    """
    exports = read_exports(options)
    if not is_exported:
        if exports != [Export("saved_model", "float32")] or options.export_tokenizer != CORE:
            names = ("export_format", "export_precision", "export_tokenizer", "do_export")
            raise MessageError("%s, %s and %s need %s.", *map(Option, names))
        return
    if options.export_tokenizer == TEXT:
        if all(export.format != "saved_model" for export in exports):
            raise OptionError(
                "export_format",
                Message("hold saved_model for %s", Option("export_tokenizer", TEXT)),
                options.export_format,
                "The other formats take ids.",
            )
        check_installed("text", Option("export_tokenizer", TEXT))
    for form in dict.fromkeys(export.format for export in exports):
        check_installed(form, Option("export_format", form))


def missing_packages(form: str) -> list[str]:
    """Returns the packages of a format that are not there, without loading the others."""
    return [name for name in _PACKAGES.get(form, ()) if importlib.util.find_spec(name) is None]


def check_installed(form: str, what: Any) -> None:
    """Checks that the packages of a format are there, without loading them.

    Args:
      form: The name of the extra: a format, or `text`.
      what: The option or the text that names what needs them.

    Raises:
      MessageError: where one is missing.
    """
    if missing := missing_packages(form):
        names = " ".join(missing).replace("_", "-")
        raise MessageError(
            "%s needs packages that are not there: %s. Install them with `pip install %s`, or with "
            "this package as `pip install '.[%s]'`.",
            what,
            names,
            names,
            form,
        )
