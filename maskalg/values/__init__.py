"""The values a user composes: masks, biases, scores, index expressions and weights."""
