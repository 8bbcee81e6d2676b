r"""Pre-trains BERT on masked LM and next-sentence prediction, and evaluates it (paper, 3.1).

    python run_pretraining.py --input_file=train.tfrecord --output_dir=pretrained \
      --bert_config_file=bert_config.json --do_train --do_eval --eval_input_file=held_out.tfrecord

Reads the records of create_pretraining_data.py. Run again, it resumes from the last checkpoint in
--output_dir. Old commands for the original's run_pretraining.py work unchanged.
"""

from typing import TYPE_CHECKING

from bert.commands import flags as common_flags
from bert.commands.console import run_script
from bert.commands.run_pretraining import Settings, check, run
from bert.names import serve


def define_flags() -> None:
    """Defines the flags (original: run_pretraining.py)."""
    common_flags.define(Settings, without_effect=common_flags.TPU_FLAGS)


def main(_: list[str]) -> None:
    """Runs the script on its flags."""
    settings = common_flags.read_settings(Settings)
    (check if settings.check else run)(settings)


# What people import from the original's run_pretraining.py.
if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = serve(
        globals(),
        {
            "absl": ("flags",),
            "absl.flags": ("FLAGS",),
            "modeling": (),
            "optimization": (),
            "bert.original.pretraining": (
                "model_fn_builder",
                "get_masked_lm_output",
                "get_next_sentence_output",
                "gather_indexes",
                "input_fn_builder",
                "decode_record as _decode_record",
            ),
            "bert.pretraining.heads": ("OBJECTIVE",),
        },
    )

if __name__ == "__main__":
    define_flags()
    run_script(main)
