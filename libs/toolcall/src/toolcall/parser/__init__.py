"""The model's output, incrementally, as reasoning, content and guarded calls."""
