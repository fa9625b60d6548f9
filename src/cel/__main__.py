"""`python -m cel` is `cel`."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # `-m` put the current folder first; like `cel`, this must not import files that lie there.
    if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]

    from cel.cli import main

    main()
