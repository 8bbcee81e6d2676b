import dataclasses
from pathlib import Path

import pytest
from absl import flags
from helpers.new_flags import new_flags

import convert_checkpoint
import create_pretraining_data
import create_vocab
import extend_vocab
import extract_features
import fill_mask
import inspect_text
import modeling
import neighbours
import predict
import run_classifier
import run_classifier_with_tfhub
import run_ner
import run_pretraining
import run_squad
import run_swag
import split_sentences
from bert.commands.flags import WITHOUT_EFFECT, changed_flags, define, read_settings
from bert.options import (
    REQUIRED,
    OptionError,
    OptionGroup,
    fields_by_class,
    option,
    read_grid,
    several,
)
from bert.runs.recipes import EvaluatedSteps, Steps

__all__ = ["new_flags"]

SCRIPTS = (
    *(convert_checkpoint, create_pretraining_data, create_vocab, extend_vocab, extract_features),
    *(fill_mask, neighbours, predict, run_classifier, run_classifier_with_tfhub, run_ner),
    *(run_pretraining, run_squad, run_swag, split_sentences),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lamp:
    name: str = option(REQUIRED, "Its name.")
    shade: str = option("", "Its shade, if any.")
    color: str = option("white", "Its color.", choices=("white", "red"))
    switches: int = option(1, "How many switches it has.", low=1, high=3)
    watts: float | None = option(None, "Its power; absent, unknown.", low=0.0)
    is_on: bool = option(False, "Whether it is on.", alias="on")
    is_new: bool | None = option(None, "Whether it is new; absent, unknown.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Switched(Lamp):
    switches: int = 2
    is_on: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class NightLamp(Switched):
    color: str = "red"


def fields_of(script):
    kinds = [script.Settings]
    if script is run_classifier_with_tfhub:
        kinds.append(run_classifier.Settings)
    return {field.name: field for kind in kinds for field in dataclasses.fields(kind)}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_each_flag_is_a_field_of_the_same_default_unless_it_is_without_effect(script, new_flags):
    defined, fields = new_flags(script), fields_of(script)
    aliases = {name for name, each in defined.items() if each.help.startswith("Alias for ")}
    without_effect = {name for name, each in defined.items() if each.help == WITHOUT_EFFECT}
    assert aliases <= {"do_lower"}
    assert defined.keys() - aliases == fields.keys() | without_effect
    for name, field in fields.items():
        is_absent = field.default is REQUIRED or field.default == ""
        assert defined[name].default == (None if is_absent else field.default), name


# Flags of the scripts of the original, and their defaults.
ORIGINAL = {
    "bert_config_file": None,
    "output_dir": None,
    "init_checkpoint": None,
    "do_train": False,
    "train_batch_size": 32,
    "learning_rate": 5e-5,
    "save_checkpoints_steps": 1000,
    "iterations_per_loop": 1000,
    "use_tpu": False,
    "tpu_name": None,
    "tpu_zone": None,
    "gcp_project": None,
    "master": None,
    "num_tpu_cores": 8,
}
ORIGINAL_OF_FINE_TUNING = {
    **ORIGINAL,
    "vocab_file": None,
    # The folder of a model may say it; where it does not, the original's default holds.
    "do_lower_case": None,
    "do_predict": False,
    "predict_batch_size": 8,
    "num_train_epochs": 3.0,
    "warmup_proportion": 0.1,
}
DEFAULTS = {
    run_classifier: {
        **ORIGINAL_OF_FINE_TUNING,
        "data_dir": None,
        "task_name": None,
        "max_seq_length": 128,
        "do_eval": False,
        "eval_batch_size": 8,
    },
    run_squad: {
        **ORIGINAL_OF_FINE_TUNING,
        "train_file": None,
        "predict_file": None,
        "max_seq_length": 384,
        "doc_stride": 128,
        "max_query_length": 64,
        "n_best_size": 20,
        "max_answer_length": 30,
        "verbose_logging": False,
        "version_2_with_negative": False,
        "null_score_diff_threshold": 0.0,
    },
    run_pretraining: {
        **ORIGINAL,
        "input_file": None,
        # As the index beside the records says, or else 128 and 20.
        "max_seq_length": None,
        "max_predictions_per_seq": None,
        "do_eval": False,
        "eval_batch_size": 8,
        "num_train_steps": 100000,
        "num_warmup_steps": 10000,
        "max_eval_steps": 100,
    },
    extract_features: {
        **dict.fromkeys(("input_file", "output_file", "bert_config_file", "init_checkpoint")),
        **dict.fromkeys(("vocab_file", "do_lower_case", "master")),
        # The last four for JSON Lines, and the last one for a matrix; the length is 128.
        **dict.fromkeys(("layers", "max_seq_length")),
        "batch_size": 32,
        "use_tpu": False,
        "num_tpu_cores": 8,
        "use_one_hot_embeddings": False,
    },
    run_swag: {"train_batch_size": 16, "learning_rate": 2e-5, "num_train_epochs": 3.0},
    run_ner: {"text_column": 0, "label_column": -1, "scheme": None},
}


@pytest.mark.parametrize("script", DEFAULTS, ids=lambda script: script.__name__)
def test_flags_have_the_defaults_of_the_original_or_of_the_paper(script, new_flags):
    defined = new_flags(script)
    assert {name: defined[name].default for name in DEFAULTS[script]} == DEFAULTS[script]
    if script not in (run_pretraining, extract_features):
        assert script.Settings.LOWERS_BY_DEFAULT is (script is not run_ner)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_help_shows_all_flags_under_the_script(script, new_flags):
    # As the last lines of the script do it.
    exec("define_flags()", vars(script))
    shown = {each.name for each in flags.FLAGS.get_key_flags_for_module(script.__name__)}
    assert shown == new_flags().keys()


def test_a_program_defines_and_reads_the_flags_of_a_script_itself(new_flags):
    config = modeling.BertConfig(vocab_size=29, max_position_embeddings=16)
    with pytest.raises(ValueError, match="flags must be defined before they are read"):
        run_squad.validate_flags_or_throw(config)
    run_squad.define_flags()
    files = [f"--{name}=x" for name in ("vocab_file", "bert_config_file", "output_dir")]
    run_squad.FLAGS(["program", *files, "--do_export", "--max_seq_length=17"])
    assert run_squad.FLAGS.max_seq_length == new_flags()["max_seq_length"].value == 17
    with pytest.raises(ValueError, match="`max_seq_length` must be greater than 67"):
        run_squad.validate_flags_or_throw(config)


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ([], {}),
        (["--shade=", "--color=red", "--switches=3"], {"color": "red", "switches": 3}),
        (["--shade=paper", "--watts=40", "--is_on"], {"shade": "paper", "watts": 40.0}),
        (["--noon", "--nois_new"], {"is_on": False, "is_new": False}),
        (["--is_on=false", "--is_new"], {"is_on": False, "is_new": True}),
    ],
)
@pytest.mark.usefixtures("new_flags")
def test_settings_are_those_of_the_command_line(arguments, changes):
    define(Switched)
    flags.FLAGS(["script", "--name=desk", *arguments])
    assert read_settings(Switched) == Switched(name="desk", **changes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dimmed(Switched):
    volts: float = several(option(12.0, "Its voltage.", low=0.0))
    bulbs: int = several(option(1, "How many bulbs it has.", low=1))


def test_settings_take_path_objects_and_have_the_bounds_of_flags():
    for kind in {script.Settings for script in SCRIPTS}:
        fields = dataclasses.fields(kind)
        required = {field.name for field in fields if field.default is dataclasses.MISSING}
        choices = {"format": "tf"} if "format" in required else {}
        given, typed = ({**dict.fromkeys(required, each), **choices} for each in (Path("a"), "a"))
        assert kind(**given) == kind(**typed)
        # Each group checks its values where a recipe has it alone.
        assert all(issubclass(owner, OptionGroup) for owner, _ in fields_by_class(kind))
    with pytest.raises(OptionError, match="`batch_size` must be at least 1"):
        predict.Settings(model_dir="a", batch_size=0)


@pytest.mark.parametrize(
    "script", [each for each in (*SCRIPTS, inspect_text) if each is not run_classifier_with_tfhub]
)
def test_a_program_cannot_take_a_run_for_its_dry_run(script):
    fields = dataclasses.fields(script.Settings)
    required = [field.name for field in fields if field.default is dataclasses.MISSING]
    choices = {"format": "tf"} if "format" in required else {}
    settings = script.Settings(**{**dict.fromkeys(required, "a"), **choices, "check": True})
    with pytest.raises(OptionError, match="`check` must be left out of a run"):
        script.run(settings, *[[]] * (script is inspect_text))


@pytest.mark.usefixtures("new_flags")
def test_a_flag_may_have_several_values():
    define(Dimmed)
    flags.FLAGS(["script", "--name=desk", "--volts=6,1.2e1, 24", "--bulbs=2"])
    settings = read_settings(Dimmed)
    assert (settings.volts, settings.bulbs) == ((6.0, 12.0, 24.0), 2)
    assert read_grid(settings) == {"volts": (6.0, 12.0, 24.0)}
    assert flags.FLAGS["volts"].serialize() == "--volts=6.0,12.0,24.0"
    assert flags.FLAGS["bulbs"].serialize() == "--bulbs=2"
    assert "Several values, comma-separated" in flags.FLAGS["volts"].help
    assert read_grid(Dimmed(name="desk")) == {}


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--volts=6,many", "--volts=6,many: could not convert string to float: 'many'"),
        ("--volts=6,", "--volts=6,: could not convert string to float: ''"),
        ("--volts=6,-1", r"--volts=6,-1: -1\.0 is not a non-negative number"),
        ("--volts=6,nan", "--volts=6,nan: it must be a finite number"),
        ("--bulbs=1,0", "--bulbs=1,0: 0 is not a positive integer"),
        ("--bulbs=1,1.5", r"--bulbs=1,1\.5: invalid literal for int"),
        ("--watts=40,60", "--watts=40,60: could not convert string to float: '40,60'"),
    ],
)
@pytest.mark.usefixtures("new_flags")
def test_each_of_several_values_is_checked(argument, message):
    define(Dimmed)
    with pytest.raises(flags.IllegalFlagValueError, match=message):
        flags.FLAGS(["script", "--name=desk", argument])


@pytest.mark.usefixtures("new_flags")
def test_an_unset_shell_variable_is_no_path():
    define(run_ner.Settings)
    given = dict.fromkeys(("output_dir", "init_checkpoint", "teacher", "word_vectors"), "there")
    for name in given:
        flags.FLAGS(["script", *(f"--{key}={value}" for key, value in {**given, name: ""}.items())])
        with pytest.raises(OptionError, match=f"`{name}` must not be empty"):
            read_settings(run_ner.Settings)
    arguments = {**given, "output_dir": "out", "vocab_file": ""}
    flags.FLAGS(["script", *(f"--{key}={value}" for key, value in arguments.items())])
    assert read_settings(run_ner.Settings).output_dir == "out"


@pytest.mark.usefixtures("new_flags")
def test_an_empty_path_leaves_out_a_file_that_has_a_name_by_default():
    define(inspect_text.Settings)
    flags.FLAGS(["script", "--model_dir=there", "--output_file="])
    assert read_settings(inspect_text.Settings).output_file == ""


@pytest.mark.usefixtures("new_flags")
def test_what_is_required_is_not_empty_whatever_its_name():
    define(fill_mask.Settings)
    flags.FLAGS(["script", "--checkpoint="])
    with pytest.raises(OptionError, match="`checkpoint` must not be empty"):
        read_settings(fill_mask.Settings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"--name=None: Flag --name must have a value other than None"),
        (["--switches=0"], r"--switches=0: 0 is not an integer in the range \[1, 3\]"),
        (["--switches=4"], r"--switches=4: 4 is not an integer in the range \[1, 3\]"),
        (["--switches=many"], "--switches=many: invalid literal for int"),
        (["--watts=-1"], "--watts=-1: -1.0 is not a non-negative number"),
        (["--watts=nan"], "--watts=nan: it must be a finite number. Received 'nan'"),
        (["--watts=1e999"], "--watts=1e999: it must be a finite number"),
        (["--watts=-Infinity"], "--watts=-Infinity: it must be a finite number"),
        (["--color=blue"], "--color=blue: value should be one of <white|red>"),
        (["--is_on=perhaps"], r"--is_on=perhaps: \('Non-boolean argument"),
    ],
)
@pytest.mark.parametrize("kind", [Lamp, NightLamp])
@pytest.mark.usefixtures("new_flags")
def test_what_a_flag_may_not_be_is_refused(kind, arguments, message):
    define(kind)
    with pytest.raises(flags.IllegalFlagValueError, match=message):
        flags.FLAGS(["script", *arguments])


@pytest.mark.parametrize(
    ("least", "names"),
    [
        (1, "max_seq_length max_predictions_per_seq train_batch_size eval_batch_size"),
        (1, "num_train_steps save_checkpoints_steps gradient_accumulation_steps"),
        (1, "max_eval_steps log_every_steps"),
        (0, "learning_rate num_warmup_steps keep_checkpoint_max"),
    ],
)
def test_numbers_of_pretraining_have_a_least_value(least, names, new_flags):
    defined = new_flags(run_pretraining)
    for name in names.split():
        defined[name].parse(str(least))
        with pytest.raises(flags.IllegalFlagValueError, match=f"--{name}={least - 1}"):
            defined[name].parse(str(least - 1))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_no_flag_takes_what_is_not_a_finite_number(script, value, new_flags):
    script.define_flags()
    for each in new_flags().values():
        if isinstance(each.parser, flags.FloatParser):
            with pytest.raises(flags.IllegalFlagValueError, match="must be a finite number"):
                each.parse(value)
            assert each.flag_type() == "float"
            each.parse("0.5")
            assert each.value == 0.5


def test_an_overridden_default_reaches_flag_alias_and_help(new_flags):
    define(NightLamp)
    defaults = {name: each.default for name, each in new_flags().items()}
    assert defaults == {
        **{"name": None, "shade": None, "color": "red", "switches": 2, "watts": None},
        **{"is_on": True, "on": True, "is_new": None},
    }
    text = " ".join(flags.FLAGS.module_help(__name__).split())
    assert "--color: <white|red>: Its color. (default: 'red')" in text
    assert "--switches: How many switches it has. (default: '2')" in text
    assert "--[no]is_on: Whether it is on. (default: 'true')" in text
    assert "--[no]on: Alias for --is_on. (default: 'true')" in text


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (run_squad, {"max_seq_length": 384, "do_lower": None}),
        (run_swag, {"max_seq_length": 128, "train_batch_size": 16, "learning_rate": 2e-5}),
        (run_ner, {"do_lower_case": None, "do_lower": None}),
    ],
    ids=["run_squad", "run_swag", "run_ner"],
)
def test_scripts_override_shared_defaults_and_keep_the_bounds(script, expected, new_flags):
    script.define_flags()
    defined = new_flags()
    assert {name: defined[name].default for name in expected} == expected
    message = "--max_seq_length=3: 3 is not integer >= 4"
    with pytest.raises(flags.IllegalFlagValueError, match=message):
        defined["max_seq_length"].parse("3")


@pytest.mark.parametrize("is_set", [{"do_train"}, {"do_predict"}, {"do_eval", "do_train"}])
def test_splits_are_those_that_options_name(is_set):
    given = {name: name in is_set for name in ("do_train", "do_predict", "do_eval")}
    splits = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}
    assert EvaluatedSteps(**given).splits == [name for name in splits if given[splits[name]]]
    del given["do_eval"]
    splits = {"train": "do_train", "dev": "do_predict"}
    assert Steps(**given).splits == [name for name in splits if given[splits[name]]]


def test_changed_flags_can_be_pasted():
    settings = run_classifier.Settings(
        task_name="my task", data_dir="d", output_dir="o", do_lower_case=False, do_eval=True, seed=7
    )
    assert sorted(changed_flags(settings)) == [
        *("--data_dir=d", "--do_eval", "--nodo_lower_case", "--output_dir=o", "--seed=7"),
        "--task_name='my task'",
    ]


def test_help_shows_other_options_as_they_are_typed(new_flags):
    create_pretraining_data.define_flags()
    assert flags.FLAGS["memory_gb"].help.startswith("With --streaming, maximum memory")
