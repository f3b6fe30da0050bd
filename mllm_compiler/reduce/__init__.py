"""The smallest model that still fails: delta debugging of ONNX graphs (Zeller & Hildebrandt 2002).

What is told apart: `expect` says whether a file shows the failure, `cuts` make smaller models of a
model, `search` decides which to try, `files` writes what is tried.
"""

from mllm_compiler.reduce.expect import CodeTest, CommandTest, Limits, Outcome
from mllm_compiler.reduce.run import Reduction, reduce_model

__all__ = ["CodeTest", "CommandTest", "Limits", "Outcome", "Reduction", "reduce_model"]
