"""What tests of several modules share of `weights_checkpoint`."""

import numpy as np
import tensorflow as tf


def save_by_tf1(prefix, tensors, write_version=tf.compat.v1.train.SaverDef.V2):
    """Writes the tensors as the original did, by tf.train.Saver in a graph."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [
            tf.compat.v1.get_variable(name, initializer=np.asarray(value), use_resource=False)
            for name, value in tensors.items()
        ]
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(variables, write_version=write_version).save(session, prefix)
