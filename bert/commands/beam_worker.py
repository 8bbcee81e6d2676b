"""A process of the DirectRunner: Beam's own, which writes lines as a script does.

It ends with the process that started it, which it would else try for minutes to reach.
"""

import logging
import os
import sys
import threading
import time

from bert.commands.lines import show_lines

# Between two looks at whether that process is still there.
_SECONDS = 0.2


def main() -> None:
    """Does what the process that started it asks for."""
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    show_lines()
    # Beam logs to the root, which would write all of it; it hands it on to that process, too.
    logging.getLogger().addHandler(logging.NullHandler())
    import grpc  # noqa: PLC0415
    from apache_beam.runners.worker import sdk_worker_main  # noqa: PLC0415

    # A thread that no longer reaches that process need not say so, either.
    threading.excepthook = lambda _: None
    try:
        sdk_worker_main.main(sys.argv)
    except grpc.RpcError:
        sys.exit(1)


def _end_with(parent: int) -> None:
    # Another process takes in those whose parent is gone.
    while os.getppid() == parent:
        time.sleep(_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
