"""Tiles that `maskalg tune` measured on this machine, and the candidates it chooses from."""
