"""Runs the target `neuron`: LiteRT's interpreter on this CPU, over the file of a bundle."""

from __future__ import annotations

from mllm_compiler.backends.tflite.runner import TfliteRunner


class NeuronRunner(TfliteRunner):
    """Runs the file that MediaTek's compiler gets; no device is asked."""

    MEMBER = "targets/neuron/model.tflite"
