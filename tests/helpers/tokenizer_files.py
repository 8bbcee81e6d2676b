"""What tests of several modules share of the JSON files of Hugging Face models."""

import json

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "é"]


def write(path, *, added=(), normalizer=None, **model):
    ids = {token: number for number, token in enumerate(VOCAB)}
    # Whatever the order of the file, ids count.
    vocab = dict(sorted(ids.items()))
    values = {
        "added_tokens": list(added),
        "normalizer": normalizer,
        "model": {"type": "WordPiece", "vocab": vocab, **model},
    }
    path.write_text(json.dumps(values), encoding="utf-8")
    return str(path)


# As transformers 5.23 writes it.
CONFIG = {
    "add_cross_attention": False,
    "architectures": ["BertForPreTraining"],
    "attention_probs_dropout_prob": 0.0,
    "bos_token_id": None,
    "classifier_dropout": None,
    "dtype": "float32",
    "eos_token_id": None,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "hidden_size": 8,
    "initializer_range": 0.02,
    "intermediate_size": 12,
    "is_decoder": False,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 16,
    "model_type": "bert",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": True,
    "transformers_version": "5.23.0",
    "type_vocab_size": 3,
    "use_cache": True,
    "vocab_size": 29,
}
