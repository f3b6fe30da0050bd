"""Targets: a lowering, an emitter and a runner each."""
