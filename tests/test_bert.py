import importlib
import random
import subprocess
import sys

import pytest
from conftest import ROOT, run_python

import bert
import run_classifier
import tokenization
from bert import optimization


def test_modules_of_the_root_are_found_as_the_same_objects():
    assert optimization is sys.modules["optimization"]
    assert bert.tokenization is tokenization
    assert bert.run_classifier is run_classifier
    specification = tokenization.__spec__
    for name in ("tokenization", "run_classifier"):
        assert importlib.import_module(f"bert.{name}") is sys.modules[name]
    # Importing a module again under its other name leaves it what it is.
    assert tokenization.__spec__ is specification and specification.name == "tokenization"


def test_names_are_listed():
    assert {*bert.LIBRARY, *bert.SCRIPTS, "load"} <= set(dir(bert))


def test_wrong_name_is_an_error():
    with pytest.raises(AttributeError, match="module 'bert' has no attribute 'tokenisation'"):
        bert.tokenisation  # noqa: B018


def test_import_loads_nothing_else():
    code = "import sys, bert; dir(bert); print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    heavy = {"tensorflow", "keras", "numpy", "absl", *bert.LIBRARY, *bert.SCRIPTS}
    assert heavy & set(result.stdout.split()) == set()


def test_other_modules_are_not_found_in_the_package():
    for name in ("bert.tests", "bert.conftest", "tokenisation", "modeling.bert"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)


# As google-research/language, the original's notebook, bluebert and BERT-NER import them.
IMPORTS = """
from bert import modeling, optimization, tokenization
from bert import create_pretraining_data, extract_features, run_classifier
from bert import run_classifier_with_tfhub, run_pretraining, run_squad
import bert
import bert.modeling
import bert.optimization as other_optimization
from bert.modeling import BertModel
from bert.tokenization import FullTokenizer
import sys
for name in (*bert.LIBRARY, "extract_features", "run_classifier", "run_pretraining", "run_squad"):
    assert getattr(bert, name) is sys.modules[name]
assert bert.modeling is modeling and BertModel is modeling.BertModel
assert other_optimization is optimization and bert.load.__module__ == "bert.models.open"
print(bert.__file__)
"""


def run_in(folder, code, *arguments, **env):
    return run_python("-c", code, *arguments, check=False, folder=folder, **env)


# A program may have no standard error, and draws the same numbers.
QUIETLY = """
import os, random
os.close(2)
random.seed(3)
from bert.files.process import import_tensorflow
import_tensorflow()
import keras
print(random.random(), keras.__name__)
"""


@pytest.mark.slow
def test_modules_are_found_where_the_clone_is_first_on_the_path(tmp_path):
    result = run_in(tmp_path, QUIETLY + IMPORTS, PYTHONPATH=str(ROOT))
    drawn, path = f"{random.Random(3).random()} keras", str(ROOT / "bert" / "__init__.py")
    assert (result.returncode, result.stdout.splitlines()) == (0, [drawn, path])


@pytest.fixture
def above(tmp_path):
    """A folder with a clone in a folder `bert`, and with code of its own."""
    (tmp_path / "bert").symlink_to(ROOT, target_is_directory=True)
    (tmp_path / "predict.py").write_text("OWN = True\n")
    return tmp_path


@pytest.mark.exhaustive
def test_modules_are_found_in_a_clone_that_is_a_folder_named_bert(above):
    """`git clone ... bert`, and then from the folder above; whose own modules come first there."""
    result = run_in(above, f"{IMPORTS}\nimport predict\nassert predict.OWN")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(ROOT / "bert" / "__init__.py")


def test_a_clone_within_a_package_is_found(above):
    (above / "project").mkdir()
    (above / "bert").rename(above / "project" / "bert")
    code = (
        "from project.bert import tokenization\n"
        "from project.bert.tokenization import FullTokenizer\n"
        "import bert\nassert bert.tokenization is tokenization\n"
        "assert tokenization.FullTokenizer is FullTokenizer"
    )
    result = run_in(above, code)
    assert result.returncode == 0, result.stderr


def test_the_command_runs_from_the_folder_above(above):
    result = subprocess.run(
        [sys.executable, "-m", "bert"], cwd=above, capture_output=True, text=True, check=False
    )
    assert "run_classifier" in result.stdout and result.stderr == ""


@pytest.mark.parametrize("statement", ["from bert import tokenization", "import bert.tokenization"])
def test_a_module_of_that_name_that_comes_first_is_refused(above, statement):
    (above / "tokenization.py").write_text("OWN = True\n")
    result = run_in(above, statement)
    assert "ImportError: `tokenization` must be the module in " in result.stderr
    assert "Rename that one." in result.stderr


# The functions and classes of the original's files.
ORIGINAL = {
    "modeling": "BertConfig BertModel gelu get_activation get_assignment_map_from_checkpoint "
    "dropout layer_norm layer_norm_and_dropout create_initializer embedding_lookup "
    "embedding_postprocessor create_attention_mask_from_input_mask attention_layer "
    "transformer_model get_shape_list reshape_to_matrix reshape_from_matrix assert_rank",
    "tokenization": "validate_case_matches_checkpoint convert_to_unicode printable_text "
    "load_vocab convert_by_vocab convert_tokens_to_ids convert_ids_to_tokens whitespace_tokenize "
    "FullTokenizer BasicTokenizer WordpieceTokenizer _is_whitespace _is_control _is_punctuation",
    "optimization": "create_optimizer AdamWeightDecayOptimizer",
    "create_pretraining_data": "TrainingInstance write_instance_to_example_files "
    "create_int_feature create_float_feature create_training_instances "
    "create_instances_from_document MaskedLmInstance create_masked_lm_predictions "
    "truncate_seq_pair main",
    "run_pretraining": "model_fn_builder get_masked_lm_output get_next_sentence_output "
    "gather_indexes input_fn_builder _decode_record main",
    "run_classifier": "InputExample PaddingInputExample InputFeatures DataProcessor XnliProcessor "
    "MnliProcessor MrpcProcessor ColaProcessor convert_single_example "
    "file_based_convert_examples_to_features file_based_input_fn_builder _truncate_seq_pair "
    "create_model model_fn_builder input_fn_builder convert_examples_to_features main "
    "modeling optimization tokenization",
    "run_classifier_with_tfhub": "model_fn_builder create_tokenizer_from_hub_module "
    "main optimization run_classifier tokenization",
    "run_squad": "SquadExample InputFeatures read_squad_examples convert_examples_to_features "
    "_improve_answer_span _check_is_max_context create_model model_fn_builder input_fn_builder "
    "RawResult write_predictions get_final_text _get_best_indexes _compute_softmax FeatureWriter "
    "main modeling optimization tokenization",
    "extract_features": "InputExample InputFeatures input_fn_builder model_fn_builder "
    "convert_examples_to_features _truncate_seq_pair read_examples main modeling tokenization",
}


@pytest.mark.parametrize("module", ORIGINAL)
def test_all_names_of_the_original_are_there(module):
    names = ORIGINAL[module].split()
    imported: dict[str, object] = {}
    exec(f"from {module} import *", imported)
    for name in names:
        value = getattr(importlib.import_module(module), name)
        assert imported.get(name, value) is value
    assert {name for name in names if name[0] != "_"} <= imported.keys()


def test_every_script_and_module_of_the_library_is_named():
    # Whatever else lies at the root has a room to go to.
    scripts = {
        path.stem for path in ROOT.glob("*.py") if "\n    run_script(main" in path.read_text()
    }
    assert scripts == set(bert.SCRIPTS)
    assert all((ROOT / f"{name}.py").exists() for name in bert.LIBRARY)
