"""`attention` as operators of torch, for graphs, transforms and modes that see no Python."""
