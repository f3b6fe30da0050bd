"""An open bundle that runs: over the C runtime with its devices, or over what Python runs."""
