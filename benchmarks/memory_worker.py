"""Takes two steps of fine-tuning BERT-Base for memory.py, which asks for the peak of its memory."""

import tensorflow as tf
import worker

import modeling
import optimization
from bert.network import heads
from bert.training.loop import Objective
from bert.training.trainer import Trainer

VOCAB_SIZE = 30522


def make_trainer(setting: dict) -> Trainer:
    """Returns what run_classifier.py trains with."""
    config = modeling.BertConfig(VOCAB_SIZE, type_vocab_size=2)
    model = heads.classifier_model(config, 2, setting["precision"])
    model.get_layer("bert").gradient_checkpointing = setting["gradient_checkpointing"]
    return Trainer(
        model,
        optimization.bert_optimizer(1e-5, num_train_steps=100, num_warmup_steps=10),
        Objective(*heads.classification_objective("classification")),
        num_micro_batches=setting["gradient_accumulation_steps"],
    )


def make_batch(setting: dict) -> dict[str, tf.Tensor]:
    """Returns a batch of random tokens without padding."""
    sizes = (setting["batch_size"], setting["length"])
    ids = tf.random.uniform(sizes, 0, VOCAB_SIZE, tf.int32)
    sequences = {name: tf.ones(sizes, tf.int32) for name in ("input_mask", "segment_ids")}
    names = ("label_ids", "is_real_example")
    labels = {name: tf.ones((sizes[0], 1), tf.int32) for name in names}
    return {"input_ids": ids, **sequences, **labels}


def main() -> None:
    """Serves the bytes."""
    setting = worker.read_setting()

    def peak() -> int:
        trainer, batch = make_trainer(setting), make_batch(setting)
        for _ in range(2):
            trainer.train_step(batch)
        return worker.memory("VmHWM")

    worker.serve({"peak": peak})


if __name__ == "__main__":
    main()
