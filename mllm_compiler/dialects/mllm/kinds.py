"""The kinds that families of `mllm` ops are parametrised by, as enumerations and attributes."""

from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, SpacedOpaqueSyntaxAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.utils.str_enum import StrEnum


class UnaryKind(StrEnum):
    """Functions of one element."""

    NEG = "neg"
    ABS = "abs"
    SIGN = "sign"
    CEIL = "ceil"
    FLOOR = "floor"
    ROUND = "round"
    EXP = "exp"
    LOG = "log"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    RECIPROCAL = "reciprocal"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    TANH = "tanh"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    SIGMOID = "sigmoid"
    RELU = "relu"
    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    SOFTPLUS = "softplus"
    HARD_SIGMOID = "hard_sigmoid"
    HARD_SWISH = "hard_swish"
    MISH = "mish"
    NOT = "not"
    ISNAN = "isnan"
    ISINF = "isinf"


class BinaryKind(StrEnum):
    """Functions of two elements of one type."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    POW = "pow"
    MIN = "min"
    MAX = "max"
    MOD = "mod"
    AND = "and"
    OR = "or"
    XOR = "xor"


class CompareKind(StrEnum):
    """Relations of two elements."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"


class ReduceKind(StrEnum):
    """Ways to fold axes into one element."""

    SUM = "sum"
    MEAN = "mean"
    MAX = "max"
    MIN = "min"
    PROD = "prod"
    L1 = "l1"
    L2 = "l2"
    SUM_SQUARE = "sum_square"
    LOG_SUM = "log_sum"
    LOG_SUM_EXP = "log_sum_exp"


class PoolKind(StrEnum):
    """Ways to fold a window into one element."""

    MAX = "max"
    AVERAGE = "average"


class ResizeMode(StrEnum):
    """Ways to read between the grid points of an image."""

    NEAREST = "nearest"
    LINEAR = "linear"
    CUBIC = "cubic"


class Coordinates(StrEnum):
    """How a coordinate of the result maps to one of the input when an image is resized."""

    HALF_PIXEL = "half_pixel"
    ALIGN_CORNERS = "align_corners"
    ASYMMETRIC = "asymmetric"
    PYTORCH_HALF_PIXEL = "pytorch_half_pixel"


class Activation(StrEnum):
    """Activations of the fused feed-forward ops, a subset of the unary kinds."""

    RELU = "relu"
    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"


class NormKind(StrEnum):
    """Norms that a fused op can have: `mllm.rms_norm` or `mllm.layer_norm`."""

    RMS = "rms"
    LAYER = "layer"


@irdl_attr_definition
class UnaryKindAttr(EnumAttribute[UnaryKind], SpacedOpaqueSyntaxAttribute):
    """A unary function."""

    name = "mllm.unary_kind"


@irdl_attr_definition
class BinaryKindAttr(EnumAttribute[BinaryKind], SpacedOpaqueSyntaxAttribute):
    """A binary function."""

    name = "mllm.binary_kind"


@irdl_attr_definition
class CompareKindAttr(EnumAttribute[CompareKind], SpacedOpaqueSyntaxAttribute):
    """A relation."""

    name = "mllm.compare_kind"


@irdl_attr_definition
class ReduceKindAttr(EnumAttribute[ReduceKind], SpacedOpaqueSyntaxAttribute):
    """A reduction."""

    name = "mllm.reduce_kind"


@irdl_attr_definition
class PoolKindAttr(EnumAttribute[PoolKind], SpacedOpaqueSyntaxAttribute):
    """A pooling."""

    name = "mllm.pool_kind"


@irdl_attr_definition
class ResizeModeAttr(EnumAttribute[ResizeMode], SpacedOpaqueSyntaxAttribute):
    """An interpolation."""

    name = "mllm.resize_mode"


@irdl_attr_definition
class CoordinatesAttr(EnumAttribute[Coordinates], SpacedOpaqueSyntaxAttribute):
    """A mapping of coordinates."""

    name = "mllm.coordinates"


@irdl_attr_definition
class NormKindAttr(EnumAttribute[NormKind], SpacedOpaqueSyntaxAttribute):
    """A norm of a fused op."""

    name = "mllm.norm_kind"


@irdl_attr_definition
class ActivationAttr(EnumAttribute[Activation], SpacedOpaqueSyntaxAttribute):
    """An activation of a fused feed-forward op."""

    name = "mllm.activation"


KIND_ATTRS: list[type[Attribute]] = [
    UnaryKindAttr,
    BinaryKindAttr,
    CompareKindAttr,
    ReduceKindAttr,
    PoolKindAttr,
    ResizeModeAttr,
    CoordinatesAttr,
    ActivationAttr,
    NormKindAttr,
]
"""The attribute classes of this module."""


def members_of(attribute: type[Attribute]) -> tuple[str, ...]:
    """The kinds that an attribute class of this module can hold."""
    members: dict[type[Attribute], type[StrEnum]] = {
        UnaryKindAttr: UnaryKind,
        BinaryKindAttr: BinaryKind,
        CompareKindAttr: CompareKind,
        ReduceKindAttr: ReduceKind,
        PoolKindAttr: PoolKind,
        ResizeModeAttr: ResizeMode,
        CoordinatesAttr: Coordinates,
        ActivationAttr: Activation,
        NormKindAttr: NormKind,
    }
    return tuple(str(kind) for kind in members[attribute])
