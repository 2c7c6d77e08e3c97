"""Sends what a journal holds to destinations: one forwarder for each, in order, never passing over an event.

A forwarder reads its own cursor, so a slow or dead destination delays nobody else. docs/forwarding.md explains the
policies, and what each kind of destination promises.
"""
