"""`mllmc` and `mllm-opt`: the command line."""
