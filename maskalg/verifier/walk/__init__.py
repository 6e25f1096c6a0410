"""The walk over tiles, proved: every tile with a kept pair once, masked unless all are kept."""
