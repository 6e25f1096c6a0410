"""`maskalg bench`: attention on this machine's GPU, beside the peers that are installed."""
