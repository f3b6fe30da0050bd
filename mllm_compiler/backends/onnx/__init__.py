"""The backend `onnx`: a module back as ONNX, so that other tools can be asked for an opinion."""
