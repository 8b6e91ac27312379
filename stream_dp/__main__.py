"""``python -m stream_dp`` is the command line."""

from stream_dp.cli import main

main()
