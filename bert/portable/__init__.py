"""Models as files of other runtimes: LiteRT, which was TensorFlow Lite, and ONNX Runtime."""

from bert.command_line import quiet_import  # noqa: F401
