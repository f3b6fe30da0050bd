"""How weights become integers: arrays in, arrays out, no IR."""
