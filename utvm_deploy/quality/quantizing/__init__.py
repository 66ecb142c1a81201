"""A float model becomes a quantized .tflite file.

    model_steps.quantize_model ──▶ calibrate: the range of every tensor on the user's samples
                               ──▶ quantize_with_recipe: the file that a ``Recipe`` describes
                               ──▶ the report: what stayed float, and the error of each output

``tflite_*.py`` quantize .tflite files with ai-edge-quantizer, in a child process. ``onnx_*.py``
quantize ONNX files with onnxruntime, and ``torch_*.py`` quantize PyTorch programs with PT2E. Where
layers are quantized one by one, these become float .tflite files first: see
``model_steps.opened``.
"""
