"""HTML for notebooks: masks, biases, scores and their results."""
