"""One policy call: the engine against ONNX Runtime, TFLite and Acme's actor."""
