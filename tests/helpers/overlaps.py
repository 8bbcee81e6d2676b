"""Blocks of two threads that overlap."""

import contextlib
import threading

from helpers.waiting import LONGEST


@contextlib.contextmanager
def second_of_two(block):
    """Enters a block in two threads, and leaves it in the first; the second leaves it at the end.

    Args:
      block: Returns the context of the block, which may let in one thread at a time.
    """
    is_in, may_leave = threading.Event(), threading.Event()

    def enter():
        with block():
            is_in.set()
            may_leave.wait(LONGEST)

    thread = threading.Thread(target=enter)
    with block():
        thread.start()
        is_in.wait(0.2)
    assert is_in.wait(LONGEST)
    try:
        yield
    finally:
        may_leave.set()
        thread.join()
