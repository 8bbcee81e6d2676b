"""SavedModels that take text."""

from bert.command_line import quiet_import  # noqa: F401
