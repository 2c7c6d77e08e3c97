"""The vocabulary: frozen values, pure functions and ports. No I/O happens here.

One noun, one file, one meaning. Everything else in thence speaks in these words.
"""
