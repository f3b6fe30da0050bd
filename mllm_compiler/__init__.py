"""A compiler that takes a multimodal model from ONNX to the chip."""

__version__ = "0.1.0"
