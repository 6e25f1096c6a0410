"""What `maskalg tune` measured on this machine, and what it may choose from."""
