"""Measurements. `./dev bench` lists them; no test asserts a time."""
