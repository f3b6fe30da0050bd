"""Target `numpy`: the module itself, run by the reference."""
