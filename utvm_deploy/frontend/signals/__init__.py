"""Custom operators of TFLite Micro's signal library in ``.tflite`` files."""
