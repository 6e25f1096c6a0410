"""Questions about masks: what is kept, is anything, and does one mask imply another."""
