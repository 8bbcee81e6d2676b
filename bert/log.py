"""The logger of the project, which a program configures as `logging.getLogger("bert")`."""

import logging

logger = logging.getLogger("bert")
