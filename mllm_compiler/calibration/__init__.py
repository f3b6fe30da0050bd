"""Calibration data on its way into a model: files become inputs of its graphs.

Texts go through the model's tokenizer, pictures and sounds through its features. A graph that reads
what another gives gets what that gave on the reference.
"""

from mllm_compiler.calibration.samples import Model, write_samples

__all__ = ["Model", "write_samples"]
