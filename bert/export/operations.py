"""What the graphs of this project's SavedModels hold, so that others are refused before they load.

A SavedModel is a program: it may read, write and delete files while it is loaded and when it runs.
Its file `saved_model.pb` says so beforehand and is read here without running anything.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from bert.files.stored_models import SAVED_MODEL_FILE
from bert.options import Message, Option, OptionError
from bert.weights.formats import FormatError
from bert.weights.saved_models import read_graphs

# Operations of all exports, older ones included.
_ALLOWED = frozenset(
    """
    AddV2 All Any ArgMax Assert AssignVariableOp BatchMatMulV2 BiasAdd Bitcast BitwiseAnd
    BitwiseOr BroadcastTo Cast ConcatV2 Const Cumsum DenseBincount DisableCopyOnRead Equal
    Erfc Exp ExpandDims FastWordpieceTokenizeWithOffsets Fill FloorDiv FloorMod
    FusedBatchNormV3 GatherNd GatherV2 Greater GreaterEqual HashTableV2 Identity If IsFinite
    Less LessEqual Log LogSoftmax LogicalAnd LogicalNot LogicalOr LookupTableFindV2
    LookupTableImportV2 LowerBound MatMul Max Maximum Mean Minimum Mul Neg NoOp NotEqual
    OneHot OnesLike Pack Pad PadV2 PartitionedCall Placeholder Pow Prod RaggedGather
    RaggedRange RaggedTensorFromVariant RaggedTensorToTensor RaggedTensorToVariant Range
    ReadVariableOp RealDiv Relu Reshape ReverseV2 Rsqrt ScatterNd Select SelectV2 Shape
    Sigmoid Size Softmax Split SquaredDifference Squeeze StatefulPartitionedCall StatelessIf
    StatelessWhile StaticRegexFullMatch StaticRegexReplace StopGradient StridedSlice
    StringJoin StringLength StringSplitV2 StringStrip Sub Substr Sum Tanh TensorListFromTensor
    TensorListGetItem TensorListReserve TensorListSetItem TensorListStack TensorScatterUpdate
    Tile TopKV2 Transpose UnicodeDecode UnicodeEncode UnicodeTranscode Unique Unpack
    UnsortedSegmentJoin UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentSum UpperBound
    VarHandleOp Where While ZerosLike
""".split()  # noqa: SIM905 (a list has one name a line)
)

# `tf.saved_model.save` adds two functions of these, which save and restore the variables for
# programs of TensorFlow 1; `tf.saved_model.load` calls neither of them.
_OF_SAVING = frozenset(("MergeV2Checkpoints", "RestoreV2", "SaveV2", "ShardedFilename"))
_SAVING = re.compile("__inference_(_?traced_(?:save|restore))_[0-9]+")


def read_graph(folder: str, option: str) -> Any:
    """Returns the graph of a SavedModel, a `MetaGraphDef`, that does what exports do and no more.

    Args:
      folder: The folder of the SavedModel.
      option: The option that named it, for messages.

    Raises:
      ValueError: where the file is damaged, or the graph holds what no export holds.
    """
    path = os.path.join(folder, SAVED_MODEL_FILE)
    try:
        graphs = read_graphs(folder)
    except FormatError as error:
        raise OptionError(option, "be a complete SavedModel", remedy=str(error)) from error
    if len(graphs) != 1 or not graphs[0].HasField("object_graph_def"):
        foreign = ["graphs in the form of TensorFlow 1"] if graphs else ["no graph"]
    else:
        foreign = sorted(set(_find_foreign(graphs[0])))
    if foreign:
        more = f" and {len(foreign) - 8} more" if len(foreign) > 8 else ""
        must = "be a SavedModel that %s has written, since a SavedModel is a program"
        remedy = Message(
            "%r has what no export has: %s%s. Nothing of it was run. If you trust it, call "
            "`tf.saved_model.load` yourself.",
            path,
            ", ".join(foreign[:8]),
            more,
        )
        raise OptionError(option, Message(must, Option("do_export")), remedy=remedy)
    return graphs[0]


def _find_foreign(graph: Any) -> Iterator[str]:
    """Yields the names of operations that exports do not have, or not where they can be called."""
    library = graph.graph_def.library
    known = _ALLOWED.union(each.signature.name for each in library.function)
    yield from _foreign(graph.graph_def.node, known)
    # What loading can call is named in these, whatever the field.
    named = graph.object_graph_def.SerializeToString() + library.SerializeToString()
    for function in library.function:
        own = _OF_SAVING if _is_never_called(function, named) else ()
        yield from _foreign(function.node_def, known.union(own))


def _foreign(nodes: Iterable[Any], known: Collection[str]) -> list[str]:
    return [each.op for each in nodes if each.op not in known]


def _is_never_called(function: Any, named: bytes) -> bool:
    """Returns whether a function only saves or restores variables, and nothing else names it."""
    found = _SAVING.fullmatch(function.signature.name)
    # By `api_implements`, TensorFlow may call a function in place of another. What it renames has
    # the middle of the name still.
    if not found or "api_implements" in function.attr:
        return False
    return named.count(found[1].encode()) == 1
