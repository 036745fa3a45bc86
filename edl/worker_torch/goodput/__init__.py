"""What a trainer with PyTorch measures to choose the global batch; `edl.worker.goodput` has the arithmetic."""
