"""Where metrics go: the console, files, TensorBoard and, on request, W&B, MLflow or trackio."""
