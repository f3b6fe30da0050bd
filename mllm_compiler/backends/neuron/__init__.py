"""Target `neuron`: a `.tflite` that LiteRT's plugin for MediaTek takes whole."""
