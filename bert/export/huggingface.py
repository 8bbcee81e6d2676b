"""ONNX models with the inputs and outputs that Hugging Face's programs know.

transformers.js, optimum, spark-nlp and fastembed read `onnx/model.onnx`, and with weights of 8 bits
`onnx/model_quantized.onnx`, beside `config.json` and `tokenizer.json`.
"""

import keras
from keras import ops

from bert.export import portable

MODEL_FILE, QUANTIZED_FILE = "onnx/model.onnx", "onnx/model_quantized.onnx"
# The inputs, int64, by their names there, with the names here.
INPUTS = {
    "input_ids": "input_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "segment_ids",
}
# The outputs of an architecture by their names there; `logits` for all that are not listed.
_OUTPUTS = {
    "BertModel": {"last_hidden_state": "sequence_output"},
    "BertForMaskedLM": {"logits": "masked_lm_logits"},
    "BertForNextSentencePrediction": {"logits": "next_sentence_logits"},
    "BertForQuestionAnswering": {"start_logits": "start_logits", "end_logits": "end_logits"},
}


# The architectures whose outputs depend on the pooler.
READ_POOLER = (
    "BertForNextSentencePrediction",
    "BertForSequenceClassification",
    "BertForMultipleChoice",
)
# The start of the names of variables that an architecture's outputs do not depend on.
UNREAD = {"BertForMaskedLM": "cls/seq_relationship/", "BertForNextSentencePrediction": "cls/pred"}


def rename(model: keras.Model, architecture: str) -> keras.Model:
    """Returns a model of the same weights, with inputs and outputs as transformers names them.

    Args:
      model: A model of `bert.models.keras_models.make_model`.
      architecture: Its architecture; "BertForMaskedLM" computes the logits of every token.
    """
    inputs = {
        theirs: keras.Input(model.input[ours].shape[1:], dtype="int64", name=theirs)
        for theirs, ours in INPUTS.items()
    }
    given = {ours: ops.cast(inputs[theirs], "int32") for theirs, ours in INPUTS.items()}
    if "masked_lm_positions" in model.input:
        # 0, 1, 2 and so on in each row.
        given["masked_lm_positions"] = ops.cumsum(ops.ones_like(given["input_ids"]), axis=1) - 1
    outputs = model(given)
    names = _OUTPUTS.get(architecture, {"logits": "logits"})
    return keras.Model(inputs, {theirs: outputs[ours] for theirs, ours in names.items()})


def convert(renamed: keras.Model) -> bytes:
    """Returns the ONNX file of what `rename` returned."""
    import onnx  # noqa: PLC0415 (an extra)

    model = onnx.load_model_from_string(portable.convert(renamed, "onnx", "float32"))
    # TensorFlow sorts outputs by name, and some programs read them by place.
    outputs = sorted(model.graph.output, key=lambda output: [*renamed.output].index(output.name))
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    return bytes(model.SerializeToString(deterministic=True))
