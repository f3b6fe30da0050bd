"""The target `qnn`: Qualcomm's HTP, as a context binary that its library prepares."""
