"""How any of it is trained."""

from bert.command_line import quiet_import  # noqa: F401
