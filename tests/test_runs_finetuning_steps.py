import pytest

from bert.runs.finetuning_steps import count_steps, warn_of_patience
from bert.tasks.options import Schedule


def test_number_of_steps_is_the_originals():
    schedule = Schedule(train_batch_size=32, num_train_epochs=3.0)
    assert count_steps(schedule, 3668) == 343
    assert count_steps(schedule, 8551) == 801
    with pytest.raises(ValueError, match=r"3\.0 epochs of 10 examples give none"):
        count_steps(schedule, 10)


@pytest.mark.parametrize(
    ("patience", "every", "remedy"),
    [
        (0, 1000, ""),
        (3, 1000, "Give `save_checkpoints_steps=57`."),
        # The fourth evaluation may be the last, or come before the end.
        (3, 86, "Give `save_checkpoints_steps=57`."),
        (3, 85, ""),
        (30, 57, "Give `save_checkpoints_steps=11`."),
        (342, 1, "Give a smaller `early_stopping_patience` or more `num_train_epochs`."),
    ],
)
def test_patience_that_cannot_end_training_is_warned_of(log, patience, every, remedy):
    """Of MRPC, an epoch has 114 steps."""
    warn_of_patience(patience, every, 343, 114)
    assert [each.partition(" in all. ")[2] for each in log.messages] == [remedy] * bool(remedy)
