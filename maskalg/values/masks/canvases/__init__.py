"""Masks on canvases: neighborhoods, tiles and frames of images and videos."""
