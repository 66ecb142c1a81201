"""An importer for each operator of a .tflite file."""
