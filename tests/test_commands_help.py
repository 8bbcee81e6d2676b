import importlib
import json
import re
import shlex
import sys

import pytest
from absl import flags
from conftest import run_python
from helpers.new_flags import new_flags

import bert
from bert.commands import help as command_line_help
from bert.commands.flags import GROUPS, WITHOUT_EFFECT
from bert.commands.help import help_text, parse_flags
from bert.commands.other_names import OTHERS, answer

__all__ = ["new_flags"]

SCRIPTS = [importlib.import_module(name) for name in bert.SCRIPTS]
by_name = pytest.mark.parametrize("script", SCRIPTS, ids=bert.SCRIPTS)


@by_name
def test_help_shows_every_flag_once_in_its_group(script, new_flags):
    own = new_flags(script)
    told = help_text(script.__doc__)
    assert told.startswith(script.__doc__.strip())
    assert max(map(len, told.splitlines())) <= 100
    title, rows = "", []
    for line in told[len(script.__doc__.strip()) :].splitlines():
        title = line if re.match(r"\S.*:$", line) else title
        rows += [(title, name) for name in re.findall(r"^  --(?:\[no\])?(\w+)", line)]
    expected = [
        (f"{GROUPS[each.said.group]}:", name)
        for name, each in own.items()
        if hasattr(each, "said") and each.help != WITHOUT_EFFECT
    ]
    own_rows = [row for row in rows if row[0][:-1] in GROUPS.values()]
    assert sorted(own_rows) == sorted(expected)
    for group in {title for title, _ in own_rows}:
        needed = [own[name].said.is_required for title, name in own_rows if title == group]
        assert needed == sorted(needed, reverse=True), group
    assert [title for title in GROUPS.values() if f"\n{title}:\n" in told] == list(
        dict.fromkeys(title[:-1] for title, _ in own_rows)
    )
    for name, each in own.items():
        if each.help == WITHOUT_EFFECT:
            assert re.search(rf"without effect:\n(  .*\n)*?  .*--{name}\b", told), name
    assert "--flagfile=FILE" in told


@by_name
def test_help_tells_what_is_required_and_what_holds_by_default(script, new_flags):
    own = {name: each for name, each in new_flags(script).items() if hasattr(each, "said")}
    shown = re.split(r"\n  (?=--)", help_text(script.__doc__).partition("\nMore:")[0])
    texts = {re.match(r"--(?:\[no\])?(\w+)", row)[1]: " ".join(row.split()) for row in shown[1:]}
    for name, each in own.items():
        if each.help == WITHOUT_EFFECT:
            continue
        assert ("required)" in texts[name]) == each.said.is_required, name
        # 0 is a default like any other.
        if each.default is not None and not each.boolean:
            assert f"default: {each.default}" in texts[name], name
        for choice in each.said.choices:
            assert choice in texts[name], name


@by_name
def test_the_example_of_a_script_can_be_pasted(script, new_flags):
    new_flags(script)
    lines = script.__doc__.replace("\\\n", " ").splitlines()
    examples = [each for each in lines if f"    python {script.__name__}.py" in each]
    assert examples
    for example in examples:
        words = shlex.split(example)[1:]
        end = next((i for i, word in enumerate(words) if word in (">", "|")), len(words))
        flags.FLAGS(words[:end])
        flags.FLAGS.unparse_flags()


@by_name
def test_what_is_called_otherwise_elsewhere_is_answered_with_a_flag(script, new_flags):
    new_flags(script)
    known = [*flags.FLAGS, *(f"no{name}" for name in flags.FLAGS if flags.FLAGS[name].boolean)]
    for name in set(OTHERS) - set(flags.FLAGS):
        said = answer(name, "1", known)
        for ours, value in re.findall(r"`--(\w+)(?:=(\w+))?`", said.partition("Here: ")[2]):
            assert ours in known, (name, said)
            if value and value != "1":
                flags.FLAGS[ours].parse(value)
    flags.FLAGS.unparse_flags()


@pytest.mark.parametrize(
    ("script", "name", "said"),
    [
        ("run_pretraining", "optim", "Here: `--optimizer`. Adam is the original's"),
        ("run_pretraining", "max_eval_samples", "Here: `--max_eval_steps`."),
        ("run_classifier", "model_revision", "as in owner/model@main"),
        ("run_classifier", "do_regression", "Here: `--task_type=regression`."),
        ("create_pretraining_data", "preprocessing_num_workers", "Here: `--num_workers=1`."),
        ("run_swag", "dataset_name", "Here: `--data_dir`. Data sets are files"),
        ("convert_checkpoint", "dataset_name", "name. Data sets are files"),
        # A remark on a flag that a script lacks says nothing of that script.
        ("run_pretraining", "metric_for_best_model", ""),
        ("run_pretraining", "validation_split_percentage", ""),
        ("create_pretraining_data", "batch_size", ""),
        ("create_pretraining_data", "num_gpus", ""),
    ],
)
def test_what_is_said_of_a_name_of_others_holds_for_the_script(script, name, said, new_flags):
    known = new_flags(SCRIPTS[bert.SCRIPTS.index(script)])
    given = answer(name, "1", known)
    assert said in given and bool(said) == bool(given)


@pytest.mark.parametrize(
    ("script", "ours"), [("run_classifier", "metric=f1"), ("run_swag", "early_stopping_patience")]
)
def test_the_metric_of_others_is_one_here_where_there_is_a_choice(script, ours, new_flags):
    known = new_flags(SCRIPTS[bert.SCRIPTS.index(script)])
    said = answer("metric_for_best_model", "f1", known)
    assert f"transformers' name. Here: `--{ours}`" in said and "best/" in said


def test_each_name_of_others_is_answered_in_some_script(new_flags):
    known = [set(new_flags(script)) for script in SCRIPTS[:1]]
    known += [
        {field for field in vars(script.Settings)["__dataclass_fields__"]} for script in SCRIPTS
    ]
    for name, other in OTHERS.items():
        ours = [re.match(r"--(no(?=do_|next_))?(\w+)", each)[2] for each in other.ours]
        ours = [each for each in ours if each != "verbosity"]
        assert all(any(each in names for names in known) for each in ours), name
        assert other.ours or other.remark


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--fp16", "`--fp16` is transformers' name. Here: `--precision=mixed_float16`."),
        ("--model_name_or_path=bert", "Here: `--init_checkpoint=bert`."),
        ("--per_device_train_batch_size 8", "Here: `--train_batch_size=8`. It is the total over"),
        ("--Lr=1e-5", "There is no `--Lr`. Here: `--learning_rate=1e-5`."),
        ("--weight-decay=0.1", "It is 0.01 here, as in the paper; no flag changes that."),
        ("--num_epochs=2", "There is no `--num_epochs`. Here: `--num_train_epochs=2`."),
        ("--do_lowercase", "Here: `--do_lower_case`."),
        (
            "--doc_stride=128",
            "There is no `--doc_stride`. Only run_squad.py and run_classifier.py read",
        ),
        ("--num_warmup_steps=100", "Here: `--warmup_proportion=0.1`."),
        ("--eval_every=100", "Here: `--save_checkpoints_steps=100`. Checkpoints and evaluations"),
        ("--use_xla", "There is no `--use_xla`. What gains from XLA is compiled with it by itself"),
        ("--optimizer=adam", "There is no `--optimizer`. Adam is the original's"),
        ("--deterministic", "There is no `--deterministic`. On a CPU, the same command gives"),
        ("--max_predict_samples=5", "Only run_squad.py predicts fewer examples"),
        # A flag with hyphens is that flag, whatever others say of its name.
        (
            "--max-train-samples 5",
            "There is no `--max-train-samples`. Here: `--max_train_samples=5",
        ),
        # The next flag is no value.
        ("--max-train-samples --do_train", "Here: `--max_train_samples`."),
        ("--overwrite-output-dir", "Here: `--overwrite_output_dir`."),
        ("--nodo-train 5", "Here: `--nodo_train`."),
        (
            "--trian_batch_size=8",
            "must be a flag of run_swag.py. Did you mean `--train_batch_size`",
        ),
        ("--run_name=a", "`--run_name` is transformers' name. Here: `--output_dir=a`. The folder"),
        ("--quantize", "`--quantize` must be a flag of run_swag.py. `--help` shows all flags."),
        ("--do_train", "`--output_dir` must be given."),
        ("--train_batch_size=0", "`--train_batch_size` must be a positive integer, or several"),
        (
            "--precision=float16",
            "`--precision` must be one of float32, mixed_bfloat16, mixed_float",
        ),
        ("--learning_rate=nan", "`--learning_rate` must be a non-negative number, or several"),
        ("--do_train=perhaps", "`--do_train` must be true or false. Received 'perhaps'."),
        ("--max_seq_length=3", "`--max_seq_length` must be an integer >= 4. Received '3'."),
        ("--data_dir", "`--data_dir` must have a value, as in `--data_dir=...`."),
        ("--nodo_train=1", "--nodo_train=1 does not take an argument."),
        ("--flagfile=nowhere", "Unable to open flagfile"),
    ],
)
def test_a_wrong_flag_is_answered_with_what_to_type(new_flags, log, arguments, line):
    new_flags(SCRIPTS[bert.SCRIPTS.index("run_swag")])
    with pytest.raises(SystemExit) as stopped:
        parse_flags(["there/run_swag.py", *arguments.split()])
    assert stopped.value.code == 1
    assert line in log.messages[-1]


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ([], "`--input_file` and `--output_file` must be given."),
        (["--input_file=a"], "`--output_file` must be given."),
    ],
)
def test_what_is_missing_is_asked_for_alone(new_flags, log, given, missing):
    new_flags(SCRIPTS[bert.SCRIPTS.index("create_vocab")])
    with pytest.raises(SystemExit):
        parse_flags(["create_vocab.py", *given])
    assert log.messages[-1].startswith(missing)


def test_two_swapped_letters_of_a_short_flag_are_forgiven(new_flags, log):
    new_flags(SCRIPTS[bert.SCRIPTS.index("serve")])
    with pytest.raises(SystemExit):
        parse_flags(["serve.py", "--model_dir=a", "--prot=8501", "--hots=a"])
    assert log.messages[-1].splitlines() == [
        "`--prot` must be a flag of serve.py. Did you mean `--port`?",
        "`--hots` must be a flag of serve.py. Did you mean `--host`? `--help` shows all flags.",
    ]


def test_all_unknown_flags_are_answered_at_once_and_only_near_ones_are_suggested(new_flags, log):
    new_flags(SCRIPTS[bert.SCRIPTS.index("run_classifier")])
    words = "--model_name_or_path bert --do_train --split_sed=8 --fp16 --max_steps 9 --tie_rate"
    with pytest.raises(SystemExit):
        parse_flags(["run_classifier.py", *words.split(), "--", "--bf16"])
    assert log.messages[-1].splitlines() == [
        "`--model_name_or_path` is transformers' name. Here: `--init_checkpoint=bert`.",
        "`--split_sed` must be a flag of run_classifier.py. Did you mean `--split_seed`?",
        "`--fp16` is transformers' name. Here: `--precision=mixed_float16`.",
        "`--max_steps` is transformers' name. Here: `--num_train_epochs`.",
        "`--tie_rate` must be a flag of run_classifier.py. `--help` shows all flags.",
    ]


@pytest.mark.parametrize(
    ("name", "flag", "said"),
    [
        ("serve", "overwrite_output_dir", "Only scripts that train delete what"),
        ("create_pretraining_data", "overwrite_output_dir", "Here: `--overwrite`."),
        ("run_pretraining", "no_nsp", "Here: `--objective=masked_lm`."),
        ("create_pretraining_data", "no_nsp", "Here: `--nonext_sentence`."),
    ],
)
def test_an_answer_is_that_of_the_script(new_flags, log, name, flag, said):
    new_flags(SCRIPTS[bert.SCRIPTS.index(name)])
    with pytest.raises(SystemExit):
        parse_flags([f"{name}.py", f"--{flag}"])
    assert log.messages[-1].startswith(f"There is no `--{flag}`. {said}")


@pytest.mark.parametrize("word", ["-h", "--help", "-help", "--helpshort", "-?"])
def test_help_ends_well_and_without_the_names_of_modules(new_flags, capsys, monkeypatch, word):
    script = SCRIPTS[bert.SCRIPTS.index("run_swag")]
    new_flags(script)
    monkeypatch.setitem(sys.modules, "__main__", script)
    with pytest.raises(SystemExit) as stopped:
        parse_flags(["run_swag.py", "--do_train", word])
    assert not stopped.value.code
    assert capsys.readouterr().out == f"{help_text(script.__doc__)}\n"


def test_what_stands_behind_two_dashes_is_no_question_for_help(new_flags):
    new_flags(SCRIPTS[bert.SCRIPTS.index("fill_mask")])
    left = parse_flags(["fill_mask.py", "--checkpoint=bert", "--", "-h", "--help"])
    assert left == ["fill_mask.py", "-h", "--help"]


QUICKLY = """
import json, runpy, sys
from absl import flags, logging
ends, others = [], {*flags.FLAGS}
for arguments in json.loads(sys.argv[1]):
    sys.argv = arguments
    try:
        runpy.run_module(arguments[0].removesuffix(".py"), run_name="__main__", alter_sys=True)
    except SystemExit as end:
        ends.append(end.code or 0)
    for name in {*flags.FLAGS} - others:
        delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()
print()
print(json.dumps([ends, sorted({"keras", "numpy", "tensorflow"} & sys.modules.keys())]))
"""


def test_help_and_wrong_flags_need_neither_tensorflow_nor_numpy():
    helped = [
        "run_classifier.py",
        "run_ner.py",
        "run_pretraining.py",
        "run_squad.py",
        "run_swag.py",
    ]
    lines = [[name, "--help"] for name in helped]
    lines += [["predict.py", "--modle_dir=a"], ["convert_checkpoint.py"]]
    result = run_python("-c", QUICKLY, json.dumps(lines))
    ends = [0] * len(helped) + [1, 1]
    assert json.loads(result.stdout.splitlines()[-1]) == [ends, []]
    assert "Did you mean `--model_dir`" in result.stderr


def test_help_is_as_wide_as_the_terminal_within_reason(new_flags, monkeypatch):
    new_flags(SCRIPTS[0])
    widths = []
    for columns in ("40", "92", "300"):
        monkeypatch.setenv("COLUMNS", columns)
        told = help_text("A story.").partition("\n\n")[2]
        widths.append(max(map(len, told.splitlines())))
    assert widths[0] <= 80 < widths[1] <= 92 < widths[2] <= 100
    assert command_line_help.help_text("") != ""
