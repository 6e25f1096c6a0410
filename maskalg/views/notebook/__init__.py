"""What a notebook shows of masks, biases, scores and their results."""
