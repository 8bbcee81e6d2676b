"""The model of the original's run_classifier_with_tfhub.py, with the weights of a module."""

from typing import Any

import tensorflow as tf

import modeling
from bert.original import classifier, graph
from bert.weights import tf_hub

Tensor = Any


def create_model(
    is_training: bool,
    input_ids: Tensor,
    input_mask: Tensor,
    segment_ids: Tensor,
    labels: Tensor | None,
    num_labels: int,
    bert_hub_module_handle: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the results of `run_classifier.create_model` with the encoder of a module.

    In a graph of `tf.compat.v1`, the encoder's variables are in the scope `module`, and their
    initializers give the weights of the module.

    Raises:
      ValueError: where the folder is no such module.
    """
    module = tf_hub.Module(bert_hub_module_handle)
    inputs = (module.config, is_training, input_ids, input_mask, segment_ids)
    if graph.in_graph():
        module.stored.check_fit(module.config)
        with tf.compat.v1.variable_scope(None, "module") as scope:
            bert = modeling.BertModel(*inputs, scope="bert")
        created = {v.name.removesuffix(":0"): v for v in scope.global_variables()}
        names = {name: f"{scope.name}/{name}" for name in module.stored.shapes}
        tf.compat.v1.train.init_from_checkpoint(
            module.stored.prefix,
            {name: created[scoped] for name, scoped in names.items() if scoped in created},
        )
    else:
        bert = modeling.BertModel(*inputs)
        module.stored.assign(bert.weights)
    return classifier.classify(bert, module.config, is_training, input_ids, labels, num_labels)
