"""What tests of several modules share of `create_pretraining_data`."""

import tensorflow as tf


def read_records(*paths):
    records = []
    for path in paths:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            features = tf.train.Example.FromString(record).features.feature
            records.append(
                {
                    name: list(feature.int64_list.value or feature.float_list.value)
                    for name, feature in features.items()
                }
            )
    return records


def warnings_of(log):
    return [record.getMessage() for record in log.records if record.levelname == "WARNING"]
