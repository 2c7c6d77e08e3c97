"""What tests of thence and of its extensions need: contract suites, faults, and small real servers."""
