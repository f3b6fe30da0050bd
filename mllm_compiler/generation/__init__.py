"""Text out of a model that runs entry by entry: prompts, pixels, sound, sampling, the loop.

The C runtime has all of this of its own; here it serves the target `numpy`, as a second, plain
implementation that the first is compared with.
"""
