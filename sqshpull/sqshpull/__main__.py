# SPDX-License-Identifier: Apache-2.0
"""``python -m sqshpull``."""

import sys

from sqshpull.cli import main

sys.exit(main())
