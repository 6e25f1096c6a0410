"""The rung of digits: proofs for masks on canvases, one digit of a position at a time."""
