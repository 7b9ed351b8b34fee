"""What a node of a graph is for, from its name and op alone.

The scopes are those that TensorFlow's own code makes: savers (``save``), gradients
(``gradients``), initialisers, summaries, metrics. Pure; a name is asked for once a node, some
hundred thousand times a graph, so there is one pattern for all scopes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = [
    "BY_THE_WAY",
    "CHOOSING",
    "COMPARING",
    "HEADS",
    "PIPELINE_OPS",
    "QUEUE_OPS",
    "WEIGHING",
    "is_judge_op",
    "is_output_name",
    "is_side_op",
    "is_side_scope",
    "judge_scope",
    "label_like",
    "rate_like",
    "switch_like",
]

#: Scopes of nodes that are not the model: a saver's, an optimizer's, an initialiser's…
_SIDE_SCOPE = re.compile(
    r"(?:^|/)(?:save(?:_\d+)?|saver_filename|gradients(?:_\d+)?|gradient_tape|init(?:_\d+)?"
    r"|group_deps(?:_\d+)?|assert_[a-z_]+|[Ii]nitializer|report_uninitialized_[a-z_]+|summar(?:y|ies)(?:_\d+)?"
    r"|Merge(?:/MergeSummary|Summary)|train_op|global_step(?:_\d+)?|beta[12]_power"
    r"|Adadelta|Adagrad|Adam(?:_\d+)?|Ftrl|GradientDescent|Momentum|RMSProp)(?:/|$)"
)
#: Ops that end in a summary, a file, an initialised variable, or in nothing.
_SIDE_OP = re.compile(
    r"^(?:Assert|Abort|Print(?:V2)?|NoOp|Const|HostConst|.*Summary(?:V2)?|.*Writer|.*File"
    r"|(?:Resource)?(?:Sparse)?Apply.*|Assign.*|ScatterUpdate|ScatterAdd|ScatterSub"
    r"|(?:Save|Restore|Merge).*|Sharded.*|InitializeTable.*|LookupTableImport.*"
    r"|(?:Mutable)?(?:Dense)?HashTable.*|Variable(?:V2)?|VarHandleOp|AutoReloadVariable"
    r"|VarIsInitializedOp|IsVariableInitialized|ReadVariableOp|.*Queue(?:Close|Size|Enqueue).*"
    r"|.*Queue(?:V2)?|Queue(?:Close|Size|Enqueue).*|.*Dataset(?:V\d)?|Iterator.*|MakeIterator"
    r"|OneShotIterator|Placeholder.*|Broadcast(?:GradientArgs|Args)|ControlTrigger|Stack.*V2)$"
)
#: Ops of a model's head, the most telling first; ``predict`` often takes the second.
HEADS: dict[str, int] = {
    "Softmax": 0,
    "ArgMax": 1,
    "Sigmoid": 2,
    "LogSoftmax": 2,
    "TopKV2": 2,
    "TopK": 2,
    "NonMaxSuppression": 2,
    "NonMaxSuppressionV3": 2,
    "CTCGreedyDecoder": 2,
    "CTCBeamSearchDecoder": 2,
}
#: Ops of sizes, rules and flow that often end nowhere, and are hardly what is wanted.
BY_THE_WAY = frozenset(
    {
        "Shape",
        "ShapeN",
        "Size",
        "Rank",
        "Fill",
        "ZerosLike",
        "OnesLike",
        "Switch",
        "Merge",
        "LoopCond",
        "Enter",
        "Exit",
        "NextIteration",
        "Greater",
        "Less",
        "LogicalNot",
        "LogicalAnd",
        "TensorArrayV3",
        "TensorArraySizeV3",
        "StringJoin",
        "Unpack",
        "Where",
    }
)
#: What a loss or a measure begins with: what flows out of it is no output of a model.
_JUDGES = re.compile(
    r"^(?:(?:Sparse)?SoftmaxCrossEntropyWithLogits|L2Loss|CTCLoss(?:V2)?|InTopK(?:V2)?)$"
)
#: Ops that compare a choice with what was right, where they take one.
COMPARING = frozenset({"Equal", "NotEqual"})
#: Ops that make a choice.
CHOOSING = frozenset({"ArgMax", "TopK", "TopKV2", "Round"})
#: Ops that bring weights in: what flows into one is still on its way through the model.
WEIGHING = re.compile(r"^(?:MatMul|BatchMatMul.*|.*Conv[23]D.*|Depthwise.*|Gather.*|Einsum)$")
_JUDGE_SCOPE = re.compile(
    r"(?:^|/)(?:[a-z_]*loss|losses|labels|cost|accuracy|acc|auc|metrics?|precision|recall|eval(?:uation)?"
    r"|(?:softmax_)?cross_entropy|(?:mean_)?squared_error|mse|error|train(?:ing|er)?"
    r"|optimi[sz]er|dummy_(?:loss|cost))(?:_\d+)?(?:/|$)",
    re.IGNORECASE,
)
QUEUE_OPS = re.compile(
    r"^(?:(?:FIFO|RandomShuffle|PaddingFIFO|Priority)Queue|QueueDequeue(?:Many|UpTo)?"
    r"|Reader(?:Read|ReadUpTo)|(?:Whole|Text|Fixed|TFRecord|Identity).*Reader|Barrier"
    r"|(?:Unstage|MapUnstage|OrderedMapUnstage)|Stage|RecordInput)(?:V2)?$"
)
PIPELINE_OPS = re.compile(
    r"^(?:Iterator(?:V2|GetNext(?:Sync|AsOptional)?)?|OneShotIterator|AnonymousIterator(?:V\d)?"
    r"|MultiDeviceIterator.*)$"
)
_LABEL = re.compile(
    r"(?:^|[/_])(?:labels?|targets?|y_|y_true|ytrue|ground_?truth|gt|expected|answers?"
    r"|weights?_placeholder|sample_weights?)(?:_?\d+)?(?:$|[/_])|^y_$",
    re.IGNORECASE,
)
_RATE = re.compile(
    r"keep_?prob|drop_?out|drop_?rate|(?:^|[/_])kp(?:$|_)|(?:^|[/_])rate(?:$|_)", re.IGNORECASE
)
_SWITCH = re.compile(
    r"(?:^|[/_])(?:is_?)?(?:train(?:ing)?|test(?:ing)?|phase|train_?phase|phase_?train"
    r"|learning_?phase|eval|mode|inference)(?:_?mode)?(?:$|[/_:])",
    re.IGNORECASE,
)
_OUTPUT_NAME = re.compile(
    r"(?:^|[/_])(?:out|outputs?|pred(?:ict(?:ions?|ed)?)?s?|prob(?:abilit(?:y|ies))?s?|logits?"
    r"|softmax|scores?|class(?:es)?|results?|final|y_?hat|yhat|embeddings?|detection_[a-z]+)"
    r"(?:_?\d+)?$",
    re.IGNORECASE,
)

is_side_scope: Callable[[str], object] = _SIDE_SCOPE.search
is_side_op: Callable[[str], object] = _SIDE_OP.match
#: Whether a placeholder's name is that of what a model is compared with.
label_like: Callable[[str], object] = _LABEL.search
#: … of a rate of dropout.
rate_like: Callable[[str], object] = _RATE.search
#: … of what turns training on and off.
switch_like: Callable[[str], object] = _SWITCH.search
is_output_name: Callable[[str], object] = _OUTPUT_NAME.search


def judge_scope(scope: str) -> str:
    """The outermost scope of a loss, a measure or a training step that this one is in."""
    found = _JUDGE_SCOPE.search(scope)
    return scope[: found.end()] if found else ""


is_judge_op: Callable[[str], object] = _JUDGES.match
