"""Participants as containers: their networks, images and launcher, and compose files."""
