"""How good a bundle is beside its float model: metrics, data, thresholds, gates.

A file a family of metrics; libraries compute them where there is one, and are imported when asked.
"""
