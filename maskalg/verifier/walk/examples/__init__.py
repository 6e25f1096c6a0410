"""Small cases on which a walk goes wrong, found by running the text that the proofs read."""
