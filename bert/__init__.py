"""BERT on TensorFlow 2 and Keras 3: the packages that the scripts are built on.

The modules of the root are found here, too, for code that was written for a copy of the original in
a folder `bert` or for the package bert-tensorflow:

    from bert import run_classifier, tokenization
    from bert.modeling import BertModel

`bert.load`, `bert.make_model` and `bert.show_page` are defined in `bert.models.open`,
`bert.models.keras_models` and `bert.reports.page`. A module is loaded when it is first used, so
that `import bert` takes no time.
"""

from typing import TYPE_CHECKING

from bert import names

if TYPE_CHECKING:
    from bert.models.keras_models import make_model as make_model
    from bert.models.open import load as load
    from bert.reports.page import show_page as show_page

__version__ = "0.1.0"

LIBRARY = ("modeling", "optimization", "tokenization")

# In the order of README.
SCRIPTS = (
    "split_sentences",
    "create_pretraining_data",
    "run_pretraining",
    "fill_mask",
    "inspect_text",
    "create_vocab",
    "extend_vocab",
    "create_word_vectors",
    "run_classifier",
    "run_classifier_with_tfhub",
    "run_squad",
    "run_swag",
    "run_ner",
    "predict",
    "serve",
    "extract_features",
    "join_shards",
    "neighbours",
    "convert_checkpoint",
    "reproduce_paper",
)

__getattr__, __dir__ = names.serve_root(
    globals(),
    (*LIBRARY, *SCRIPTS),
    {
        "bert.models.open": ("load",),
        "bert.models.keras_models": ("make_model",),
        "bert.reports.page": ("show_page",),
    },
)
