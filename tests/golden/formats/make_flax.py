"""Saves small models of random weights as transformers does with Flax, and their outputs.

    python3.11 -m pip install transformers==4.49.0 flax==0.10.2 jax==0.4.35 jaxlib==0.4.35 'numpy<2'
    python3.11 make_flax.py

`flax.zip` has a folder for each model: its files, and what it computes in `outputs.npz`.
"""

import jax
import numpy as np
import transformers
from common import CONFIG, draw_weights, make_inputs, save_outputs, write_archive
from flax.traverse_util import flatten_dict, unflatten_dict

HEADS = {
    "BertModel": {},
    "BertForPreTraining": {"hidden_act": "gelu_new"},
    "BertForSequenceClassification": {"num_labels": 3},
    "BertForQuestionAnswering": {},
}


def save(root, name, architecture, options, **saving):
    """Draws the weights of a model, and saves it with its inputs and outputs."""
    config = transformers.BertConfig(**{**CONFIG, **options})
    model = getattr(transformers, f"Flax{architecture}")(config)
    flat = flatten_dict(model.params)
    names = [("/".join(path), value.shape) for path, value in flat.items()]
    drawn = zip(flat, draw_weights(names), strict=True)
    model.params = unflatten_dict({path: jax.numpy.asarray(value) for path, value in drawn})
    inputs = make_inputs()
    outputs = model(
        inputs["input_ids"],
        attention_mask=inputs["input_mask"],
        token_type_ids=inputs["segment_ids"],
        output_hidden_states=True,
    )
    names = {
        "pooler_output": "pooled_output",
        "prediction_logits": "masked_lm_logits",
        "seq_relationship_logits": "next_sentence_logits",
        **{key: key for key in ("logits", "start_logits", "end_logits")},
    }
    found = {ours: outputs[theirs] for theirs, ours in names.items() if theirs in outputs}
    layers = np.stack(outputs["hidden_states"])[1:]
    model.save_pretrained(root / name, **saving)
    save_outputs(root / name, {**found, "layers": layers}, None)


def save_all(root):
    """Saves all models."""
    for architecture, options in HEADS.items():
        save(root, f"flax_{architecture}", architecture, options)
    save(root, "flax_shards", "BertForPreTraining", {}, max_shard_size="4KB")
    model = transformers.FlaxRobertaModel(transformers.RobertaConfig(**CONFIG))
    model.save_pretrained(root / "flax_roberta")


write_archive("flax.zip", save_all)
