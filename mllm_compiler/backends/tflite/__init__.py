"""Target `tflite`: one `.tflite` file, a signature for each entry."""
