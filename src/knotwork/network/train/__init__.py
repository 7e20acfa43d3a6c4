"""Training: what y asks for, the loss, and the loop that keeps what the start knows."""
