"""A process of the DirectRunner: Beam's own, which writes lines as a script does."""

import logging
import sys
import threading

from bert.command_line.lines import show_lines


def main() -> None:
    """Does what the process that started it asks for."""
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


if __name__ == "__main__":
    main()
