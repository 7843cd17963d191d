"""``python -m graphnorm``: the command line."""

import sys

from graphnorm.cli import main

sys.exit(main())
