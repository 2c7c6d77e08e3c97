"""One suite for each port: every test states one promise of the port's docstring.

An implementation passes a suite by subclassing it in its own tests, with a name that pytest collects:

    class TestSqliteJournal(JournalContract):
        def open(self, directory, clock): ...
        def crash(self, opened): ...

`open` opens the implementation on a directory, or on anything else that stands for that directory. `crash` does what
a dying process does: it closes nothing and loses what was not durable. The suites need pytest; that of the warehouse
also needs pyarrow, and the journal's state machine hypothesis.
"""
