"""The targets that run bundles without a vendor's library."""

OWN_TARGETS = ("c", "numpy")
