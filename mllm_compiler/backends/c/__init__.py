"""Target `c`: a stage table for the C runtime, or the same program as readable C."""
