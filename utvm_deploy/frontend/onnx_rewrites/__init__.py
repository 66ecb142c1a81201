"""Rewrites of a float ONNX graph to operators that TVM's importer gets right (``rules.py``)."""
