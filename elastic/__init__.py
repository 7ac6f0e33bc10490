"""Elastic training: a job over machines that come and go.

Start with :mod:`elastic.run` (the command), :mod:`elastic.launcher` (the same from Python) or
:mod:`elastic.rendezvous` (membership alone). Importing this package costs nothing: it holds only
the version.
"""

__version__ = "0.1.0"
