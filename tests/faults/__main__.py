"""``python -m tests.faults`` is the soak.

Its workers are forks. A main module by another name would be loaded again by each of them.
"""

import sys

from tests.faults.soak import main

sys.exit(main(sys.argv[1:]))
